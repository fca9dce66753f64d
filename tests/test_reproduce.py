"""A sweep runs every cell once, resumes when it was killed, and tells which cells failed."""

import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from patience import PATIENCE
from sizes import NANO, quick

from plan2explore import reproduce as module
from plan2explore.envs import suite
from plan2explore.envs.names import EXTRA_TASKS, PAPER_TASKS, split_name
from plan2explore.phases import explore as phase
from plan2explore.phases.run import Run
from plan2explore.reproduce import OWN_START, main, paper_tasks, reproduce, world_of
from plan2explore.runs.files import read_lines
from plan2explore.runs.folder import RunFolder, hold
from plan2explore.runs.results import FEW_SHOT, OFFLINE, PROBE, SUPERVISED, read_results
from plan2explore.scale import cells

pytestmark = pytest.mark.xdist_group("reproduce")
SMALL = {
    "obs": "proprio", "size": 8, "action_repeat": 100, "collect": "in-turn", "environments": 1, "seed_episodes": 1,
    "updates_per_episode": 10, "block": 5, "evaluate_every": 2000, "evaluate_episodes": 1, "snapshot_every": 1000,
    "checkpoint_seconds": 0.0,
}  # fmt: skip
SETTINGS = {"steps": 3000, "agent": NANO, "final_episodes": 3, "updates": 10, "shots": 2, **SMALL}


def small(out, protocol="zero-shot", methods=("random",), **more):
    """A sweep of two cells that takes seconds."""
    where = {"tasks": ["cartpole_swingup"], "methods": methods, "seeds": [0, 1], "out": out}
    with quick():
        return reproduce(protocol, **(where | SETTINGS | more))


# --- The whole thing ---

KILLED = """
import itertools, os, signal
from test_reproduce import small
from plan2explore.phases.training import Training
update, calls = Training._update, itertools.count(1)
def deadly(self):
    if next(calls) == 8:  # the first cell makes 6
        os.kill(os.getpid(), signal.SIGKILL)
    return update(self)
Training._update = deadly
small({out!r})
"""


