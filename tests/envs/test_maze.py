"""Mazes: a point or an ant between walls, goals as tasks, and which cells an episode visited."""

import time

import numpy as np
import pytest

from mjraycast import unsupported
from plan2explore import Task, list_tasks, make, record, relabel
from plan2explore.envs import maze
from plan2explore.envs.names import split_name

MAZES = list(maze.LAYOUTS)
OF_BALLS = [domain for domain in MAZES if domain not in maze.ANTS]


def path(domain, goal):
    """Cells from the start to the goal, by breadth-first search."""
    free, start = set(maze.free_cells(domain)), maze.start_cell(domain)
    before, queue = {start: start}, [start]
    for i, j in queue:
        for cell in ((i + 1, j), (i - 1, j), (i, j + 1), (i, j - 1)):
            if cell in free and cell not in before:
                before[cell] = (i, j)
                queue.append(cell)
    assert set(before) == free
    cells = [goal]
    while cells[-1] != start:
        cells.append(before[cells[-1]])
    return cells[::-1]


@pytest.mark.parametrize("domain", MAZES)
def test_names_split_into_maze_and_goal(domain):
    assert split_name(domain) == (domain, None) and domain in list_tasks("domains")
    goals = maze.goals(domain)
    assert len(goals) >= 5 and maze.start_cell(domain) not in goals.values()
    for goal in goals:
        assert split_name(f"{domain}_{goal}") == (domain, goal) and f"{domain}_{goal}" in list_tasks()


@pytest.mark.parametrize("domain", MAZES)
def test_the_ray_caster_draws_walls_floor_and_body(domain):
    env = make(domain, size=64, renderer="raycast")
    assert not unsupported(env.physics.model.ptr)
    image = env.reset(seed=0)[0]["image"].reshape(-1, 3).astype(int)
    red, blue = image[:, 0] - image[:, 2], image[:, 2] - image[:, 0]
    assert (red > 150).any() and (red > 40).mean() > 0.05 and (blue > 40).mean() > 0.1


@pytest.mark.parametrize("domain", OF_BALLS)
def test_a_ball_that_is_steered_reaches_every_goal(domain):
    for goal, cell in maze.goals(domain).items():
        env = make(f"{domain}_{goal}", size=8, obs="proprio")
        env.reset(seed=0)
        cells, reward = path(domain, cell), 0.0
        for following in cells[1:]:
            for _ in range(20):
                away = maze.centre_of(domain, following) - env.physics.data.qpos
                if np.abs(away).max() < 0.2:
                    break
                reward = env.step(2 * away - 0.2 * env.physics.data.qvel)[1]
        assert tuple(maze.cell_of(domain, env.physics.data.qpos.copy())) == cell
        assert 1.8 < reward <= 2.0  # two env steps


def test_walls_hold_and_a_cell_takes_about_four_actions():
    env = make("maze_rooms", size=8, obs="proprio")
    start = env.reset(seed=0)[1]["state"][0]
    states = np.concatenate([env.step(np.array([1.0, 0.0]))[4]["state"] for _ in range(60)])
    assert maze.cell_of("maze_rooms", states[-1]).tolist() == [9, 4]  # the wall between the southern rooms
    crossing = np.flatnonzero(np.diff(maze.cell_of("maze_rooms", states)[:, 1]))
    assert 7 <= np.diff(crossing).min() <= 10
    assert maze.cell_of("maze_rooms", start).tolist() == [9, 1]


@pytest.mark.parametrize("domain", OF_BALLS)
def test_observations_stay_about_within_one(domain):
    env = make(domain, size=8, obs="proprio")
    seen = [env.reset(seed=seed)[0]["proprio"] for seed in range(3)]
    assert np.abs(np.array(seen)[:, :2] - seen[0][:2]).max() < 0.1 and len({s.tobytes() for s in seen}) == 3
    episode = record(env, seed=0)
    assert episode.proprio.shape == (501, 4) and np.abs(episode.proprio).max() < 1.2


