"""Cells as tasks of a Ray cluster. Each resumes from its run's folder, which all nodes see, or from storage.

Ray runs a task again whose node or process died. The lock of the cell keeps two processes from it: where the old one still
lives, the new one waits until it is gone.
"""

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from ..envs.registered import receive, registered
from ..runs.folder import RunError
from .board import Board
from .cells import Cell, Outcome, attempt, logs_of, note
from .runner import RayOptions
from .storage import Storage

POLL = 1.0  # seconds for which tasks are waited for at a time
MEMORY = 0.8  # of its share of a GPU that a cell's JAX takes: the rest is for the driver and for whoever shares it


def run_on_ray(out: Path | str, cells: dict[str, Cell], options: RayOptions) -> dict[str, Outcome]:
    """How every cell ended, by its title. Ctrl-C lets the running ones save what they have first."""
    out = out.resolve() if isinstance(out, Path) else out
    fetch = Storage(out).fetch_progress if isinstance(out, str) else None
    with logs_of(out, cells.values()) as folder, Board(folder, cells, fetch) as board:
        ray.init(address=options.address, log_to_driver=False, logging_level="warning")
        try:
            task, needs, given = ray.remote(run_there), needs_of(options), ray.put(registered())
            waiting = {
                task.options(name=cell.name, **needs).remote(out, cell, given): title
                for title, cell in board.unfinished().items()
            }
            with first_interrupt_noted() as asked:
                while waiting and not asked:
                    for ref in ray.wait(list(waiting), num_returns=len(waiting), timeout=POLL)[0]:
                        title = waiting.pop(ref)
                        board.end(title, *_outcome(folder, cells[title], ref))
                    board.show()
            if waiting:
                board.say("Stopping: the cells that run save everything first (a second Ctrl-C stops at once) ...")
                for ref in waiting:
                    ray.cancel(ref)
                ray.wait(list(waiting), num_returns=len(waiting))
                board.say("Saved: rerun the command to resume.")
                raise KeyboardInterrupt
        finally:
            ray.shutdown()
    return board.outcomes


@contextmanager
def first_interrupt_noted() -> Iterator[list[int]]:
    """Ctrl-C is noted the first time: an exception that is raised in the middle of a library's callback is lost."""
    asked: list[int] = []

    def note_it(number: int, _: Any) -> None:
        asked.append(number)
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, note_it)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


def needs_of(options: RayOptions) -> dict[str, Any]:
    """Ray's options for a cell: what it takes of a node, and how often it is begun."""
    there = ray.cluster_resources()
    all_cpus, all_gpus = there.get("CPU", 0), there.get("GPU", 0)
    gpus, cpus = options.gpus_per_cell, options.cpus_per_cell
    if gpus is None:
        gpus = 1.0 if all_gpus else 0.0
    if cpus is None:
        cpus = max(1.0, all_cpus * gpus // all_gpus) if all_gpus and gpus else 1.0
    if gpus > all_gpus or cpus > all_cpus:
        raise RunError(
            f"A cell is to have {gpus:g} GPUs and {cpus:g} cores, and the whole cluster has {all_gpus:g} and {all_cpus:g}: "
            "give fewer as --gpus-per-cell and --cpus-per-cell."
        )
    name = "XLA_PYTHON_CLIENT_MEM_FRACTION"
    variables = {name: os.environ.get(name, f"{MEMORY * gpus:.2f}")} if 0 < gpus < 1 else {}
    return {
        "num_cpus": cpus, "num_gpus": gpus, "max_retries": options.max_retries, "runtime_env": {"env_vars": variables}
    }  # fmt: skip


def run_there(out: Path | str, cell: Cell, given: dict[str, bytes]) -> tuple[Outcome, str]:
    """Runs a cell on a node of the cluster; also the node's name."""
    receive(given)
    return attempt(out, cell, wait=True), socket.gethostname()


def _outcome(out: Path, cell: Cell, ref: Any) -> tuple[Outcome, str]:
    """How a task ended. Where Ray gave up, this is noted as a cell's own errors are."""
    try:
        return ray.get(ref)
    except RayError as error:
        cause = getattr(error, "cause", None) or error
        text = f"{type(cause).__name__}: {cause}".splitlines()[0]
        note(out, cell, "failed", error=text, trace=str(error))
        return Outcome("failed", text), ""
