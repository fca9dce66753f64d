"""Where the cells of a sweep run: here, one after the other; one of them, in a job array; or on a Ray cluster."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ..console import counted
from ..runs.files import check_folder
from ..untrusted import check_links
from .cells import Cell, attempt, logs_of, was


@dataclass(frozen=True)
class RayOptions:
    """What a cell gets of a Ray cluster (the extra `scale`)."""

    address: str | None = None
    """Of the cluster; none: RAY_ADDRESS, or Ray is started on this machine."""
    gpus_per_cell: float | None = None
    """Two cells share a GPU at 0.5; none: 1 where the cluster has GPUs."""
    cpus_per_cell: float | None = None
    """Cores for a cell; none: an even share of the cluster's for each GPU, or 1."""
    max_retries: int = 3
    """How often a cell resumes elsewhere whose node or process died. Its own errors are noted, not retried."""


@dataclass(frozen=True)
class Runner:
    """Where cells run."""

    on: Literal["here", "ray"] = "here"
    """here: one after the other. ray: as tasks of a Ray cluster."""
    cell: int | None = None
    """Run this one only, counted from 1: an element of a job array."""
    list: bool = False
    """List the cells by number, and which are finished, and run none."""
    ray: Annotated[RayOptions, tyro.conf.arg(name="")] = field(default_factory=RayOptions)


def run_cells(out: Path | str, cells: Sequence[Cell], runner: Runner) -> int:
    """Every cell that is not finished and that no other process has, a line for each; 1 if one failed, else 0.

    `out` is a folder, or an address of fsspec's.
    """
    if isinstance(out, Path):
        check_folder(out)
        check_links(out, foreign="runs")  # each run is checked where it is opened
    if runner.on == "ray" and (runner.cell is not None or runner.list):
        raise ValueError("--on ray runs all cells: leave out --cell and --list.")
    chosen = {f"[{at}/{len(cells)}] {cell.name}": cell for at, cell in enumerate(cells, 1) if runner.cell in (None, at)}
    if not chosen:
        raise ValueError(f"--cell is from 1 to {len(cells)} here; got {runner.cell}.")
    if runner.list:
        with logs_of(out, cells) as folder:
            for title, cell in chosen.items():
                print(f"{title}: finished" if was(folder, cell, "finished") else title)
        return 0
    if runner.on == "ray":
        try:
            from .cluster import run_on_ray
        except ModuleNotFoundError as error:
            raise ValueError(f"--on ray needs Ray ({error}): pip install 'plan2explore[scale]'.") from None
        outcomes = run_on_ray(out, chosen, runner.ray)
    else:
        outcomes = {}
        for title, cell in chosen.items():
            outcomes[title] = attempt(out, cell)
            print(f"{title}: {outcomes[title]}", flush=True)
    left = [cell for title, cell in chosen.items() if outcomes[title].state == "left"]
    with logs_of(out, left) as folder:
        busy = [cell.name for cell in left if not was(folder, cell, "finished")]
    if busy:
        print(f"{counted(len(busy), 'cell')} of {len(chosen)} left to other commands: {', '.join(busy)}.", file=sys.stderr)
    failed = [cell.name for title, cell in chosen.items() if outcomes[title].state == "failed"]
    if failed:
        names = ", ".join(failed)
        print(f"{len(failed)} of {len(chosen)} cells failed: {names}. Why is in {out}/cells.jsonl.", file=sys.stderr)
    return 1 if failed else 0
