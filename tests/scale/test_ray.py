"""A sweep on a Ray cluster makes what a sequential one makes, whatever dies meanwhile."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from nano_cells import nano_cell, results_of_run
from patience import PATIENCE
from sizes import quick

from plan2explore.runs.checkpoint import Checkpoints
from plan2explore.runs.files import parse_object, read_lines, write_json
from plan2explore.runs.folder import RunError
from plan2explore.scale.board import Board
from plan2explore.scale.cells import Outcome, locks_of
from plan2explore.scale.runner import RayOptions, Runner, run_cells

pytestmark = pytest.mark.xdist_group("ray")
cluster = pytest.importorskip("plan2explore.scale.cluster")
STEPS = 8000
PATIENT = {"health_check_period_ms": 1000, "health_check_failure_threshold": 3, "health_check_timeout_ms": 120_000}
"""A node that is gone is missed soon, one that is slow is not."""
DRIVER = """
import sys
from pathlib import Path
from nano_cells import nano_cell
from plan2explore import cli
from plan2explore.scale.runner import RayOptions, Runner, run_cells
out, address = sys.argv[1:]
cli._run = lambda arguments: run_cells(Path(out), [nano_cell(2, {steps})], Runner("ray", ray=RayOptions(address)))
cli.main([])
"""


@pytest.fixture
def nodes():
    """A cluster of three nodes of one core on this machine."""
    from ray.cluster_utils import Cluster

    paths = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1])])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", paths)
        patch.setenv("RAY_worker_niceness", "0")  # Ray's own is 15: they would wait for all other work
        head = {"num_cpus": 0, "object_store_memory": 80 * 2**20, "_system_config": PATIENT}
        made = Cluster(initialize_head=True, head_node_args=head)
        try:
            for _ in range(3):
                made.add_node(num_cpus=1, object_store_memory=80 * 2**20)
            yield made
        finally:
            made.shutdown()


def process_in(out: Path, name: str, after: int = 0) -> int:
    """The process that has a cell, once its run has a checkpoint after so many updates: it is in the middle."""
    ended = time.monotonic() + PATIENCE
    while time.monotonic() < ended:
        holder = parse_object((locks_of(out) / name).read_bytes()) if (locks_of(out) / name).exists() else None
        if holder and lives(holder) and updates_of(out, name) > after:
            return int(holder["process"])
        time.sleep(0.05)
    raise TimeoutError(f"{name} has no checkpoint")


def updates_of(out: Path, name: str) -> int:
    found = Checkpoints(out / "runs" / name / "checkpoints").load_latest()
    return found[1]["updates"] if found else 0


def lives(holder: dict) -> bool:
    return Path(f"/proc/{holder['process']}").exists()


def parent_of(process: int) -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("PPid:"))


@pytest.mark.slow
def test_what_dies_is_resumed_and_all_results_equal_a_sequential_sweeps(tmp_path, nodes, capfd):
    here, there, cells = tmp_path / "here", tmp_path / "there", [nano_cell(seed, STEPS) for seed in range(3)]
    with quick():
        assert run_cells(here, cells, Runner()) == 0  # and compiles what all processes run

    # In the middle of a cell the driver dies, then it is stopped by Ctrl-C, and then the disk fills.
    for fault, status in (("kill", -signal.SIGKILL), ("stop", 130), ("fill", 1)):
        before = updates_of(there, "cell-2")
        command = [sys.executable, "-c", DRIVER.format(steps=STEPS), str(there), nodes.address]
        driver = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        process = process_in(there, "cell-2", before)
        if fault == "kill":
            driver.kill()
        elif fault == "fill":  # no file of the cell's process grows beyond this
            resource.prlimit(process, resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
        else:
            os.kill(process, signal.SIGSTOP)  # it stands still until it is told: else it might end first
            driver.send_signal(signal.SIGINT)
            assert any("Stopping: " in line for line in driver.stdout)
            time.sleep(1)
            os.kill(process, signal.SIGCONT)
        said, _ = driver.communicate()
        assert driver.returncode == status and ("failed: The disk is full" in said) == (fault == "fill"), said
        if fault == "stop":
            assert "rerun the command to resume" in said and list((there / "runs/cell-2/snapshots").iterdir())
        while (holder := parse_object((locks_of(there) / "cell-2").read_bytes())) and lives(holder):
            time.sleep(0.02)

    def kill_process() -> None:
        os.kill(process_in(there, "cell-0"), signal.SIGKILL)

    def remove_node() -> None:
        process = process_in(there, "cell-1")
        raylet = parent_of(process)
        (node,) = [each for each in nodes.worker_nodes if each.all_processes["raylet"][0].process.pid == raylet]
        nodes.remove_node(node, allow_graceful=False)
        with suppress(ProcessLookupError):  # its processes go with it
            os.kill(process, signal.SIGKILL)

    spoilt = there / "runs" / "spoilt" / "mine.txt"
    spoilt.parent.mkdir()
    spoilt.write_text("")
    ray = Runner("ray", ray=RayOptions(nodes.address))
    with ThreadPoolExecutor(2) as pool:
        deaths = [pool.submit(fault) for fault in (kill_process, remove_node)]
        assert run_cells(there, [*cells, nano_cell(3, name="spoilt")], ray) == 1
        assert [death.result() for death in deaths] == [None, None]

    for cell, starts in zip(cells, (2, 2, 4), strict=True):
        runs = [out / "runs" / cell.name for out in (here, there)]
        assert results_of_run(runs[1]) == results_of_run(runs[0])
        assert len(read_lines(runs[1] / "starts.jsonl")) == starts
    states = [(line["cell"], line["state"]) for line in read_lines(there / "cells.jsonl")]
    names = [cell.name for cell in cells]
    expected = [(name, state) for name in names for state in ("explored", "finished")]
    expected += [("cell-2", "failed"), ("spoilt", "failed")]
    assert sorted(states) == sorted(expected)  # each cell once, and its own error is not retried
    said = capfd.readouterr()
    assert "[4/4] spoilt: failed: " in said.out and "1 of 4 cells failed: spoilt." in said.err
    stored = f"file://{tmp_path}/stored"
    assert run_cells(stored, cells[:1], ray) == 0  # in a scratch folder of its node
    assert results_of_run(tmp_path / "stored/runs/cell-0") == results_of_run(here / "runs/cell-0")
    scores = [[line.split(",")[:7] for line in (out / "results.csv").read_text().splitlines()] for out in (here, there)]
    assert sorted(scores[0]) == sorted(scores[1]) and len(scores[0]) > 3


# --- Without a cluster ---


def test_a_cell_that_ray_gave_up_is_noted(tmp_path, monkeypatch):
    def lost(ref):
        raise cluster.ray.exceptions.WorkerCrashedError

    monkeypatch.setattr(cluster.ray, "get", lost)
    locks_of(tmp_path).mkdir()
    outcome, _ = cluster._outcome(tmp_path, nano_cell(0), None)
    assert outcome.state == "failed" and outcome.text.startswith("WorkerCrashedError: ")
    (line,) = read_lines(tmp_path / "cells.jsonl")
    assert (line["cell"], line["state"], line["error"]) == ("cell-0", "failed", outcome.text)


@pytest.mark.parametrize(
    ("there", "options", "needs"),
    [
        ({"CPU": 8}, {}, (1, 0, {})),
        ({"CPU": 128, "GPU": 8}, {}, (16, 1, {})),
        ({"CPU": 128, "GPU": 8}, {"gpus_per_cell": 0.5}, (8, 0.5, {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.40"})),
        ({"CPU": 128, "GPU": 8}, {"gpus_per_cell": 0, "cpus_per_cell": 3}, (3, 0, {})),
    ],
)
def test_a_cell_takes_its_share_of_a_node(monkeypatch, there, options, needs):
    monkeypatch.setattr(cluster.ray, "cluster_resources", lambda: there)
    found = cluster.needs_of(RayOptions(**options))
    assert (found["num_cpus"], found["num_gpus"], found["runtime_env"]["env_vars"]) == needs


def test_more_than_the_cluster_has_is_refused(monkeypatch):
    monkeypatch.setattr(cluster.ray, "cluster_resources", lambda: {"CPU": 8})
    with pytest.raises(RunError, match="1 GPUs and 1 cores, and the whole cluster has 0 and 8"):
        cluster.needs_of(RayOptions(gpus_per_cell=1))


def test_the_table_shows_how_far_running_cells_are(tmp_path):
    board = Board(tmp_path, {f"[{number}/3] cell-{number}": nano_cell(number, 4000) for number in (1, 2, 3)})
    board.outcomes["[3/3] cell-3"] = Outcome("finished")
    board._began -= 1
    locks_of(tmp_path).mkdir()
    write_json(locks_of(tmp_path) / "cell-1", {"process": 1, "host": "node-7"})
    run = tmp_path / "runs" / "cell-1"
    run.mkdir(parents=True)
    lines = ({"env_steps": 1000 * i, "time": 10.0 * i, "update": 50 * i} for i in (1, 2))
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    evaluation = {"task": "cartpole_swingup", "env_steps": 2000, "mean": 120.4, "episodes": [120.4]}
    (run / "evaluations.jsonl").write_text(json.dumps(evaluation) + "\n")
    table = board.table()
    assert table.title == "1 running, 1 waiting, 1 finished"
    (row,) = zip(*(column.cells for column in table.columns), strict=True)
    assert row == ("[1/3] cell-1", "node-7", "2,000 of 4,000", "5.0", "cartpole_swingup 120", "0:20")
    board._began += 3600  # a process of an earlier sweep that was killed has no cell
    assert board.table().title == "2 waiting, 1 finished"