@pytest.mark.slow
def test_a_killed_sweep_resumes_and_finished_cells_are_not_run_again(tmp_path, capsys):
    paths = os.pathsep.join([str(Path(__file__).parents[1]), str(Path(__file__).parent)])
    code, environment = KILLED.format(out=str(tmp_path)), os.environ | {"PYTHONPATH": paths}
    killed = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert [line["state"] for line in read_lines(tmp_path / "cells.jsonl")] == ["explored", "finished"]
    first, second = (tmp_path / "runs" / f"random-cartpole_swingup-{seed}" for seed in (0, 1))
    made = [RunFolder.open(path).id for path in (first, second)]
    before = {file: file.stat().st_mtime_ns for file in first.rglob("*")}

    assert small(tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "[1/2] random-cartpole_swingup-0: finished before"
    assert lines[1].startswith("[2/2] random-cartpole_swingup-1: ") and "at 3,000 env steps (3 episodes)" in lines[1]
    assert {file: file.stat().st_mtime_ns for file in first.rglob("*")} == before
    assert [RunFolder.open(path).id for path in (first, second)] == made
    assert len(read_lines(second / "starts.jsonl")) == 2
    results = read_results([tmp_path / "results.csv"])  # every evaluation once, the last with as many episodes as asked for
    for seed, run in enumerate(made):
        ours = [result for result in results if result.seed == seed]
        assert {(result.task, result.method, result.protocol, result.run) for result in ours} == {
            ("cartpole_swingup", "random", PROBE, run)
        }
        assert [(result.env_steps, result.episodes) for result in ours] == [(2000, 1), (3000, 1), (3000, 3)]
        assert (
            RunFolder.open(tmp_path / "runs" / f"random-cartpole_swingup-{seed}").settings["config"]["world"]["world"]
            == "cartpole"
        )

    table = (tmp_path / "results.csv").read_bytes()
    assert small(tmp_path) == 0 and capsys.readouterr().out.count("finished before") == 2
    assert (tmp_path / "results.csv").read_bytes() == table


@pytest.mark.slow
def test_few_shot_explores_and_adapts(tmp_path, capsys):
    assert small(tmp_path, seeds=[0]) == 0  # zero-shot first: few-shot continues from its exploration
    run = tmp_path / "runs" / "random-cartpole_swingup-0"
    before = (run / "evaluations.jsonl").read_bytes()
    few_shot = {"protocol": "few-shot", "seeds": [0], "final_episodes": 1}
    assert small(tmp_path, **few_shot) == 0
    assert (run / "evaluations.jsonl").read_bytes() == before and len(read_lines(run / "starts.jsonl")) == 1
    results = read_results([tmp_path])
    few = [result for result in results if result.protocol == FEW_SHOT]
    assert {result.method for result in few} == {"random"} and max(result.env_steps for result in few) == 5000
    assert [result.env_steps for result in results if result.protocol == OFFLINE][-1] == 3000
    capsys.readouterr()
    assert small(tmp_path, **few_shot) == 0
    assert capsys.readouterr().out.count("finished before") == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_crafter_is_scored_by_the_achievements_of_its_episodes(tmp_path, capsys, monkeypatch):
    """An agent that only acts, in short episodes; afterwards the score is worked out anew from what was observed."""
    pytest.importorskip("crafter")
    monkeypatch.setattr(phase, "EPISODE", 20)  # env steps of random actions, so that the agent acts too
    sweep = {
        "protocol": "crafter", "tasks": (), "seeds": [0], "steps": 120, "obs": "pixels", "size": 16, "collect": "overlap",
        "action_repeat": 2, "updates_per_episode": 0, "env_arg": ("max_episode_steps=60",),
    }  # fmt: skip
    assert small(tmp_path, **sweep) == 0
    said = capsys.readouterr().out
    assert "plan2explore (DreamerV2), scoreboard" in said and "random, here" in said
    (result,), run = read_results([tmp_path / "results.csv"]), Run(tmp_path / "runs" / "random-crafter-0")
    episodes = list(run.episodes())
    assert {episode.meta["action_repeat"] for episode in episodes} == {1}
    unlocked = np.mean([(episode.proprio[:, :22] > 0).any(0) for episode in episodes], 0) * 100
    lines = (run.path / "achievements.csv").read_text().splitlines()
    assert lines[0] == "achievement,percent" and lines[1].startswith("collect_coal,") and len(lines) == 23
    assert [float(line.split(",")[1]) for line in lines[1:]] == pytest.approx(unlocked, abs=1e-4)
    assert result.score == pytest.approx(np.prod(1 + unlocked) ** (1 / 22) - 1, abs=1e-3) and result.score > 0
    assert result.env_steps == sum(len(episode) - 1 for episode in episodes)
    kept = result.task, result.protocol, result.method, result.episodes, result.run
    assert kept == ("crafter", "achievements", "random", len(episodes), run.folder.id)
    assert small(tmp_path, **sweep) == 0 and "finished before" in capsys.readouterr().out
    assert small(tmp_path, **(sweep | {"steps": 180})) == 0  # the run resumes
    first, second = read_results([tmp_path])
    assert second.episodes > first.episodes and second.env_steps > first.env_steps


def test_crafter_is_explored_as_its_scoreboard_does(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(module, "run_cells", lambda out, cells, runner: asked.extend(cells) or 0)
    assert main(["crafter", "--preset", "modern-tiny", "--seeds", "3", "--out", str(tmp_path)]) == 0
    assert [cell.name for cell in asked] == ["plan2explore-crafter-3", "random-crafter-3"]
    for cell in asked:
        world = cell.config.world
        assert (world.world, world.obs, world.size, world.action_repeat) == ("gymnasium:Crafter-v1", "pixels", 64, 1)


# --- What happens around cells, without any learning ---


@pytest.fixture
def explored(monkeypatch):
    """Explorations that were asked for; each writes a run with one evaluation."""
    asked = []

    def explore(world, goal, path, probes, config):
        asked.append((path.name, world, goal, config))
        if config.agent.intrinsic.objective == "max":
            raise RuntimeError("out of memory")
        settings = {"config": asdict(config) | {"probes": [probe.name for probe in probes]}, "goal": goal}
        folder = RunFolder.open(path) if RunFolder.is_run(path) else RunFolder.create(path, "explore", settings)
        line = {"task": probes[0].name, "env_steps": goal, "mean": 5.0, "std": 1.0, "episodes": [5.0] * 10}
        with open(folder.evaluations_file, "a") as file:
            file.write(json.dumps(line) + "\n")
        return Run(path)

    monkeypatch.setattr(cells, "explore", explore)
    return asked


def test_a_cell_that_fails_is_named_and_the_others_run(tmp_path, explored, capsys):
    methods = {"methods": ("max", "random"), "seeds": [0]}
    assert small(tmp_path, **methods) == 1
    captured = capsys.readouterr()
    assert "[1/2] max-cartpole_swingup-0: failed: out of memory" in captured.out and "[2/2] random" in captured.out
    assert "1 of 2 cells failed: max-cartpole_swingup-0" in captured.err
    failed, *others = read_lines(tmp_path / "cells.jsonl")
    assert (failed["cell"], failed["state"]) == ("max-cartpole_swingup-0", "failed")
    assert failed["error"] == "RuntimeError: out of memory" and "Traceback" in failed["trace"]
    assert [line["state"] for line in others] == ["explored", "finished"]
    assert [result.method for result in read_results([tmp_path / "results.csv"])] == ["random"]
    small(tmp_path, **methods)  # what failed is tried again, what finished is not
    assert [name.split("-")[0] for name, *_ in explored] == ["max", "random", "max"]


def test_a_cell_that_another_command_has_is_left_to_it(tmp_path, explored, capsys):
    out, lock = tmp_path / "out", tmp_path / "out" / "locks" / "random-cartpole_swingup-0"
    lock.parent.mkdir(parents=True)
    with hold(lock, out):
        assert small(out) == 0
    captured = capsys.readouterr()
    assert f"[1/2] random-cartpole_swingup-0: left to process {os.getpid()} on " in captured.out
    assert "[2/2] random-cartpole_swingup-1: 5.0 at 3,000 env steps" in captured.out
    assert "1 cell of 2 left to other commands: random-cartpole_swingup-0." in captured.err
    assert small(out) == 0  # the other one has gone, be it finished or killed
    captured = capsys.readouterr()
    assert "[1/2] random-cartpole_swingup-0: 5.0 at" in captured.out and "left to" not in captured.out + captured.err
    assert [name for name, *_ in explored] == ["random-cartpole_swingup-1", "random-cartpole_swingup-0"]


def test_commands_share_a_sweep_and_run_each_cell_once(tmp_path, explored, monkeypatch, capfd):
    """Three at once: as long as one explores, the others find other cells. Locks are of open files, so threads will do."""
    quick_one, together = cells.explore, threading.Barrier(3, timeout=PATIENCE)

    def slow(*args, **kwargs):
        if len(explored) < 3:
            together.wait()  # each of the three has a cell
        return quick_one(*args, **kwargs)

    monkeypatch.setattr(cells, "explore", slow)
    sweep = {"tasks": ["cartpole_swingup"], "methods": ["random"], "seeds": range(6), "out": tmp_path, **SETTINGS}
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda _: reproduce("zero-shot", **sweep), range(3))) == [0, 0, 0]
    names = [f"random-cartpole_swingup-{seed}" for seed in range(6)]
    assert sorted(name for name, *_ in explored) == names
    lines = read_lines(tmp_path / "cells.jsonl")
    assert sorted(line["cell"] for line in lines if line["state"] == "finished") == names and len(lines) == 12
    results = read_results([tmp_path / "results.csv"])
    assert sorted(result.seed for result in results) == list(range(6))
    assert (tmp_path / "results.csv").read_text().count("\n") == 7
    assert "left to process" in capfd.readouterr().out


