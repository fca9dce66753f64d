"""Coverage counts the cells that were visited, and coordinates have the names of the environment."""

import base64
import functools
import html
import json
import re
import shutil
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from episodes import record_random

from plan2explore.envs import make, maze
from plan2explore.replay.files import save_episode
from plan2explore.report.coordinates import PAIRS, coordinates_of, proprio_names
from plan2explore.report.coverage import (
    CELLS,
    FINE,
    FRAMES,
    WALL,
    Visited,
    cells_of,
    coverage,
    edges_of,
    first_visits,
    growth,
    parts_of,
    read_visited,
    walls_of,
)
from plan2explore.report.html import text as text_of
from plan2explore.report.run import open_runs
from plan2explore.runs.files import append_line

recorded = functools.cache(functools.partial(record_random, size=8, action_repeat=25, obs="proprio"))
"""Episodes that tests only read."""


def visited(values: Any) -> Visited:
    values = np.asarray(values, np.float32)
    return Visited(SimpleNamespace(), values, 2.0 * np.arange(len(values)), np.zeros(0))  # type: ignore[arg-type]


def test_visits_count_every_state_once_and_know_the_first():
    values = np.array([[0.0, 0.0], [0.99, 0.0], [1.0, 1.0], [5.0, 1.0]])  # the last lies beyond: it counts to the edge
    cells = cells_of(values, np.array([[0.0, 0.0], [1.0, 1.0]]), CELLS)
    assert cells.tolist() == [[0, 0], [CELLS - 1, 0], [CELLS - 1, CELLS - 1], [CELLS - 1, CELLS - 1]]
    first, counts = first_visits(np.array([0, 3, 1, 3]), np.array([0, 2, 4, 6]), 5)
    assert counts.tolist() == [1, 1, 0, 2, 0]
    np.testing.assert_array_equal(first, [0, 4, np.nan, 2, np.nan])


def test_the_animation_shows_a_cell_from_its_first_visit_on(small_runs):
    shown = coverage(open_runs(small_runs[:1])[0])
    (steps,) = (json.loads(each) for each in re.findall(r'data-steps="([^"]+)"', shown))
    assert steps[0] == 0 and steps[-1] == 3000 and len(steps) == FRAMES
    coordinates, seen = read_visited(open_runs(small_runs[:1])[0][0])
    edges = edges_of([seen])
    columns = [coordinates.names.index(name) for name in coordinates.pairs("cartpole")[0]]
    frames = np.frombuffer(base64.b64decode(re.findall(r'data-first="([^"]+)"', shown)[0]), np.uint8)
    for frame in (0, 20, FRAMES - 1):
        before = seen.values[seen.env_steps <= steps[frame]][:, columns]
        visited_by_then = {tuple(cell) for cell in cells_of(before, edges[:, columns], CELLS)}
        assert {divmod(int(cell), CELLS) for cell in np.flatnonzero(frames <= frame)} == visited_by_then


def test_edges_forget_single_wild_states_and_keep_an_even_coordinate():
    values = np.zeros((10_000, 2))
    values[:, 0] = np.linspace(-1, 1, 10_000)
    values[3, 0] = 1e6
    low, high = edges_of([visited(values[:5000]), visited(values[5000:])])
    assert -1 <= low[0] < -0.99 and 0.99 < high[0] <= 1
    assert (low[1], high[1]) == (-0.5, 0.5)


def test_growth_rises_with_new_cells_only():
    there = np.tile([[0.1, 0.1], [0.9, 0.9]], (100, 1))
    anywhere = np.random.default_rng(0).uniform(0, 1, (200, 2))
    env_steps, cells = growth(visited(np.concatenate([there, anywhere])), np.array([[0, 0], [1, 1]]))
    half = env_steps <= 398
    assert cells[0] == 1 and set(cells[half][1:]) == {2} and cells[-1] > 100 and (np.diff(cells) >= 0).all()
    values, edges = np.random.default_rng(0).uniform(0, 1, (3000, 30)), np.stack([np.zeros(30), np.ones(30)])
    assert growth(visited(values), edges)[1][-1] == len(np.unique(cells_of(values, edges, parts_of(30)), axis=0))


@pytest.mark.parametrize("world", ["cartpole", "finger", "quadruped"])
def test_coordinates_are_the_worlds_own(world):
    episode = recorded(world)
    found = coordinates_of(world, episode)
    values = found.read(episode)
    assert values.shape == (len(episode), len(found.names)) and np.isfinite(values).all()
    assert found.pairs(world) and len(set(found.names)) == len(found.names)
    assert len(proprio_names(world, episode)) == episode.proprio.shape[1]


