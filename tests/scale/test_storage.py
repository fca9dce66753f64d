"""A sweep on object storage makes what one in a folder makes, and is resumed from there on another machine."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from nano_cells import nano_cell, results_of_run
from sizes import quick

from plan2explore.runs.checkpoint import Checkpoints
from plan2explore.runs.files import read_lines
from plan2explore.runs.folder import LockedError, RunError, RunFolder
from plan2explore.scale import cells
from plan2explore.scale import storage as module
from plan2explore.scale.board import Board
from plan2explore.scale.runner import Runner, run_cells
from plan2explore.scale.storage import Lease, Mirror, Storage, local_copy, place_of

KILLED = """
import os, signal, sys, time
from nano_cells import nano_cell
from sizes import quick
from plan2explore.phases.training import Training
from plan2explore.scale.runner import Runner, run_cells
from plan2explore.scale.storage import Mirror
copy, update = Mirror.copy, Training._update
def deadly(self):
    copy(self)
    if any("episodes/" in name for name in self.sent):  # a checkpoint is stored, and the cell is in the middle
        os.kill(os.getpid(), signal.SIGKILL)
def slow(self):
    time.sleep(0.1)
    update(self)
Mirror.copy, Training._update = deadly, slow
with quick():
    run_cells(sys.argv[1], [nano_cell(0, updates_per_episode=100)], Runner())
"""


class Broken(Exception):
    """The network's."""


@pytest.fixture
def memory(monkeypatch):
    """Storage that is this process' own, whose holders often show that they live."""
    monkeypatch.setattr(module, "BEAT", 0.05)
    storage = Storage("memory://sweep")
    yield storage
    storage.fs.rm(storage.root, recursive=True)


@pytest.mark.slow
def test_a_killed_cell_is_resumed_on_another_machine_as_if_nothing_had_happened(tmp_path, monkeypatch, capsys):
    cell, address, here = nano_cell(0, updates_per_episode=100), f"file://{tmp_path}/store", tmp_path / "here"
    paths = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1])])
    (tmp_path / "node").mkdir()
    variables = {"PYTHONPATH": paths, "TMPDIR": str(tmp_path / "node"), "JAX_PLATFORMS": "cpu"}
    killed = subprocess.run([sys.executable, "-c", KILLED, address], env=os.environ | variables, check=False)
    assert killed.returncode == -signal.SIGKILL
    store = tmp_path / "store"
    assert not (store / "cells.jsonl").exists() and 0 < len(list((store / "runs/cell-0/episodes").iterdir())) < 4
    monkeypatch.setattr(module, "BEAT", 0.2)
    monkeypatch.setattr(module, "DEAD", 2.0)
    with quick():
        assert run_cells(address, [cell], Runner()) == 0
        assert run_cells(here, [cell], Runner()) == 0
    assert results_of_run(store / "runs/cell-0") == results_of_run(here / "runs/cell-0")
    assert len(read_lines(store / "runs/cell-0/starts.jsonl")) == 2
    scores = [[line.split(",")[:7] for line in (out / "results.csv").read_text().splitlines()] for out in (store, here)]
    assert scores[0] == scores[1] and len(scores[0]) > 1
    capsys.readouterr()
    run_cells(address, [cell], Runner())
    run_cells(address, [cell, nano_cell(1)], Runner(list=True))
    assert capsys.readouterr().out.splitlines() == [
        "[1/1] cell-0: finished before", "[1/2] cell-0: finished", "[2/2] cell-1"
    ]  # fmt: skip


def test_what_cells_note_is_added_to_what_others_noted_meanwhile(memory, tmp_path):
    with memory.logs([]) as folder:
        (folder / "results.csv").write_text("task,score\na,1\n")
        with memory.logs([]) as other:
            (other / "results.csv").write_text("task,score\nb,2\n")
            (other / "cells.jsonl").write_text("{}\n")
    with memory.logs([]) as folder, open(folder / "results.csv", "a") as file:
        file.write("c,3\n")
    found = memory.read(module.LOGS)
    assert found == {"results.csv": b"task,score\nb,2\na,1\nc,3\n", "cells.jsonl": b"{}\n"}


def test_a_cell_whose_run_could_not_be_stored_is_not_finished(memory, monkeypatch):
    monkeypatch.setattr(
        cells, "run_cell", lambda out, cell: RunFolder.create(cells.path_of(out, cell), "explore", {}) and []
    )
    with monkeypatch.context() as patch, pytest.raises(Broken):
        patch.setattr(memory.fs, "put_file", Mock(side_effect=Broken))
        cells.attempt("memory://sweep", nano_cell(0))
    assert not memory.read(module.LOGS) and not memory.files("runs")
    assert str(cells.attempt("memory://sweep", nano_cell(0))) == "no score, 0 s"
    assert cells.attempt("memory://sweep", nano_cell(0)).state == "finished before"


# --- Leases ---


def test_a_lease_has_one_holder_at_a_time(memory):
    inside, most, lock = [0], [0], threading.Lock()

    def work() -> None:
        for _ in range(3):
            with Lease(memory, "cell").held(wait=True):
                with lock:
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                time.sleep(0.02)
                with lock:
                    inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    (left,) = memory.files("locks/cell")
    assert left == "locks/cell/0000000012"


