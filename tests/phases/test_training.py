"""Collecting and learning side by side: the schedule, what is learned from, what is kept, and the same bits again."""

import os
import signal
from types import SimpleNamespace

import numpy as np
import pytest
from events import shown
from nano import (
    FRAMES,
    SCHEDULE,
    TASKS,
    WORLD,
    assert_same_arrays,
    evaluations,
    in_turn,
    nano_config,
    nano_explore,
    overlap,
    parameters,
    progress_of,
)

import plan2explore as p2e
from plan2explore.config import Schedule, paper
from plan2explore.phases import callbacks
from plan2explore.phases.collect import Collector
from plan2explore.phases.training import Job, Training
from plan2explore.replay.buffer import Replay
from plan2explore.replay.files import EpisodeFolder

pytestmark = pytest.mark.xdist_group("phases")
both = pytest.mark.parametrize("which", ["taken_in_turn", "overlapped"])


@both
def test_updates_follow_env_steps(which, request):
    meta = progress_of(request.getfixturevalue(which).run)
    assert meta["env_steps"] == 5000
    assert 0 <= SCHEDULE.updates_per_episode * meta["env_steps"] / 1000 - meta["updates"] < SCHEDULE.block
    assert meta["updates"] == 250


@both
def test_the_first_episodes_are_random_and_nothing_is_learned_meanwhile(which, request):
    run = request.getfixturevalue(which).run
    seeds = SCHEDULE.seed_episodes * 1000
    episodes = list(run.episodes())
    assert [episode.meta["policy"] for episode in episodes] == ["random"] * 2 + ["plan2explore"] * (len(episodes) - 2)
    assert [episode.meta["updates"] for episode in episodes[:2]] == [0, 0]
    assert all(episode.meta["updates"] >= 100 for episode in episodes[2:])
    assert min(line["env_steps"] for line in run.metrics()) >= seeds


def test_overlap_learns_from_running_episodes_and_in_turn_from_whole_ones(taken_in_turn, overlapped):
    episodes = [2] * 10 + [3] * 5 + [4] * 5 + [5] * 5
    assert taken_in_turn.drawn_from == [[FRAMES * count] for count in episodes]
    partly = {steps % FRAMES for moment in overlapped.drawn_from for steps in moment}
    assert {5, 10} <= partly  # flushed every 5 steps, the length of a sequence
    assert len(overlapped.drawn_from) == 25


@both
def test_episodes_say_where_they_come_from_and_their_seed_plays_them_again(which, request):
    run = request.getfixturevalue(which).run
    count = {"taken_in_turn": 5, "overlapped": 4}[which]
    found = list(EpisodeFolder(run.folder.episodes, read_only=True).load_all())
    assert len(found) == count and len({episode.meta["seed"] for _, episode in found}) == count
    env = p2e.make("cartpole", size=8, action_repeat=100, obs="proprio")
    for number, episode in found:
        meta = episode.meta
        environments = 1 if which == "taken_in_turn" else 2
        assert meta["environment"] == number % environments and meta["episode"] == number // environments
        assert (episode.world, meta["renderer"], meta["env_steps"]) == ("cartpole", "none", 1000)
        assert not episode.reward.any()
        observation, info = env.reset(seed=meta["seed"])
        states, observed = [info["state"][0]], [observation["proprio"]]
        for action in episode.action[1:]:
            observation, _, _, _, info = env.step(action)
            states.append(info["state"])
            observed.append(observation["proprio"])
        assert np.array_equal(np.stack(observed), episode.proprio) and not episode.image.any()
        assert states[0].tobytes() == episode.state[0, 0].tobytes()
        assert np.stack(states[1:]).tobytes() == episode.state[1:].tobytes()
    env.close()


def test_a_world_with_a_task_keeps_its_reward(tmp_path):
    config = nano_config(TASKS[0], collect="in-turn", environments=1, evaluate_episodes=0)
    run = nano_explore(tmp_path / "run", config, 1000)
    for episode in run.episodes():
        assert episode.reward[1:].min() > 0
        assert np.array_equal(episode.reward, p2e.relabel(episode, p2e.Task.named(TASKS[0])))


