"""Phase 1: what cannot work is said before anything is written, and an untrusted folder runs nothing."""

import json
import shutil
import signal
from dataclasses import replace

import leaving  # noqa: F401 (registers its world)
import numpy as np
import pytest
from nano import (
    TASKS,
    WORLD,
    assert_same_arrays,
    digests,
    evaluations,
    nano_adapt,
    nano_config,
    nano_explore,
    overlap,
    parameters,
    progress_of,
)

import plan2explore as p2e
from plan2explore.config import PRESETS
from plan2explore.envs import base, maze
from plan2explore.envs.gymnasium import GymnasiumEnv
from plan2explore.phases import explore as module
from plan2explore.phases import world as world_module
from plan2explore.phases.callbacks import Stopped
from plan2explore.phases.explore import configure, environments
from plan2explore.phases.training import Training
from plan2explore.phases.world import agent_spaces, bytes_of_one, check_room, check_tasks, inspect_world, make_task
from plan2explore.replay.buffer import TooLittleMemoryError
from plan2explore.replay.files import EpisodeFolder, save_episode
from plan2explore.runs.checkpoint import BadCheckpoint
from plan2explore.runs.folder import RunError

pytestmark = pytest.mark.xdist_group("phases")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"world": "walkr"}, "no world or task 'walkr'. Nearest names: walker"),
        ({"preset": "huge"}, "no preset 'huge': choose one of paper, small, tiny"),
        ({"method": "boredom"}, "no objective 'boredom': choose one of plan2explore, retrospective, max, curiosity, random"),
        ({"method": "boredom", "probes": TASKS}, "no objective 'boredom'"),
        ({"method": "dreamer"}, "dreamer follows a task: give one as a probe"),
        ({"probes": ["walker_walk"]}, "'walker_walk' belongs to walker; the world here is cartpole"),
        ({"probes": ["cartpole_balance"] * 2}, "Each task must have a name of its own"),
        ({"steps": 0}, "at least 1; got 0"),
        ({"steps": float("inf")}, "one such as 1e6; got inf"),
        ({"steps": float("nan")}, "one such as 1e6; got nan"),
        ({"steps": 10**400}, "one such as 1e6; got 1000"),
        ({"seed_episodes": 10**400}, "schedule.seed_episodes must be from 1 to 1000000000000000; got 1000"),
        ({"seed": -1}, "seed must be from 0 to 4294967295; got -1"),
        ({"seed_episodes": 0}, "schedule.seed_episodes must be at least 1; got 0"),
        ({"environments": -1}, "schedule.environments must be at least 0; got -1"),
        ({"environments": 1_000_000}, r"1,000,000 environments at once need about .* free: use fewer .--environments"),
        ({"evaluate_episodes": 1_000_000, "probes": TASKS}, "2,000,000 environments .*use fewer .--evaluate-episodes"),
        ({"snapshot_every": 0}, "snapshot_every must be at least 1"),
        ({"size": 4}, "size is a whole number from 8"),
        ({"collect": "sometimes"}, "collect cannot be 'sometimes'"),
    ],
)
def test_mistakes_are_sentences_and_leave_nothing(options, sentence, tmp_path, monkeypatch):
    monkeypatch.setattr(world_module, "bytes_of_one", lambda config: 10**7)
    options = {"world": "cartpole", "preset": "tiny", "out": tmp_path / "run"} | options
    with pytest.raises(ValueError, match=sentence):
        p2e.explore(**options)
    assert not (tmp_path / "run").exists()


def test_what_environments_need_is_about_what_they_take(monkeypatch, processes):
    each = bytes_of_one(WORLD)
    assert 2e6 < each < 50e6  # 12.5 MB were measured
    monkeypatch.setattr(world_module, "host_room", lambda: 100 * each + each // 2)
    check_room(WORLD, 90, "--environments")
    with pytest.raises(TooLittleMemoryError, match="120 environments"):
        check_room(WORLD, 120, "--environments")
    monkeypatch.setattr(world_module, "bytes_of_one", None)
    check_room(WORLD, 16, "--environments")  # not even asked


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (overlap(), r"Replay: .* steps need .*Explore for fewer steps"),
        (nano_config(environments=40), r"Most are for 40 environments at once: use fewer \(--environments\)"),
    ],
)
def test_a_run_that_cannot_fit_says_so_before_it_starts(tmp_path, monkeypatch, config, sentence):
    monkeypatch.setattr("plan2explore.replay.buffer.host_room", lambda: 1000)
    with pytest.raises(TooLittleMemoryError, match=sentence):
        nano_explore(tmp_path / "run", config)
    assert not (tmp_path / "run").exists()


