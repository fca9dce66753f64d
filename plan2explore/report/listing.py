"""`plan2explore runs`: the runs below a folder, with their state and last scores."""

from pathlib import Path

from rich.markup import escape
from rich.table import Table

from ..console import PatientConsole
from ..runs.folder import RunError, RunFolder
from ..runs.reader import progress_of, read_metrics, summary_of
from ..runs.results import results_of

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
    console = PatientConsole(soft_wrap=True)
    if not console.is_terminal:
        console.width = max(console.width, 200)  # for programs that read lines
    table = Table(box=None, pad_edge=False)
    for name in COLUMNS:
        table.add_column(name, overflow="fold", no_wrap=name != "last scores", min_width=len(name))
    for run in sorted(found, key=lambda each: each.created):
        table.add_row(*(escape(word) for word in row_of(run)))
    console.print(table)
    for sentence in faults:
        console.print(sentence, markup=False)
    return 0


def row_of(run: RunFolder) -> tuple[str, ...]:
    """What a run's row says, in the order of `COLUMNS`."""
    about, metrics = summary_of(run), read_metrics(run.path)
    (steps, all_steps), (_, all_updates) = (progress_of(run, metrics, name) for name in ("env_steps", "update"))
    state = "running" if run.is_locked() else "finished" if all_steps or all_updates else "stopped"
    last = {(each.task, each.protocol): each for each in results_of(run.path)}
    tasks = [task for task, _ in last]  # where one has several scores, a probe's and an adaptation's are told apart
    scores = [f"{x.task} {x.score:.0f}" + f" ({x.protocol})" * (tasks.count(x.task) > 1) for x in last.values()]
    seed = "?" if about.seed is None else str(about.seed)
    return str(run.path), about.world, about.method, seed, state, steps, ", ".join(scores) or "-"
