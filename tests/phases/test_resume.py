"""Nothing lost: killed, stopped, damaged or out of space, a run is resumed by the same command."""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from episodes import record_random
from nano import (
    TASKS,
    assert_same_arrays,
    command,
    dies_at,
    digests,
    evaluations,
    in_turn,
    nano_adapt,
    nano_explore,
    overlap,
    parameters,
    progress_of,
)
from older import make_older
from patience import PATIENCE

import plan2explore as p2e
from plan2explore.cli import main
from plan2explore.envs import VectorEnv
from plan2explore.phases.callbacks import Evaluations, Saver, Stopped
from plan2explore.phases.collect import Collector
from plan2explore.phases.run import Run
from plan2explore.phases.training import Training
from plan2explore.replay.files import EpisodeFolder
from plan2explore.runs.checkpoint import BadCheckpoint, Checkpoints, unpack_params
from plan2explore.runs.folder import RunError

pytestmark = pytest.mark.xdist_group("resume")
HERE = Path(__file__).parent
ENVIRONMENT = {"PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), str(HERE.parent), str(HERE)])}
KILLED = """
from pathlib import Path
from nano import *
from sizes import quick
from plan2explore.phases.training import Training
with quick(), dies_at(Training, "_update", 13, process=True):
    nano_explore(Path({out!r}), in_turn(checkpoint_seconds=0.0))
"""
STOPPED_TWICE = """
import os, signal, time
from pathlib import Path
from nano import *
from plan2explore.phases.training import Training

def start(self, first):
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGINT)

Training._compile_early = lambda self: time.sleep(30_000)
Training._start_collecting = start
nano_explore(Path({out!r}), overlap())
"""


def test_a_run_of_version_0_1_resumes_and_adapts(taken_in_turn, copy_of):
    """Its settings have other names, and its checkpoints are of format 1."""
    run = copy_of(taken_in_turn.run)
    make_older(run.path)
    policy = nano_adapt(run, at=2000)
    model = unpack_params(Checkpoints(taken_in_turn.run.path / "snapshots", keep=None).load(2000)[0])["model"]
    np.testing.assert_array_equal(policy.state.networks["model"].params, model)
    before = parameters(run)
    assert_same_arrays(unpack_params(before), unpack_params(parameters(taken_in_turn.run)))
    resumed = p2e.explore(run.path, 6000)
    assert (progress_of(resumed)["env_steps"], progress_of(resumed)["updates"]) == (6000, 300)
    after = parameters(resumed)
    assert int(after["update"]) == 300 and after["model/opt_state/count"].tolist() == [300]
    assert all(np.any(after[name] != before[name]) for name in after if name.endswith("/params"))


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    """Runs code in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip


def test_a_second_ctrl_c_does_not_wait_for_the_compiler(tmp_path):
    result = run_python(STOPPED_TWICE.format(out=str(tmp_path / "run")))
    assert result.returncode == 130, result.stderr
    assert "saving everything first, once the compiler is done (a second Ctrl-C stops at once)" in result.stderr


def assert_same_runs(ours: Run, theirs: Run) -> None:
    assert_same_arrays(parameters(ours), parameters(theirs))
    assert evaluations(ours) == evaluations(theirs) and ours.snapshots == theirs.snapshots
    for one, other in zip(ours.episodes(), theirs.episodes(), strict=True):
        assert one.meta == other.meta and one.state.tobytes() == other.state.tobytes()


def test_in_turn_killed_and_resumed_ends_with_the_same_bits(taken_in_turn, tmp_path):
    """Killed after the third episode, and, started anew after the second, after the fourth and its evaluation."""
    out = tmp_path / "run"
    result = run_python(KILLED.format(out=str(out)))
    assert result.returncode == -signal.SIGKILL, result.stderr
    for episodes, evaluated in ((3, 2), (4, 4)):
        assert len(EpisodeFolder(out / "episodes", read_only=True).numbers()) == episodes
        assert len(evaluations(out)) == evaluated and Checkpoints(out / "checkpoints").steps()
        if episodes == 3:
            with dies_at(Saver, "snapshot", 1):
                nano_explore(out, in_turn(checkpoint_seconds=0.0))
    assert_same_runs(nano_explore(out, in_turn(checkpoint_seconds=0.0)), taken_in_turn.run)


def test_in_turn_killed_before_its_first_checkpoint_ends_with_the_same_bits(taken_in_turn, tmp_path):
    with dies_at(Collector, "send", 34):  # in the fourth episode
        nano_explore(tmp_path / "run", in_turn(checkpoint_seconds=1e6))
    assert len(EpisodeFolder(tmp_path / "run" / "episodes", read_only=True).numbers()) == 3
    assert not Checkpoints(tmp_path / "run" / "checkpoints").steps()
    assert_same_runs(nano_explore(tmp_path / "run", in_turn(checkpoint_seconds=1e6)), taken_in_turn.run)


SHOTS = {"shots": 3, "updates_per_episode": 20, "collect": "in-turn", "checkpoint_seconds": 0.0}


def test_few_shot_killed_and_resumed_ends_with_the_same_bits(taken_in_turn, copy_of):
    """Killed in the second of three rounds: two updates of imagination and two of the first come before."""
    whole, broken = (copy_of(taken_in_turn.run, name) for name in ("whole", "broken"))
    with dies_at(Training, "_update", 5):
        nano_adapt(broken, **SHOTS)
    place = broken.folder.adapt / "cartpole_balance-3-shots"
    episodes = EpisodeFolder(place / "episodes", read_only=True)
    assert len(episodes.numbers()) == 2
    resumed, never_killed = (nano_adapt(run, **SHOTS) for run in (broken, whole))
    assert resumed.path == place and len(episodes.numbers()) == 3
    assert_same_arrays(parameters(resumed.path), parameters(never_killed.path))
    assert evaluations(resumed.path) == evaluations(never_killed.path)


def evaluated_at(run: Run) -> list[int]:
    return [line["env_steps"] for line in evaluations(run) if line["task"] == TASKS[0]]


def test_overlap_resumes_with_all_finished_episodes_and_evaluates_at_once(tmp_path, capsys):
    """Killed in the third episodes, during the evaluation of 4000; the checkpoint, and the agent in it, are of 4800."""
    out = tmp_path / "run"
    with dies_at(Collector, "send", 27):
        nano_explore(out, overlap(checkpoint_seconds=0.0))
    before = [episode.meta["seed"] for episode in Run(out).episodes()]
    run = nano_explore(out, overlap(checkpoint_seconds=0.0))
    assert [episode.meta["seed"] for episode in run.episodes()] == before and len(set(before)) == 4
    assert progress_of(run)["env_steps"] == 5000 and progress_of(run)["updates"] == 250
    assert evaluated_at(run) == [2000, 4800, 5000] and run.snapshots == [2000, 4000, 5000]
    assert "800 env steps were of unfinished episodes" in capsys.readouterr().err
    more = p2e.explore(out, 8000)
    seeds = [episode.meta["seed"] for episode in more.episodes()]
    assert len(seeds) == len(set(seeds)) == 8
    assert progress_of(more)["updates"] == 400


def test_an_evaluation_that_was_killed_at_the_goal_says_the_env_steps_of_its_agent(tmp_path, capsys):
    with dies_at(Evaluations, "keep", 2):  # begun at 4000
        nano_explore(tmp_path / "run", overlap(checkpoint_seconds=0.0))
    run = nano_explore(tmp_path / "run", overlap(checkpoint_seconds=0.0))
    assert evaluated_at(run) == [2000, 5000] and run.snapshots == [2000, 4000, 5000]
    assert "of unfinished episodes" not in capsys.readouterr().err


def test_the_last_updates_are_made_if_it_was_killed_before_them_at_the_goal(overlapped, copy_of):
    """Episodes on disk have 4000 of the 5000 env steps; the others were of episodes that never ended."""
    run = copy_of(overlapped.run)
    checkpoints = Checkpoints(run.folder.checkpoints)
    arrays, meta = checkpoints.load(250)
    for file in run.folder.checkpoints.iterdir():
        file.unlink()
    earlier = {"updates": 240, "evaluations": 2, "evaluated_at": 4000, "evaluated_updates": 200}
    checkpoints.save(240, arrays | {"update": np.full_like(arrays["update"], 240)}, meta | earlier)
    again = nano_explore(run.path, overlap())
    assert (progress_of(again)["updates"], progress_of(again)["env_steps"]) == (250, 5000)
    assert [line["updates"] for line in evaluations(again) if line["task"] == TASKS[0]][-1] == 250
    assert len(list(again.episodes())) == 4  # nothing was collected


# --- What is there already ---


def started_nothing(monkeypatch) -> None:
    def refuse(*_, **__):
        raise AssertionError("something was done")

    monkeypatch.setattr(VectorEnv, "__init__", refuse)
    monkeypatch.setattr(Training, "_update", refuse)


@pytest.mark.parametrize("which", ["taken_in_turn", "overlapped"])
def test_the_same_command_on_a_finished_run_does_nothing(which, request, copy_of, monkeypatch):
    run = copy_of(request.getfixturevalue(which).run)
    before = parameters(run), evaluations(run), run.snapshots, run.metrics()
    started_nothing(monkeypatch)
    again = nano_explore(run.path, in_turn() if which == "taken_in_turn" else overlap())
    assert_same_arrays(parameters(again), before[0])
    assert (evaluations(again), again.snapshots, again.metrics()) == before[1:]


def test_a_finished_run_that_is_politely_killed_is_finished_still(overlapped, copy_of, monkeypatch):
    run, fill_replay = copy_of(overlapped.run), Training.fill_replay

    def stop(training):
        os.kill(os.getpid(), signal.SIGTERM)
        return fill_replay(training)

    monkeypatch.setattr(Training, "fill_replay", stop)
    snapshots = Checkpoints(run.folder.snapshots, keep=None)
    before, earlier = progress_of(run), snapshots.load(4000)[0]
    with pytest.raises(Stopped) as stopped:
        nano_explore(run.path, overlap())
    assert stopped.value.status == 128 + signal.SIGTERM
    assert progress_of(run) == before and run.snapshots == [2000, 4000, 5000]
    assert_same_arrays(snapshots.load(4000)[0], earlier)


def test_more_steps_continue_as_if_it_had_never_ended(taken_in_turn, tmp_path):
    nano_explore(tmp_path / "run", in_turn(evaluate_episodes=0), 3000)
    run = p2e.explore(tmp_path / "run", 5000)
    assert_same_arrays(parameters(run), parameters(taken_in_turn.run))
    assert run.folder.settings["goal"] == 5000
    with pytest.raises(RunError, match="was to have 5,000 env steps; 4,000 would be fewer"):
        p2e.explore(tmp_path / "run", 4000)


def test_other_settings_are_refused_and_named(overlapped):
    path = overlapped.run.path
    with pytest.raises(RunError, match=r"schedule.updates_per_episode: 50, not 60") as error:
        nano_explore(path, overlap(updates_per_episode=60))
    assert "choose another --out" in str(error.value)
    with pytest.raises(RunError, match=r"probes: .*cartpole_balance.*, not"):
        p2e.explore("cartpole", 5000, path, probes=TASKS[:1], config=overlap())
    with pytest.raises(RunError, match="has its settings already: method cannot be changed"):
        p2e.explore(path, 6000, method="random")


def test_damaged_files_are_named_set_aside_and_survived(taken_in_turn, copy_of, caplog):
    run = copy_of(taken_in_turn.run)
    episode = run.folder.episodes / "000001.npz"
    episode.write_bytes(episode.read_bytes()[:20_000])
    checkpoints = Checkpoints(run.folder.checkpoints)
    older, meta = checkpoints.load(250)
    older |= {"update": np.full_like(older["update"], 240)}
    checkpoints.save(240, older, meta | {"updates": 240, "evaluated_updates": 200})
    newest = next(run.folder.checkpoints.glob("0000000250*.safetensors"))
    newest.write_bytes(b"\0" * newest.stat().st_size)
    again = p2e.explore(run.path, 6000)
    assert "000001.npz" in caplog.text and "0000000250" in caplog.text
    assert (run.folder.episodes / "set-aside" / "000001.npz").exists()
    assert list((run.folder.checkpoints / "set-aside").iterdir())
    assert progress_of(again)["env_steps"] == 6000 and progress_of(again)["updates"] == 300
    assert EpisodeFolder(run.folder.episodes, read_only=True).numbers() == [0, 2, 3, 4, 5, 6]


def assert_untouched(path, before):
    assert {name for name, digest in digests(path).items() if before.get(name) != digest} <= {"lock"}


def test_a_run_without_a_good_checkpoint_is_refused_and_keeps_everything(taken_in_turn, copy_of):
    run = copy_of(taken_in_turn.run)
    arrays = list(run.folder.checkpoints.glob("*.safetensors"))
    good = {file: file.read_bytes() for file in arrays}
    for file in arrays:
        file.write_bytes(b"short")
    before = digests(run.path)
    for _ in range(2):
        with pytest.raises(BadCheckpoint, match=r"No checkpoint in .* can be read.*was touched\. Put back a copy"):
            nano_explore(run.path, in_turn(), 6000)
        assert_untouched(run.path, before)
    for file, data in good.items():
        file.write_bytes(data)
    assert_same_arrays(parameters(nano_explore(run.path, in_turn())), parameters(taken_in_turn.run))
    assert evaluations(run) == evaluations(taken_in_turn.run)


def test_an_episode_of_a_round_to_come_that_is_damaged_is_played_again(taken_in_turn, copy_of, caplog, capsys):
    run = copy_of(taken_in_turn.run)
    for file in run.folder.checkpoints.iterdir():  # as if it had been killed before the first
        file.unlink()
    for number in (0, 2):
        file = run.folder.episodes / f"{number:06}.npz"
        file.write_bytes(file.read_bytes()[:-100])
    again = nano_explore(run.path, in_turn())
    assert "There is no checkpoint: learning starts anew, with the 5 episodes" in capsys.readouterr().err
    assert_same_arrays(parameters(again), parameters(taken_in_turn.run))
    assert evaluations(again) == evaluations(taken_in_turn.run)
    assert "000000.npz" in caplog.text and (run.folder.episodes / "set-aside" / "000000.npz").exists()


def test_an_episode_of_another_world_is_refused(taken_in_turn, copy_of):
    run = copy_of(taken_in_turn.run)
    other = record_random("pendulum", size=8, action_repeat=100)
    EpisodeFolder(run.folder.episodes).save(3, other)
    with pytest.raises(RunError, match=r"000003.npz is an episode of 'pendulum'; this run is in 'cartpole'"):
        p2e.explore(run.path, 6000)
    assert Run(run.path).folder.settings == run.folder.settings


def test_more_steps_that_are_refused_change_nothing(taken_in_turn, copy_of, monkeypatch):
    run = copy_of(taken_in_turn.run)
    checkpoints = Checkpoints(run.folder.checkpoints)
    arrays, meta = checkpoints.load(250)
    checkpoints.save(250, arrays, meta | {"evaluations": 2})  # as if it had been killed soon after the last
    before = digests(run.path)
    monkeypatch.setitem(sys.modules, "wandb", None)  # as if it were not installed
    with pytest.raises(RunError, match="Weights & Biases is not installed"):
        p2e.explore(run.path, 6000, wandb=True)
    assert_untouched(run.path, before)


# --- Signals ---


def wait_for(condition, what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"nothing came of {what}"
        time.sleep(0.05)


def children(process: int) -> list[int]:
    """Process numbers of those that a process started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[1]) == process:
                found.append(int(stat.parent.name))
        except OSError:
            continue  # it ended this moment
    return found


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_ctrl_c_saves_and_the_same_command_resumes_and_so_does_a_reader_that_leaves(tmp_path, capsys):
    """As `| tee FILE` and `| head` leave: the first is ended by Ctrl-C too."""
    out, said = tmp_path / "run", tmp_path / "said"
    arguments = command(out, overlap(checkpoint_seconds=1e6, evaluate_episodes=0), steps=1_000_000)
    checkpoints, saved = Checkpoints(out / "checkpoints"), [0]
    with contextlib.ExitStack() as stack:

        def start(stdout: Any, stderr: Any) -> subprocess.Popen[bytes]:
            lines = len(Run(out).metrics()) if out.exists() else 0
            process = subprocess.Popen(
                [sys.executable, "-m", "plan2explore", *arguments],
                env=os.environ | ENVIRONMENT, stdout=stdout, stderr=stderr,
            )  # fmt: skip
            stack.callback(process.kill)
            wait_for(lambda: (out / "metrics.jsonl").exists() and len(Run(out).metrics()) > lines, "learning")
            return process

        first = start(None, stack.enter_context(said.open("w")))
        workers = children(first.pid)
        with pytest.raises(SystemExit) as refused:
            main(arguments)
        assert refused.value.code == 2 and f"is being written by process {first.pid}" in capsys.readouterr().err
        assert workers and not checkpoints.steps()
        first.send_signal(signal.SIGINT)
        assert first.wait(PATIENCE) == 130 and "rerun the command to resume" in said.read_text()
        wait_for(lambda: not any(map(is_alive, workers)), "the end of the workers")
        saved += checkpoints.steps()
        for ctrl_c in (True, False):
            process = start(subprocess.PIPE, subprocess.STDOUT)
            process.stdout.close()
            if ctrl_c:
                process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 128 + signal.SIGPIPE
            saved.append(checkpoints.steps()[-1])
    assert saved == sorted(set(saved)) and len(saved) == 4 and Run(out).snapshots


# --- A full disk ---


def test_a_full_disk_is_said_and_nothing_before_is_lost(taken_in_turn, tmp_path):
    mounts_alone = ["unshare", "--user", "--map-root-user", "--mount"]
    trial = [*mounts_alone, "mount", "-t", "tmpfs", "none", str(tmp_path)]
    may = shutil.which("unshare") and subprocess.run(trial, capture_output=True, check=False).returncode == 0
    start, kind = (mounts_alone, "mounted") if may else ([], "counted")
    result = subprocess.run(
        [*start, sys.executable, str(HERE / "full_disk.py"), str(tmp_path), kind, "180", "330"],
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    expected = hashlib.sha256(b"".join(array.tobytes() for array in parameters(taken_in_turn.run).values())).hexdigest()
    for found in json.loads(result.stdout.splitlines()[-1]):
        assert found["status"] == 2
        assert "The disk is full" in found["said"] and "make room for" in found["said"]
        assert found["loaded"] == found["episodes"] and len(found["episodes"]) >= 2
        assert found["updates"] < 250
        assert found["after"] == 0 and found["parameters"] == expected