def test_a_batch_that_cannot_fit_is_refused_before_anything_is_made(tmp_path):
    agent = replace(PRESETS["tiny"], batch=10**9)
    with pytest.raises(TooLittleMemoryError, match=r"A batch of 1,000,000,000 sequences of .* free: use smaller ones"):
        p2e.explore("cartpole", 5000, tmp_path / "run", config=replace(configure("cartpole", "tiny"), agent=agent))
    assert not (tmp_path / "run").exists()


def test_a_run_that_fails_at_its_start_does_not_stand_in_the_way(tmp_path, monkeypatch):
    def broken(*_):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(module, "Learner", broken)
    with pytest.raises(RuntimeError, match="out of memory"):
        nano_explore(tmp_path / "run", overlap())
    assert not (tmp_path / "run").exists()


def test_a_probes_reward_that_was_changed_is_refused(overlapped, tmp_path):
    path = shutil.copytree(overlapped.run.path, tmp_path / "run", ignore=shutil.ignore_patterns("adapt"))
    content = json.loads((path / "run.json").read_text())
    assert content["settings"]["reward_digests"] == {TASKS[0]: None, TASKS[1]: None}
    own = p2e.Task(TASKS[0], reward=lambda physics: 1.0)
    content["settings"] |= {"own_rewards": [TASKS[0]], "reward_digests": {TASKS[0]: "that of before"}}
    (path / "run.json").write_text(json.dumps(content))
    with pytest.raises(RunError, match="has learned from another version of the reward 'cartpole_balance'"):
        p2e.explore(path, probes=[own])
    content["settings"]["reward_digests"][TASKS[0]] = own.digest
    (path / "run.json").write_text(json.dumps(content))
    p2e.explore(path, probes=[own])  # it is finished


def test_an_option_that_does_not_exist_is_said():
    with pytest.raises(TypeError, match="no option 'colour': choose among action_repeat, block, camera, checkpoint_seconds"):
        configure("walker", colour="red")


def test_presets_methods_and_options_make_a_configuration():
    config = configure("walker", "small", "max", 3, obs="both", seed_episodes=2)
    assert config.agent.intrinsic.objective == "max" and config.agent.model == PRESETS["small"].model
    assert (config.world.world, config.world.obs, config.schedule.seed_episodes, config.seed) == ("walker", "both", 2, 3)
    assert environments(nano_config(collect="in-turn", environments=0), 10**6) == 1
    assert environments(nano_config(environments=0), 10**6) == 1  # one core in these tests
    assert environments(nano_config(environments=3), 10) == 3


def test_a_world_with_a_task_follows_it():
    assert [task.name for task in module._own_task(configure("walker_walk", method="dreamer"))] == ["walker_walk"]
    assert module._own_task(configure("walker")) == [] == module._own_task(configure("gymnasium:Pendulum-v1"))


def test_worlds_and_their_tasks():
    assert inspect_world(WORLD).frames == 11 and inspect_world(WORLD).proprio == 5
    gym = inspect_world(nano_config("gymnasium:Pendulum-v1").world)
    assert (gym.episode, gym.frames, gym.renderer) == (200, 3, "none")
    discrete = inspect_world(nano_config("gymnasium:CartPole-v1").world)
    assert (discrete.action, discrete.discrete, discrete.terminates) == (2, (2,), True)
    spaces = agent_spaces(WORLD, discrete, 1)
    assert (spaces.action, spaces.discrete, spaces.terminates) == (2, (2,), True)
    assert not inspect_world(WORLD).terminates and inspect_world(WORLD).discrete == ()
    with pytest.raises(ValueError, match="belongs to cartpole; the world here is gymnasium:Pendulum-v1"):
        check_tasks("gymnasium:Pendulum-v1", [p2e.Task.named(TASKS[0])])
    own = make_task(nano_config("cartpole_swingup").world, p2e.Task("one", reward=lambda physics: 1.0))
    own.reset(seed=0)
    assert own.name == "cartpole" and own.step(own.action_space.sample())[1] == 100.0