def test_a_coordinate_is_what_its_name_says():
    env = make("cheetah", size=8, action_repeat=25, obs="proprio")
    episode = recorded("cheetah")
    env.reset(seed=episode.meta["seed"])
    for action in episode.action[1:4]:
        env.step(action)
    found = coordinates_of("cheetah", episode)
    at = dict(zip(found.names, found.read(episode)[3], strict=True))
    for name in ("rootx", "rooty", "fthigh"):
        assert at[name] == pytest.approx(env.physics.named.data.qpos[name].item(), abs=1e-5)
        assert at[f"{name} velocity"] == pytest.approx(env.physics.named.data.qvel[name].item(), abs=1e-4)
    assert found.seconds == pytest.approx(0.01)
    env.close()


def test_angles_that_turn_are_wrapped_and_those_of_limited_joints_are_not():
    episode = record_random("pendulum", size=8, action_repeat=50, obs="proprio")
    found = coordinates_of("pendulum", episode)
    assert found.names == ("hinge", "hinge velocity") and found.turning.tolist() == [True, False]
    episode.state[..., found.columns[0]] += 4 * np.pi
    assert np.abs(found.read(episode)[:, 0]).max() <= np.pi + 1e-6
    walker = coordinates_of("walker", episode)  # of an episode only the size is read, and not of the suite
    turning = dict(zip(walker.names, walker.turning, strict=True))
    assert turning["rooty"] and not turning["right_hip"] and not turning["rootx"]


def test_chosen_pairs_are_of_joints_that_exist():
    for domain, pairs in PAIRS.items():
        assert coordinates_of(domain, recorded("cartpole")).pairs(domain) == list(pairs), domain


def test_gymnasium_worlds_have_numbered_coordinates():
    episode = recorded("gymnasium:Pendulum-v1")
    found = coordinates_of(episode.world, episode)
    assert found.names == ("observation 0", "observation 1", "observation 2")
    np.testing.assert_allclose(found.read(episode), episode.proprio, atol=1e-5)
    assert found.pairs(episode.world)


def test_runs_with_the_same_body_are_compared(small_runs, tmp_path):
    other = shutil.copytree(small_runs[1], tmp_path / "third")
    text = (other / "run.json").read_text().replace('"world": "cartpole"', '"world": "cartpole_balance"')
    (other / "run.json").write_text(text)
    for number in range(3):
        save_episode(other / "episodes" / f"{number:06}.npz", recorded("cartpole_balance"))
    shown = coverage(open_runs([*small_runs, other])[0], [("slider", "hinge_1"), ("slider", "tail")])
    assert shown.count("<h3>cartpole</h3>") == 1 and len(re.findall(r"hinge_1 \([^)]*\) over slider \(", shown)) == 3
    assert text_of("has no coordinate 'tail'") in shown and "slider velocity (" not in shown


def test_all_states_of_a_run_are_read(small_runs):
    (explored,), _ = open_runs(small_runs[:1])
    _, found = read_visited(explored)
    assert found.values.shape == (3 * 41, 4)
    assert found.env_steps[0] == 0 and found.env_steps[-1] == 3000 and (np.diff(found.env_steps) >= 0).all()


def test_the_map_of_a_maze_has_its_proportions_and_walls(copied):
    run = copied
    (run / "run.json").write_text((run / "run.json").read_text().replace('"world": "cartpole"', '"world": "maze_u"'))
    episodes = [recorded("maze_u", seed=number) for number in range(3)]
    for number, episode in enumerate(episodes):
        save_episode(run / "episodes" / f"{number:06}.npz", episode)
    append_line(run / "metrics.jsonl", {"env_steps": 3000, "time": 1.0, "coverage": 0.3})
    shown = coverage(open_runs([run])[0])
    assert f'<canvas width="{10 * FINE}" height="{5 * FINE}"' in shown and "visited 30% of the maze" in shown
    curve = json.loads(html.unescape(re.findall(r'data-chart="([^"]+)"', shown)[0]))
    share = maze.coverage("maze_u", np.concatenate([each.state.reshape(-1, each.state.shape[-1]) for each in episodes]))
    (line,) = curve["lines"]
    assert curve["y"] == "coverage" and line["y"] == sorted(line["y"]) and line["y"][-1] == pytest.approx(share, 1e-4)
    assert line["x"][-1] == 3000
    first = np.frombuffer(base64.b64decode(re.findall(r'data-first="([^"]+)"', shown)[0]), np.uint8)
    first = first.reshape(10 * FINE, 5 * FINE)  # across, up
    rows = maze.rows_of("maze_u")
    for row, marks in enumerate(rows):
        for column, mark in enumerate(marks):
            here = first[column * FINE :, (len(rows) - 1 - row) * FINE :][:FINE, :FINE]
            assert (here == WALL).all() if mark == "#" else (here != WALL).all()
    south_west = first[FINE : 2 * FINE, FINE : 2 * FINE]
    assert south_west.min() == 0  # every episode begins there
    assert walls_of("cartpole") is None