def test_stored_episodes_are_relabelled_for_every_goal_and_tell_their_coverage():
    task = Task.named("maze_rooms_goal_w")
    episode = record(make("maze_rooms", size=8), seed=0)
    live = record(make(task.name, size=8), seed=0)
    assert not episode.reward.any() and live.reward.max() < 2
    np.testing.assert_allclose(relabel(episode, task), live.reward, atol=1e-9)
    few, more = maze.coverage("maze_rooms", episode.state[:50]), maze.coverage("maze_rooms", episode.state)
    assert 0 < few <= more < 0.5


def test_random_actions_explore_a_part_of_the_rooms_only():
    env = make("maze_rooms", size=8, obs="proprio")
    states = np.stack([record(env, seed=seed).state for seed in range(25)])
    assert 0.3 < maze.coverage("maze_rooms", states) < 0.65


def test_a_step_is_quick_when_nothing_is_drawn():
    env = make("maze_large", size=64, obs="proprio")
    best = np.inf
    for _ in range(5):
        env.reset(seed=0)
        began = time.process_time()
        for _ in range(200):
            env.step(np.zeros(2))
        best = min(best, (time.process_time() - began) / 400)
    assert best < 1e-3  # about 4e-5 on an idle core


def trot(env, clock):
    """Diagonal legs step in turn; each joint is driven to where it should be."""
    phase = (2 * clock + np.array([0, 0.5, 0, 0.5])) % 1
    stance = phase < 0.5
    swing = np.array([1, 1, -1, -1]) * 0.65 * (2 * np.where(stance, 2 * phase, 2 - 2 * phase) - 1)
    wanted = np.stack([swing, np.where(stance, 1.3, 0.5)], 1).ravel()
    return np.clip(4 * (wanted - env.physics.data.qpos[7:]) - 0.15 * env.physics.data.qvel[6:], -1, 1)


def test_an_ant_that_trots_walks_and_walls_hold_it():
    env = make("antmaze_u_goal_e", obs="proprio", action_repeat=1)
    start, info = env.reset(seed=0)
    assert env.action_size == 8 and start["proprio"].shape == (34,) and np.abs(start["proprio"]).max() < 1.5
    states = [info["state"][0]]
    with env.physics.reset_context():
        env.physics.data.qpos[:] = states[0][1:16]
        env.physics.data.qpos[3:7] = 1, 0, 0, 0  # to the east
    states += [env.step(trot(env, 0.02 * step))[4]["state"][0] for step in range(600)]
    cells = maze.cell_of("antmaze_u", np.array(states))
    assert set(map(tuple, cells.tolist())) <= set(maze.free_cells("antmaze_u"))
    assert states[-1][1] - states[0][1] > 1.5 and maze.coverage("antmaze_u", np.array(states)) > 2 / 18


def test_an_ants_episodes_are_relabelled_and_start_anywhere_turned():
    task = Task.named("antmaze_u_goal_s")
    episode, live = (record(make(name, obs="proprio"), seed=1) for name in ("antmaze_u", task.name))
    assert live.reward.max() > 0
    np.testing.assert_allclose(relabel(episode, task), live.reward, atol=1e-6)
    env = make("antmaze_u", obs="proprio")
    assert np.ptp([env.reset(seed=seed)[1]["state"][0, 4] for seed in range(20)]) > 0.5


def test_coverage_grows_with_what_is_added():
    visited = maze.Coverage("maze_u")
    assert visited.share == 0
    episode = record(make("maze_u", obs="proprio"), seed=0)
    shares = []
    for state in episode.state:
        visited.add(state)
        shares.append(visited.share)
    assert shares == sorted(shares) and shares[0] == 1 / 18 and shares[-1] > 2 / 18
    assert shares[-1] == maze.coverage("maze_u", episode.state)