def test_more_steps_or_other_settings_are_not_finished_before(tmp_path, explored, capsys):
    small(tmp_path, seeds=[0])
    small(tmp_path, seeds=[0], steps=2000)  # held by the longer one
    assert len(explored) == 1
    small(tmp_path, seeds=[0], steps=4000)
    assert "failed" not in capsys.readouterr().out
    assert small(tmp_path, seeds=[0], steps=4000, updates_per_episode=20) == 1
    said = capsys.readouterr().out
    assert "-0 is a run with other settings (schedule.updates_per_episode: 10, not 20). Give the sweep the" in said
    assert "settings that the run has, or choose another --out." in said and "folder alone" not in said
    assert [goal for _, _, goal, _ in explored] == [3000, 4000]


def test_each_protocol_has_an_end_of_its_own(tmp_path, explored, capsys, monkeypatch):
    """After few-shot, zero-shot still evaluates as often as was asked; neither explores again."""
    monkeypatch.setattr(Run, "snapshots", [1000])
    monkeypatch.setattr(cells, "adapt", lambda *_, **__: None)
    for protocol, finished in (("few-shot", 0), ("zero-shot", 0), ("few-shot", 1), ("zero-shot", 1)):
        small(tmp_path, protocol=protocol, seeds=[0])
        assert capsys.readouterr().out.count("finished before") == finished
    assert len(explored) == 1