def test_an_environment_that_cannot_draw_is_evaluated_without_a_video(monkeypatch, caplog):
    monkeypatch.setattr(GymnasiumEnv, "_draw", lambda self: 1 / 0)
    task = p2e.Task("one", reward=lambda observation, action, after: 1.0)
    config = nano_config("gymnasium:Pendulum-v1").world
    env = make_task(config, task)
    assert not env.reset(seed=0)[0]["image"].any() and "its videos stay black" in caplog.text
    with pytest.raises(ZeroDivisionError):
        inspect_world(replace(config, obs="pixels"))


# --- Worlds whose episodes terminate ---


def fewer(observation, action, following):
    return float(observation[0] - following[0])


@pytest.mark.parametrize("collect", ["overlap", "in-turn"])
def test_a_world_whose_episodes_end_early_is_explored_and_adapted(collect, tmp_path, monkeypatch):
    """Most episodes are shorter than a training sequence, and no two environments end theirs together."""
    config = nano_config("gymnasium:leaving:Leaving-v0", collect=collect, environments=2)
    config = replace(config, world=replace(config.world, action_repeat=1))
    probes = [p2e.Task(name, reward=fewer) for name in TASKS]

    def explore(name, config):
        return p2e.explore(config.world.world, 2200, tmp_path / name, probes=probes, config=config)

    run = explore("run", config)
    assert progress_of(run)["updates"] == 110 and evaluations(run)
    episodes = list(run.episodes())
    lengths = {len(episode) for episode in episodes}
    assert min(lengths) == 3 and max(lengths) == 9
    for episode in episodes:
        assert episode.meta["terminated"] is bool(episode.proprio[-1, 0] == 0)  # the others met the limit of 8 steps
    assert {episode.meta["terminated"] for episode in episodes} == {False, True}
    policy = nano_adapt(run, probes[0], shots=2, environments=2, collect=collect)
    assert np.isfinite([line["mean"] for line in evaluations(policy.path)]).all()
    if collect == "in-turn":  # rounds of unequal episodes resume with the same bits
        config = replace(config, schedule=replace(config.schedule, evaluate_episodes=0))
        with monkeypatch.context() as patch:
            update = Training._update

            def stopped(training):
                training.signals.stop = signal.SIGINT if training.updates == 100 else None
                update(training)

            patch.setattr(Training, "_update", stopped)
            with pytest.raises(Stopped):
                explore("stopped", config)
        assert_same_arrays(parameters(explore("stopped", config)), parameters(run))


# --- Untrusted folders ---


@pytest.fixture
def untrusted(overlapped, tmp_path, monkeypatch):
    """Makes a copy of a run with other settings in a folder that holds a trap."""
    trap = tmp_path / "TRAP.py"
    trap.write_text(f"import pathlib; pathlib.Path({str(tmp_path / 'sprung')!r}).touch()\ndef reward(physics): return 0.0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    path = shutil.copytree(overlapped.run.path, tmp_path / "untrusted", ignore=shutil.ignore_patterns("adapt"))

    def change(settings):
        content = json.loads((path / "run.json").read_text())
        for name, value in settings.items():
            content["settings"][name] = content["settings"][name] | value if isinstance(value, dict) else value
        (path / "run.json").write_text(json.dumps(content))
        return path

    yield change
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"config": {"probes": ["TRAP.py:reward"]}}, "no world or task 'TRAP.py:reward'"),
        ({"config": {"probes": ["TRAP.py:reward"]}, "own_rewards": ["TRAP.py:reward"]}, "your own code and not in"),
        ({"config": {"world": {"world": "gymnasium:TRAP:X-v0"}}}, "in the Python module 'TRAP'"),
        ({"config": {"world": {"world": 3}}}, "world.world cannot be 3"),
        ({"config": {"hooks": ["TRAP"]}}, "no setting hooks"),
        ({"config": {"seed": "__import__('TRAP')"}}, "seed cannot be"),
        ({"config": ["TRAP"]}, "'config' is .*, not dict"),
        ({"goal": "1e6"}, "'goal' is '1e6', not int"),
        ({"goal": 0}, "'goal' is 0, not int above 0"),
        ({"goal": 10**400}, "run.json is damaged"),
        ({"environments": -2}, "'environments' is -2, not int above 0"),
        ({"environments": [2]}, r"'environments' is \[2\], not int"),
        ({"own_rewards": "TRAP"}, "'own_rewards' is 'TRAP', not list"),
    ],
)
def test_a_hostile_run_executes_nothing_and_ends_in_a_sentence(untrusted, settings, sentence):
    path = untrusted(settings)
    with pytest.raises(ValueError, match=sentence):
        p2e.explore(path, 1_000_000_000 if "goal" in settings else None)
    if "config" in settings and "probes" not in settings["config"]:
        with pytest.raises(ValueError, match=sentence):
            p2e.Run(path).adapt(TASKS[0])


