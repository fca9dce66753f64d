"""Nothing lost: killed, stopped, damaged or out of space, a run is resumed by the same command."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from episodes import record_random
from nano import (
    TASKS,
    assert_same_arrays,
    command,
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
from plan2explore.phases.callbacks import Stopped
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
from plan2explore.phases.callbacks import Evaluations, Saver
from plan2explore.phases.collect import Collector
from plan2explore.phases.training import Training
die_at({moment})
with quick():
    {work}
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


def test_a_second_ctrl_c_does_not_wait_for_the_compiler(tmp_path):
    result = subprocess.run(
        [sys.executable, "-c", STOPPED_TWICE.format(out=str(tmp_path / "run"))],
        env=os.environ | ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert result.returncode == 130, result.stderr
    assert "saving everything first, once the compiler is done (a second Ctrl-C stops at once)" in result.stderr


def killed(out: Path, config: str, moment: str) -> None:
    """A process that explores until it kills itself at some moment."""
    killed_at_work(f"nano_explore(Path({str(out)!r}), {config})", moment)


def killed_at_work(work: str, moment: str) -> None:
    """A process that kills itself at some moment of its work."""
    code = KILLED.format(work=work, moment=moment)
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert result.returncode == -signal.SIGKILL, result.stderr


WHILE_COLLECTING = "Collector, 'send', 34"  # the fourth episode
WHILE_TRAINING = "Training, '_update', 13"  # after the third
AFTER_EVALUATION = "Saver, 'snapshot', 1"  # after the fourth, if the process was started after the second


@pytest.mark.parametrize(
    ("seconds", "moments"),
    [(0.0, [WHILE_TRAINING, AFTER_EVALUATION]), (1e6, [WHILE_COLLECTING])],
    ids=["checkpoints", "no-checkpoints"],
)
def test_in_turn_killed_and_resumed_ends_with_the_same_bits(seconds, moments, taken_in_turn, tmp_path):
    out = tmp_path / "run"
    for moment in moments:
        killed(out, f"in_turn(checkpoint_seconds={seconds})", moment)
        assert len(EpisodeFolder(out / "episodes", read_only=True).numbers()) == (4 if moment == AFTER_EVALUATION else 3)
        assert len(evaluations(out)) == (4 if moment == AFTER_EVALUATION else 2)
        assert bool(Checkpoints(out / "checkpoints").steps()) == (seconds == 0)
    run = nano_explore(out, in_turn(checkpoint_seconds=seconds))
    assert_same_arrays(parameters(run), parameters(taken_in_turn.run))
    assert evaluations(run) == evaluations(taken_in_turn.run)
    assert run.snapshots == taken_in_turn.run.snapshots
    for ours, theirs in zip(run.episodes(), taken_in_turn.run.episodes(), strict=True):
        assert ours.meta == theirs.meta and ours.state.tobytes() == theirs.state.tobytes()


SHOTS = {"shots": 3, "updates_per_episode": 20, "collect": "in-turn", "checkpoint_seconds": 0.0}


def test_few_shot_killed_and_resumed_ends_with_the_same_bits(taken_in_turn, copy_of):
    """Killed in the second of three rounds: two updates of imagination and two of the first come before."""
    whole, broken = (copy_of(taken_in_turn.run, name) for name in ("whole", "broken"))
    killed_at_work(f"nano_adapt(Run(Path({str(broken.path)!r})), **{SHOTS})", "Training, '_update', 5")
    place = broken.folder.adapt / "cartpole_balance-3-shots"
    episodes = EpisodeFolder(place / "episodes", read_only=True)
    assert len(episodes.numbers()) == 2
    resumed, never_killed = (nano_adapt(run, **SHOTS) for run in (broken, whole))
    assert resumed.path == place and len(episodes.numbers()) == 3
    assert_same_arrays(parameters(resumed.path), parameters(never_killed.path))
    assert evaluations(resumed.path) == evaluations(never_killed.path)


def test_overlap_resumes_with_all_finished_episodes(tmp_path):
    out = tmp_path / "run"
    killed(out, "overlap(checkpoint_seconds=0.0, evaluate_episodes=0)", "Collector, 'send', 27")  # the third episodes
    before = list(Run(out).episodes())
    assert len(before) == 4
    run = nano_explore(out, overlap(checkpoint_seconds=0.0, evaluate_episodes=0))
    after = list(run.episodes())
    assert [episode.meta["seed"] for episode in after[:4]] == [episode.meta["seed"] for episode in before]
    assert len(after) == 4 and len({episode.meta["seed"] for episode in after}) == 4
    assert progress_of(run)["env_steps"] == 5000 and progress_of(run)["updates"] == 250
    more = p2e.explore(out, 8000)
    seeds = [episode.meta["seed"] for episode in more.episodes()]
    assert len(seeds) == len(set(seeds)) == 8
    assert progress_of(more)["updates"] == 400


@pytest.mark.parametrize(
    ("moment", "env_steps"),
    [("Collector, 'send', 27", [2000, 4800, 5000]), ("Evaluations, 'keep', 2", [2000, 5000])],
    ids=["exploring", "at the goal"],
)
def test_a_killed_evaluation_is_made_at_once_and_says_the_env_steps_of_its_agent(moment, env_steps, tmp_path, capsys):
    """It began at 4000; the checkpoint, and the agent in it, are of 4800 or 5000. Episodes on disk have 4000."""
    killed(tmp_path / "run", "overlap(checkpoint_seconds=0.0)", moment)
    run = nano_explore(tmp_path / "run", overlap(checkpoint_seconds=0.0))
    assert [line["env_steps"] for line in evaluations(run) if line["task"] == TASKS[0]] == env_steps
    assert run.snapshots == [2000, 4000, 5000]
    assert ("800 env steps were of unfinished episodes" in capsys.readouterr().err) == (4800 in env_steps)


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


def test_a_finished_run_that_is_stopped_is_finished_still(overlapped, copy_of, monkeypatch):
    run, fill_replay = copy_of(overlapped.run), Training.fill_replay

    def stop(training):
        training.signals.stop = signal.SIGINT
        return fill_replay(training)

    monkeypatch.setattr(Training, "fill_replay", stop)
    snapshots = Checkpoints(run.folder.snapshots, keep=None)
    before, earlier = progress_of(run), snapshots.load(4000)[0]
    with pytest.raises(Stopped):
        nano_explore(run.path, overlap())
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


class Command:
    """The command line in a process of its own."""

    def __init__(self, arguments: list[str], said: Path) -> None:
        self.said = said
        with open(said, "w") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "plan2explore", *arguments], env=os.environ | ENVIRONMENT, stderr=file
            )

    def stop(self, number: int) -> int:
        """The exit status after a signal. None of its children may outlive it."""
        workers = children(self.process.pid)
        assert workers
        self.process.send_signal(number)
        status = self.process.wait(PATIENCE)
        wait_for(lambda: not any(map(is_alive, workers)), "the end of the workers")
        return status


def test_ctrl_c_and_a_polite_kill_save_and_the_same_command_resumes(tmp_path, capsys):
    out = tmp_path / "run"
    arguments = command(out, overlap(checkpoint_seconds=1e6, evaluate_episodes=0), steps=1_000_000)
    first = Command(arguments, tmp_path / "first")
    try:
        wait_for((out / "metrics.jsonl").exists, "learning")
        with pytest.raises(SystemExit) as refused:
            main(arguments)
        assert refused.value.code == 2
        assert f"is being written by process {first.process.pid}" in capsys.readouterr().err
        assert not Checkpoints(out / "checkpoints").steps()
        assert first.stop(signal.SIGINT) == 130
        (saved,) = Checkpoints(out / "checkpoints").steps()
        assert "rerun the command to resume" in first.said.read_text()
        assert Run(out).snapshots
        second = Command(arguments, tmp_path / "second")
        wait_for(lambda: f"Resuming at update {saved:,}" in second.said.read_text(), "resuming")
        lines = len(Run(out).metrics())
        wait_for(lambda: len(Run(out).metrics()) > lines, "more learning")
        assert second.stop(signal.SIGTERM) == 143
        assert Checkpoints(out / "checkpoints").steps()[-1] > saved
    finally:
        for each in (first, locals().get("second")):
            if each and each.process.poll() is None:
                each.process.kill()


@pytest.mark.parametrize("ctrl_c", [False, True], ids=["head", "ctrl-c-ends-tee-too"])
def test_a_reader_that_leaves_saves_as_ctrl_c_does(ctrl_c, tmp_path):
    out = tmp_path / "run"
    arguments = command(out, overlap(checkpoint_seconds=1e6), steps=1_000_000)
    process = subprocess.Popen(
        [sys.executable, "-m", "plan2explore", *arguments],
        env=os.environ | ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        wait_for((out / "metrics.jsonl").exists, "learning")
        assert not Checkpoints(out / "checkpoints").steps()
        process.stdout.close()
        if ctrl_c:
            process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 128 + signal.SIGPIPE
    finally:
        process.kill()
    (saved,) = Checkpoints(out / "checkpoints").steps()
    assert saved > 0 and Run(out).snapshots


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