def test_probes_are_evaluated_on_a_schedule(taken_in_turn, overlapped):
    lines = evaluations(taken_in_turn.run)
    assert [(line["task"], line["env_steps"], line["updates"]) for line in lines] == [
        (task, steps, steps // 20) for steps in (2000, 4000, 5000) for task in TASKS
    ]
    lines = evaluations(overlapped.run)
    assert [(line["task"], line["env_steps"]) for line in lines if line["task"] == TASKS[0]] == [
        (TASKS[0], steps) for steps in (2000, 4000, 5000)
    ]
    assert taken_in_turn.run.snapshots == [2000, 4000, 5000]


def test_the_last_evaluation_comes_once_and_names_diverged_critics(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(callbacks, "DIVERGED", -1)  # whatever they expect
    lines = evaluations(nano_explore(tmp_path / "run", overlap(), 4000))
    said = capsys.readouterr().err
    for name in ("explorer", *TASKS):
        assert 1 <= said.count(f"The critic of {name} has diverged") <= 2, "at each evaluation that follows metrics"
    found = [(line["task"], line["env_steps"]) for line in lines]
    assert found == [(task, steps) for steps in (2000, 4000) for task in TASKS]
    assert lines[-1]["updates"] == 200


def test_a_worker_that_dies_changes_nothing_in_turn_nor_do_evaluations(taken_in_turn, tmp_path, monkeypatch, processes):
    send, calls = Collector.send, []

    def send_and_kill(collector, actions):
        calls.append(None)
        if len(calls) == 24:  # in the third episode
            os.kill(collector.vector.processes[0], signal.SIGKILL)
        send(collector, actions)

    monkeypatch.setattr(Collector, "send", send_and_kill)
    run = nano_explore(tmp_path / "run", in_turn(evaluate_episodes=0))
    assert len(calls) > 50
    assert_same_arrays(parameters(run), parameters(taken_in_turn.run))
    assert not run.folder.evaluations_file.exists() and not shown(run.folder.tensorboard, "image")
    histograms = {("explore/intrinsic_reward", steps) for steps in (2000, 4000, 5000)}  # on the same schedule
    assert shown(run.folder.tensorboard, "histo").keys() == histograms


def job(**changes):
    """A job that nobody does."""
    info = SimpleNamespace(episode=1000, action_repeat=2, frames=501)
    schedule = Schedule().resolved(paper)
    fields = {"folder": None, "world": WORLD, "info": info, "schedule": schedule, "tasks": [], "seed": 0}
    return Job(**fields | {"goal": 10_000, "environments": 4} | changes)


def test_a_checkpoint_has_the_metrics_of_all_its_updates(tmp_path, monkeypatch):
    update = Training._update

    def fail(training):
        if training.updates == 150:
            raise SystemExit("as a kill would, without another word")
        update(training)

    monkeypatch.setattr(Training, "_update", fail)
    with pytest.raises(SystemExit):
        nano_explore(tmp_path / "run", overlap(checkpoint_seconds=0.0))
    run = p2e.Run(tmp_path / "run")
    assert max(line.get("update", 0) for line in run.metrics()) == progress_of(run)["updates"] == 150


def test_updates_are_due_by_env_steps():
    exploring = job(random_until=5000)
    assert [exploring.due(steps) for steps in (0, 4999, 5000, 6000)] == [0, 0, 500, 600]
    assert job(goal=0, head_start=70).due(0) == 70


@pytest.mark.parametrize(
    ("updates", "block", "expected"), [(10_000, 0, 25), (10, 0, 10), (31, 0, 1), (30, 25, 15), (30, 4, 3)]
)
def test_blocks_in_imagination_add_up_to_what_was_asked_for(updates, block, expected):
    assert job(goal=0, head_start=updates, schedule=Schedule(block=block)).block == expected


def untrained(tmp_path):
    """Training that never began, and what it says."""
    said, folder = [], SimpleNamespace(**{name: tmp_path / name for name in ("episodes", "checkpoints", "snapshots")})
    work = job(folder=folder, tasks=[SimpleNamespace(name=name) for name in TASKS])
    state, replay = SimpleNamespace(update=0), SimpleNamespace(steps=0)
    return Training(work, None, state, replay, None, SimpleNamespace(say=said.append)), said


def test_learning_waits_for_the_first_steps_in_replay(tmp_path):
    training, _ = untrained(tmp_path)
    training.collector = SimpleNamespace(env_steps=2000)
    assert training._due() == 0
    training.replay.steps = 3  # an episode that ended early
    assert training._due() == 200


@pytest.mark.parametrize("name", ["explorer", TASKS[0]])
@pytest.mark.parametrize(
    ("value", "diverged"), [(-50.0, False), (120.0, False), (1200.0, True), (-1200.0, True), (2e10, True)]
)
def test_a_critic_has_diverged_that_expects_what_no_rewards_add_up_to(tmp_path, name, value, diverged):
    """Rewards of at most 0.5 a step, discounted by 0.99, add up to 50; a little above is only inexact."""
    work, said = untrained(tmp_path)
    work.log.last = {f"{name}/value": value, f"{name}/value_limit": 50.0}
    work.evaluations.check_value_divergence()
    assert [f"The critic of {name} has diverged" in line for line in said] == [True] * diverged


def test_a_task_whose_loss_is_not_finite_ends_and_the_run_continues(tmp_path, monkeypatch, capsys):
    """Once said, and everything else is trained to the end."""
    sample = Replay.sample

    def poisoned(replay, key, count):
        batches = sample(replay, key, count)
        return batches | {"reward": batches["reward"].at[..., 1].set(np.nan)}

    monkeypatch.setattr(Replay, "sample", poisoned)
    run = nano_explore(tmp_path / "run", in_turn(evaluate_episodes=0), 3000)
    assert capsys.readouterr().err.count(f"Task {TASKS[1]} has ended: its loss was not finite") == 1
    assert progress_of(run)["updates"] == 150
    arrays = parameters(run)
    assert arrays["reward/opt_state/count"].tolist() == [150, 0] and arrays["model/opt_state/count"].tolist() == [150]
    assert all(np.isfinite(array).all() for array in arrays.values())