def test_settings_reach_every_cell(tmp_path, explored):
    names = {"tasks": ["cartpole_balance", "walker_run"], "methods": ("random", "dreamer"), "seeds": [4, 5]}
    small(tmp_path, gradient="stopped", **names)
    assert [name for name, *_ in explored] == [
        f"{method}-{task}-{seed}"
        for seed in (4, 5) for task in ("cartpole_balance", "walker_run") for method in ("random", "dreamer")
    ]  # fmt: skip
    assert [world for _, world, _, _ in explored[:4]] == ["cartpole_balance", "cartpole_balance", "walker", "walker_run"]
    for name, world, _, config in explored:
        assert (config.seed, config.agent.intrinsic.objective) == (int(name[-1]), name.split("-")[0])
        assert (config.world.world, config.world.obs, config.schedule.block) == (world, "proprio", 5)
        assert (config.agent.intrinsic.gradient, config.agent.model.deter) == ("stopped", 8)


def test_dreamer_gets_its_task_and_as_many_env_steps_as_others_with_their_shots(tmp_path, explored):
    assert small(tmp_path, protocol="few-shot", methods=("dreamer",), seeds=[0]) == 0
    ((_, world, goal, _),) = explored
    (result,) = read_results([tmp_path / "results.csv"])
    assert (world, goal, result.protocol, result.env_steps) == ("cartpole_swingup", 5000, SUPERVISED, 5000)


def test_ctrl_c_stops_the_sweep(tmp_path, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(cells, "explore", stopped)
    with pytest.raises(KeyboardInterrupt):
        small(tmp_path)
    assert not (tmp_path / "cells.jsonl").exists()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"tasks": ["walker_fly"]}, "no world or task 'walker_fly'"),
        ({"tasks": ["walker"]}, "a world without a task"),
        ({"tasks": ["gymnasium:Pendulum-v1"]}, "tasks of the suite"),
        ({"methods": ["magic"]}, "magic"),
        ({"methods": []}, "nothing to run"),
        ({"seeds": [1, 1]}, "once only"),
        ({"seeds": [-1]}, "seed must be from 0"),
        ({"steps": float("inf")}, "one such as 1e6; got inf"),
        ({"protocol": "many-shot"}, "zero-shot, few-shot or crafter"),
        ({"protocol": "few-shot", "shots": 0}, "at least 1 shot"),
        ({"protocol": "crafter"}, "leave out the task cartpole_swingup"),
        ({"protocol": "crafter", "tasks": [], "methods": ["dreamer"]}, "leave out the method dreamer"),
        ({"env_arg": ["a=1"]}, "takes no arguments"),
        ({"preset": "huge"}, "no preset 'huge'"),
    ],
)
def test_mistakes_are_found_before_the_first_cell(tmp_path, explored, wrong, said):
    with pytest.raises(ValueError, match=said):
        small(tmp_path, **wrong)
    assert not explored


def test_the_command_line_says_the_same(tmp_path, explored):
    flags = "zero-shot --tasks walker_walk cheetah_run --methods random --seeds 7 --steps 2e3 --preset tiny --environments 3"
    assert main([*flags.split(), "--evaluate-every", "500", "--agent.batch", "4", "--out", str(tmp_path)]) == 0
    (name, world, goal, config), (second, *_) = explored
    assert (name, world, goal, second) == ("random-walker_walk-7", "walker", 2000, "random-cheetah_run-7")
    assert (config.agent.model.deter, config.agent.batch) == (64, 4)
    assert (config.schedule.environments, config.schedule.evaluate_every) == (3, 500)
    with pytest.raises(ValueError, match="--methods random"):
        main(["zero-shot", "--agent.intrinsic.objective", "random", "--out", str(tmp_path)])


# --- Which world is explored ---


def test_without_names_the_papers_tasks_are_run():
    assert sorted(paper_tasks("zero-shot")) == sorted(PAPER_TASKS) and len(paper_tasks("few-shot")) == 8


def first_moments(domain, task):
    """States and models at the beginning of two episodes."""
    world, found = suite.load(domain, task), []
    model = world.physics.model
    arrays = [name for name in dir(model.ptr) if isinstance(getattr(model.ptr, name, None), np.ndarray)]
    for seed in (1, 2):
        world.task._random = np.random.RandomState(seed)
        world.reset()
        found += [np.array(world.physics.data.qpos), np.array(world.physics.data.qvel)]
        found += [np.array(getattr(model.ptr, name)) for name in arrays]
    return [array.tobytes() for array in found]


@pytest.mark.parametrize("task", PAPER_TASKS + EXTRA_TASKS)
def test_the_explored_world_begins_as_the_task_does(task):
    """The bare domain, unless the task's episodes begin otherwise; and never a reward for those without a task."""
    domain, name = split_name(task)
    assert (first_moments(domain, None) == first_moments(domain, name)) == (task not in OWN_START)
    assert world_of(task, "plan2explore") == (task if task in OWN_START else domain)
    assert world_of(task, "plan2explore", world_only=True) == domain
    assert world_of(task, "dreamer") == task
