"""A run's folder: made once, opened safely, written by one process at a time."""

import errno
import json
import os
import pickle
import subprocess
import sys

import pytest

from plan2explore.runs import files, folder
from plan2explore.runs.files import read_lines
from plan2explore.runs.folder import RunError, RunFolder, begin_run

SETTINGS = {"world": "walker", "steps": 1000, "probes": ("walker_walk",), "agent": {"clip": 100.0}}


@pytest.fixture
def run(tmp_path) -> RunFolder:
    return RunFolder.create(tmp_path / "runs" / "walker", "explore", SETTINGS)


def test_a_run_is_what_it_was_made(run):
    again = RunFolder.open(run.path)
    assert again.settings == run.settings == SETTINGS | {"probes": ["walker_walk"]}
    assert again.kind == "explore" and again.id == run.id and len(run.id) == 12
    assert RunFolder.is_run(run.path) and not RunFolder.is_run(run.path.parent)
    content = json.loads((run.path / "run.json").read_text())
    assert content["format"] == folder.FORMAT and content["created"].endswith("+00:00")
    run.change_settings(SETTINGS | {"steps": 5000})
    changed = RunFolder.open(run.path)
    assert run.settings["steps"] == changed.settings["steps"] == 5000 and changed.id == run.id


def test_a_run_is_not_made_twice(run):
    with pytest.raises(RunError, match=r"walker is a run already\. To resume it, give the folder alone"):
        RunFolder.create(run.path, "explore", {})
    assert RunFolder.open(run.path).settings["steps"] == 1000


def test_a_run_is_made_only_in_an_empty_folder(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunError, match=r"is no run, but it is not empty either \(thesis.tex"):
        RunFolder.create(tmp_path, "explore", {})
    assert os.listdir(tmp_path) == ["thesis.tex"]
    with pytest.raises(RunError, match=r"thesis.tex is a file"):
        RunFolder.create(tmp_path / "thesis.tex", "explore", {})
    with pytest.raises(RunError, match="explore or adapt, not 'train'"):
        RunFolder.create(tmp_path / "new", "train", {})
    with pytest.raises(ValueError, match="JSON compliant"):
        RunFolder.create(tmp_path / "new", "explore", {"rate": float("nan")})
    assert not (tmp_path / "new").exists()


def test_a_process_killed_while_making_a_run_is_no_hindrance(tmp_path):
    (tmp_path / "lock").write_text('{"process": 1}')
    (tmp_path / ".run.json.77.part").write_text('{"for')
    RunFolder.create(tmp_path, "adapt", {})
    assert sorted(os.listdir(tmp_path)) == ["lock", "run.json"]


def test_what_is_no_run_is_said(tmp_path):
    with pytest.raises(RunError, match=r"There is no folder .*nowhere"):
        RunFolder.open(tmp_path / "nowhere")
    with pytest.raises(RunError, match=r"is not a run: it has no run\.json"):
        RunFolder.open(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="file is not a folder"):
        RunFolder.open(tmp_path / "file")


def test_a_folder_of_runs_names_them(tmp_path):
    for name in ("one", "runs/a", "runs/b"):
        RunFolder.create(tmp_path / name, "explore", {})
    with pytest.raises(RunError) as error:
        RunFolder.open(tmp_path)
    named = ", ".join(str(tmp_path / name) for name in ("one", "runs/a", "runs/b"))
    assert str(error.value) == f"{tmp_path} is not a run: it has no run.json. Runs in it: {named}."
    for number in range(10):
        RunFolder.create(tmp_path / "runs" / f"c-{number}", "explore", {})
    with pytest.raises(RunError, match=r"runs/a, .*runs/c-1 and 8 more\.$"):
        RunFolder.open(tmp_path)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "is damaged"),
        (b'{"format": 1, "kind": "expl', "is damaged"),
        (b"[]", "is damaged"),
        (b"[" * 100_000, "is damaged"),
        (pickle.dumps({"format": 1}), "is damaged"),
        (b'{"format": 1, "kind": "explore", "id": "x", "settings": 3}', "no proper 'settings'"),
        (b'{"format": 1, "kind": "../..", "id": "x", "settings": {}}', "no proper 'kind'"),
        (b'{"format": 2, "version": "9.0"}', r"newer version of plan2explore \(9.0.*: update plan2explore"),
    ],
)
def test_a_damaged_or_newer_run_is_said(content, fault, tmp_path):
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(RunError, match=f"run.json .*{fault}"):
        RunFolder.open(tmp_path)
    with pytest.raises(RunError, match="is a run already"):
        RunFolder.create(tmp_path, "explore", {})


def test_a_huge_file_is_not_read(tmp_path):
    for name, size, read in (("run.json", files.LARGEST_JSON, RunFolder.open), ("lines", files.LARGEST_LINES, read_lines)):
        with open(tmp_path / name, "wb") as file:
            file.truncate(size + 1)  # takes no room on the disk
        with pytest.raises(ValueError, match=rf"{name} has {size + 1:,} bytes; at most {size:,} are read"):
            read(tmp_path if read == RunFolder.open else tmp_path / name)