def test_a_living_holder_keeps_its_lease_and_a_dead_ones_is_taken(memory, monkeypatch):
    said = f"process {os.getpid()} on"
    with Lease(memory, "cell").held(), pytest.raises(LockedError, match=said), Lease(memory, "cell").held():
        pass
    dead = Lease(memory, "cell")
    assert dead._claim(2)  # and no sign of life
    began = time.monotonic()
    with monkeypatch.context() as patch, ExitStack() as stack:
        patch.setattr(module, "DEAD", 0.5)
        lease = stack.enter_context(Lease(memory, "cell").held())
        assert lease.number == 3 and time.monotonic() - began > 0.5
        patch.undo()
        stopped = []
        monkeypatch.setattr(os, "kill", lambda process, number: stopped.append((process, number)))
        dead._renew()  # it was only slow: it stops, and writes nothing more
        assert stopped == [(os.getpid(), signal.SIGTERM)]
        with pytest.raises(RunError, match="another process may have cell"):
            dead.check()
        lease.check()


# --- What is copied ---


def save(folder, steps):
    """A checkpoint, and metrics that belong to it."""
    Checkpoints(folder).save(steps, {"x": np.full(100, steps)}, {"steps": steps})
    (folder.parent / "metrics.jsonl").write_text(f"{steps}\n")


@pytest.mark.parametrize("requests", range(6))
def test_a_copy_that_breaks_off_leaves_a_whole_checkpoint_with_what_belongs_to_it(memory, tmp_path, monkeypatch, requests):
    """Whichever of its five requests is the last."""
    run, left = tmp_path / "runs/cell", [requests]
    run.mkdir(parents=True)
    (run / "lock").write_text("")
    mirror = Mirror(memory, "runs/cell", tmp_path, Mock())
    for steps in (1, 2):
        save(run / "checkpoints", steps)
        mirror.copy()
    save(run / "checkpoints", 3)

    def breaking(work):
        def request(*args, **kwargs):
            left[0] -= 1
            if left[0] < 0:
                raise Broken
            return work(*args, **kwargs)

        return request

    with monkeypatch.context() as patch, suppress(Broken):
        for name in ("put_file", "pipe_file", "rm_file"):
            patch.setattr(memory.fs, name, breaking(getattr(memory.fs, name)))
        mirror.copy()
    memory.fetch(memory.files("runs/cell"), tmp_path / "fetched")
    fetched = tmp_path / "fetched/runs/cell"
    arrays, meta = Checkpoints(fetched / "checkpoints").load_latest()
    assert arrays["x"][0] == meta["steps"] == (2 if requests < 3 else 3) <= int((fetched / "metrics.jsonl").read_text())
    assert not (fetched / "checkpoints" / "set-aside").exists() and not (fetched / "lock").exists()
    mirror.copy()  # and the next one makes it whole
    left = [name.removeprefix("runs/cell/checkpoints/") for name in memory.files("runs/cell/checkpoints")]
    assert left == [f"000000000{steps}.{ending}" for steps in (2, 3) for ending in ("json", "safetensors")]


def test_tables_read_a_copy_without_what_they_do_not_need(memory, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    run = [f"runs/cell/{name}" for name in ("run.json", "episodes/1.npz", "checkpoints/1.json")]
    for name in ("results.csv", "locks/a/1", *run):
        memory.fs.pipe_file(memory.at(name), b"old")
    first = local_copy("memory://sweep")
    assert sorted(file.name for file in first.rglob("*.*")) == ["results.csv", "run.json"]
    memory.fs.pipe_file(memory.at("results.csv"), b"new")
    memory.fs.rm_file(memory.at("runs/cell/run.json"))
    assert local_copy("memory://sweep") == first and (first / "results.csv").read_text() == "new"
    assert sorted(file.name for file in first.rglob("*.*")) == ["results.csv"]
    assert (local_copy("memory://sweep/runs/cell", bulk=True) / "episodes/1.npz").exists()
    with pytest.raises(ValueError, match="nothing at memory://sweep/none"):
        local_copy("memory://sweep/none")


def test_the_table_of_a_sweep_shows_cells_whose_holders_live(memory, tmp_path, monkeypatch):
    lines = [{"env_steps": 1000 * i, "time": 10.0 * i, "update": 50 * i} for i in (1, 2)]
    metrics = "".join(json.dumps(line) + "\n" for line in lines).encode()
    for name in ("cell-1", "cell-2"):
        memory.fs.pipe_file(memory.at(f"runs/{name}/metrics.jsonl"), metrics)
    board = Board(tmp_path, {"one": nano_cell(1), "two": nano_cell(2)}, memory.fetch_progress)
    Lease(memory, "cell-2")._claim(1)  # its process died
    with Lease(memory, "cell-1").held():
        while not (tmp_path / "locks" / "cell-1").exists():  # a sign of life
            memory.fetch_progress(["cell-1", "cell-2"], tmp_path)
            time.sleep(0.02)
    table = board.table()
    assert table.title == "1 running, 1 waiting"
    (row,) = zip(*(column.cells for column in table.columns), strict=True)
    assert row == ("one", socket.gethostname(), "2,000 of 4,000", "5.0", "", "0:20")


def test_names_that_lead_out_of_the_folder_are_refused(memory, tmp_path):
    memory.fs.pipe_file(memory.at("runs/cell/x"), b"")
    with pytest.raises(ValueError, match="leads out"):
        memory.fetch(["runs/../../x"], tmp_path / "folder")


def test_addresses_are_told_from_paths():
    assert place_of("s3://bucket/sweep") == "s3://bucket/sweep"
    assert [place_of(out) for out in ("out", Path("out"), "/a/b://c")] == [Path("out"), Path("out"), Path("/a/b://c")]
    with pytest.raises(ValueError, match="nothing://x cannot be opened"):
        Storage("nothing://x")
