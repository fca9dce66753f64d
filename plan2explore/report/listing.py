"""`plan2explore runs`: the runs below a folder, with their state and last scores."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..runs.files import read_lines
from ..runs.folder import RunError, RunFolder
from ..untrusted import printable
from .results import results_of

COLUMNS = ("run", "env", "method", "seed", "state", "env steps", "last scores")


def print_runs(folder: Path) -> int:
    """Prints a row for each exploration at or below a folder, the newest last."""
    files = {file for below in ("", "*/", "*/*/", "*/*/*/") for file in folder.glob(f"{below}run.json")}
    found, faults = [], []
    for file in sorted(files):
        try:
            run = RunFolder.open(file.parent)
        except RunError as error:
            faults.append(str(error))
            continue
        if run.kind == "explore":
            found.append(run)
    if not found and not faults:
        raise RunError(f"There is no run in {folder}, or at most three folders down from it.")
    table = Table(box=None, pad_edge=False)
    for name in COLUMNS:
        table.add_column(name, overflow="fold", no_wrap=name != "last scores")
    for run in sorted(found, key=lambda each: each.created):
        table.add_row(*(escape(printable(word)) for word in row_of(run)))
    console = Console(soft_wrap=True)
    console.print(table)
    for sentence in faults:
        console.print(printable(sentence), markup=False)
    return 0


def row_of(run: RunFolder) -> tuple[str, ...]:
    """What a run's row says, in the order of `COLUMNS`."""
    config = run.settings.get("config", {})
    agent = config.get("agent", {})
    goal: Any = run.settings.get("goal")
    counts = [line.get("env_steps") for line in read_lines(run.metrics_file)]
    steps = max((count for count in counts if isinstance(count, int)), default=0)
    state = "running" if run.is_locked() else "finished" if isinstance(goal, int) and steps >= goal else "stopped"
    return (
        str(run.path),
        str(config.get("world", {}).get("world", "?")),
        str((agent.get("intrinsic") or agent.get("novelty") or {}).get("objective", "?")),
        str(config.get("seed", "?")),
        state,
        f"{steps:,}" + (f" of {goal:,}" if isinstance(goal, int) and steps < goal else ""),
        last_scores(results_of(run.path)) or "-",
    )


def last_scores(results: Iterable[Any]) -> str:
    """The last score of each task; where it has several, a probe's and an adaptation's are told apart."""
    last = {(each.task, each.protocol): each for each in results}
    tasks = [task for task, _ in last]
    return ", ".join(
        f"{task} {each.score:.0f}" + (f" ({protocol})" if tasks.count(task) > 1 else "")
        for (task, protocol), each in last.items()
    )