@pytest.mark.parametrize(
    "name", ["run.json", "lock", "starts.jsonl", "episodes", "episodes/000000.npz", "checkpoints/set-aside"]
)
def test_a_link_out_of_a_run_is_not_followed(name, run, tmp_path):
    target = tmp_path / "target"
    target.mkdir() if "." not in name and name != "lock" else target.write_bytes((run.path / "run.json").read_bytes())
    before = target.is_file() and target.read_bytes()
    link = run.path / name
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(target)
    with pytest.raises(RunError, match=rf"{name} is a link out of .*walker, to .*target: put a copy"):
        RunFolder.open(run.path)
    assert (target.is_file() and target.read_bytes()) == before and list(tmp_path.glob("target/*")) == []


def test_a_new_run_follows_no_link_either(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "lock").symlink_to(tmp_path / "precious")
    with pytest.raises(RunError, match=r"lock is a link out of .*/run, to "):
        RunFolder.create(tmp_path / "run", "explore", {})
    assert not (tmp_path / "precious").exists()


def test_links_within_a_run_and_to_a_run_are_followed_and_pipes_are_not(run, tmp_path):
    (run.path / "latest").symlink_to("run.json")
    (run.path / "wandb").mkdir()
    (run.path / "wandb" / "debug.log").symlink_to("/nowhere")
    (tmp_path / "elsewhere").symlink_to(run.path)
    assert RunFolder.open(tmp_path / "elsewhere").id == run.id
    os.mkfifo(run.path / "metrics.jsonl")
    with pytest.raises(RunError, match=r"metrics\.jsonl is neither a file nor a folder"):
        RunFolder.open(run.path)


def test_readers_write_nothing(run):
    before = sorted(os.listdir(run.path))
    RunFolder.open(run.path)
    assert sorted(os.listdir(run.path)) == before
    (run.path / "lock").unlink()
    RunFolder.open(run.path)
    assert not (run.path / "lock").exists()


# --- One writer ---

HOLDS_THE_LOCK = """
import sys, time
from plan2explore.runs.folder import RunFolder
with RunFolder.open(sys.argv[1]).lock():
    print("locked", flush=True)
    time.sleep(60)
"""


def test_two_processes_cannot_write_and_kill_9_frees_the_lock(run):
    holder = subprocess.Popen([sys.executable, "-c", HOLDS_THE_LOCK, run.path], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(RunError, match=rf"is being written by process {holder.pid} on .+ since 20\d\d-"), run.lock():
            pass
        assert RunFolder.open(run.path).settings == run.settings, "readers do not mind"
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    with run.lock():
        assert json.loads((run.path / "lock").read_text())["process"] == os.getpid()


def test_a_lock_holds_within_a_process_too_and_errors_free_it(run):
    with run.lock(), pytest.raises(RunError, match=f"process {os.getpid()}"), RunFolder.open(run.path).lock():
        pass
    with pytest.raises(ZeroDivisionError), run.lock():
        raise ZeroDivisionError
    with run.lock():
        (run.path / "lock").write_bytes(b"\xff[")
        with pytest.raises(RunError, match="written by another process"), run.lock():
            pass
    assert (run.path / "lock").read_text() == ""


@pytest.mark.parametrize(
    ("call", "error", "fault"),
    [
        ("fcntl.flock", errno.ENOLCK, r"has no locks \(flock: No locks available\).*Put the run on a local disk"),
        ("os.open", errno.EACCES, "cannot be written: Permission denied"),
    ],
)
def test_a_place_where_no_lock_can_be_held_is_said(call, error, fault, run, monkeypatch):
    def refuse(*args):
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(call, refuse)
    with pytest.raises(RunError, match=fault), run.lock():
        pass


# --- Starts ---


def test_every_start_is_recorded(run):
    run.record_start(["plan2explore", "explore", "walker"])
    with open(run.path / "starts.jsonl", "a") as file:
        file.write('{"time": "torn')
    run.record_start(["plan2explore", "explore", str(run.path)])
    lines = files.read_lines(run.path / "starts.jsonl")
    assert [line["command"][-1] for line in lines] == ["walker", str(run.path)]
    first = lines[0]
    assert set(first["versions"]) == {"plan2explore", "python", "jax", "jaxlib", "numpy", "mujoco", "dm_control"}
    assert "none" not in first["versions"].values()
    assert first["machine"]["cores"] >= 1 and first["machine"]["memory"] > 2**28 and first["machine"]["devices"]
    assert first["commit"]


def test_a_new_run_that_comes_to_nothing_does_not_stand_in_the_way(tmp_path, capsys):
    def fail(file=None):
        with pytest.raises(ZeroDivisionError), begin_run(tmp_path / "run", "explore", SETTINGS) as run:
            run.record_start(["plan2explore"])
            run.episodes.mkdir(exist_ok=True)
            if file:
                (run.path / file).parent.mkdir(exist_ok=True)
                (run.path / file).touch()
            1 / 0  # noqa: B018

    fail()
    assert list(tmp_path.iterdir()) == [] and f"{tmp_path / 'run'} was removed" in capsys.readouterr().err
    fail("checkpoints/one")
    assert RunFolder.is_run(tmp_path / "run")
    (tmp_path / "run" / "checkpoints" / "one").unlink()
    fail()  # it was not made here
    assert RunFolder.is_run(tmp_path / "run") and capsys.readouterr().err == ""