def test_an_untrusted_episode_names_no_module(untrusted):
    path = untrusted({})
    episode = next(p2e.Run(path).episodes())
    hostile = p2e.Episode(**{**vars(episode), "world": "gymnasium:TRAP:X-v0"})
    with pytest.raises(ValueError, match="The world of an episode is in the Python module 'TRAP'"):
        p2e.relabel(hostile, p2e.Task("own", reward=lambda *_: 0.0))
    save_episode(EpisodeFolder(path / "episodes", read_only=True).path_of(0), hostile)
    for attempt in (lambda: p2e.explore(path, 6000), lambda: p2e.Run(path).adapt(TASKS[0])):
        with pytest.raises(RunError, match=r"000000.npz is an episode of 'gymnasium:TRAP:X-v0'"):
            attempt()


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("rounds", None, "its rounds is None; a whole number from 0"),
        ("rounds", -1, "its rounds is -1"),
        ("env_steps", 10**9, "its env_steps is 1000000000; a whole number from 0 to 8,000"),
        ("env_steps", 10**30, "it is not a JSON object"),
        ("updates", 10**9, "its updates is"),
        ("updates", 100, "its arrays are of update 250"),
        ("evaluated_updates", 1e3, "its evaluated_updates is 1000.0"),
    ],
)
def test_a_checkpoint_whose_counters_cannot_be_is_refused(untrusted, name, value, sentence):
    path = untrusted({})
    for file in (path / "checkpoints").glob("*.json"):
        content = json.loads(file.read_text())
        content["meta"][name] = value
        file.write_text(json.dumps(content))
    before = digests(path)
    with pytest.raises(BadCheckpoint, match=rf"00000250.json .*{sentence}.*No checkpoint, episode, .* was touched"):
        p2e.explore(path, 6000)
    assert {name for name, digest in digests(path).items() if before.get(name) != digest} <= {"lock"}


@pytest.mark.parametrize(("preset", "slow"), [("paper", True), ("small", False)])
def test_the_papers_sizes_on_a_cpu_are_said_to_be_slow(preset, slow, capsys):
    config = configure("cartpole", preset)
    module.plan_memory(config, inspect_world(config.world), 10_000, 1)
    assert (module.SLOW in capsys.readouterr().err) == slow


def test_a_model_that_nothing_here_can_draw_is_evaluated_with_black_videos(monkeypatch, caplog):
    def refuse(*_):
        raise RuntimeError("no OpenGL")

    monkeypatch.setattr(base, "make_renderer", refuse)
    env = make_task(WORLD, p2e.Task.named("cartpole_balance"))
    assert not env.reset(seed=0)[0]["image"].any() and "no OpenGL" in caplog.text
    with pytest.raises(RuntimeError, match="no OpenGL"):
        make_task(replace(WORLD, obs="pixels"), p2e.Task.named("cartpole_balance"))


def test_coverage_of_a_maze_is_a_metric_on_the_terminal_and_in_the_report(tmp_path, capsys):
    config = replace(nano_config("maze_u", environments=1), probes=())
    config = replace(config, world=replace(config.world, action_repeat=20))
    run = p2e.explore("maze_u", 3000, tmp_path / "run", config=config)
    shares = [line["coverage"] for line in run.metrics() if "coverage" in line]
    states = np.concatenate([episode.state for episode in run.episodes()])
    assert shares and shares == sorted(shares) and 0 < shares[-1] <= 1
    assert shares[-1] == maze.coverage("maze_u", states)
    assert f"updates, {shares[-1]:.0%} of the maze in" in capsys.readouterr().err
    page = p2e.write_report(run.path).read_text()
    assert "Coverage of the maze" in page and "share of the free cells of the maze visited so far" in page
    p2e.explore(run.path, 4000)  # what was visited before counts
    assert run.metrics()[-1]["coverage"] >= shares[-1]
