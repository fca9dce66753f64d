"""Where the cells of a sweep run: one after the other, or one of them in a job array."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..phases.progress import counted
from .cells import Cell, Outcome, attempt, was


@dataclass(frozen=True)
class Runner:
    """Where cells run."""

    cell: int | None = None
    """Run this one only, counted from 1: an element of a job array."""
    list: bool = False
    """List the cells by number, and which are finished, and run none."""


def run_cells(out: Path, cells: Sequence[Cell], runner: Runner) -> int:
    """Every cell that is not finished and that no other process has, a line for each; 1 if one failed, else 0."""
    if runner.cell is not None and not 1 <= runner.cell <= len(cells):
        raise ValueError(f"--cell is from 1 to {len(cells)} here; got {runner.cell}.")
    numbered = dict(enumerate(cells, 1))
    if runner.cell is not None:
        numbered = {runner.cell: cells[runner.cell - 1]}
    places = {number: f"[{number}/{len(cells)}] {cell.name}" for number, cell in numbered.items()}
    if runner.list:
        for number, cell in numbered.items():
            print(f"{places[number]}: finished" if was(out, cell, "finished") else places[number])
        return 0
    outcomes = {number: _here(out, cell, places[number]) for number, cell in numbered.items()}
    return _conclude(out, numbered, outcomes)


def _here(out: Path, cell: Cell, place: str) -> Outcome:
    outcome = attempt(out, cell)
    print(f"{place}: {outcome}", flush=True)
    return outcome


def _conclude(out: Path, cells: dict[int, Cell], outcomes: dict[int, Outcome]) -> int:
    """Says which cells are left to others, and which failed."""
    states = {number: outcome.state for number, outcome in outcomes.items()}
    left = [cells[number] for number, state in states.items() if state == "left"]
    if busy := [cell.name for cell in left if not was(out, cell, "finished")]:
        print(f"{counted(len(busy), 'cell')} of {len(cells)} left to other commands: {', '.join(busy)}.", file=sys.stderr)
    failed = [cells[number].name for number, state in states.items() if state == "failed"]
    if failed:
        names, log = ", ".join(failed), out / "cells.jsonl"
        print(f"{len(failed)} of {len(cells)} cells failed: {names}. Why is in {log}.", file=sys.stderr)
    return 1 if failed else 0
