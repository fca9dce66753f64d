"""What a terminal shows of a sweep on a cluster: a row for each cell that runs, a line for each that ended.

Everything is read from the sweep's folder: who has a cell from its lock, how far it is from its run.
"""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rich.live import Live
from rich.markup import escape
from rich.table import Table

from ..console import PatientConsole, counted, duration
from ..runs.files import parse_object
from ..runs.reader import is_number, read_evaluations, read_metrics
from .cells import Cell, Outcome, locks_of, path_of, was

COLUMNS = ("cell", "node", "env steps", "updates/s", "scores", "left")
EVERY, EVERY_FETCH = 2.0, 15.0  # seconds between readings of the runs: in a folder, and in storage
ROWS = 30  # cells that are shown at once
TAIL = 65_536  # bytes at the end of a run's metrics that are read


class Board:
    """Shows a sweep's cells by their titles, and keeps how they ended."""

    def __init__(self, out: Path, cells: dict[str, Cell], fetch: Callable[[list[str], Path], None] | None = None) -> None:
        self.out, self.cells, self._fetch = out, cells, fetch
        self.outcomes: dict[str, Outcome] = {}
        self._console = PatientConsole(soft_wrap=True)
        self._live = Live(console=self._console, auto_refresh=False, transient=True) if self._console.is_terminal else None
        self._began, self._shown = time.time(), 0.0

    def __enter__(self) -> "Board":
        for title, cell in self.cells.items():
            if was(self.out, cell, "finished"):
                self.end(title, Outcome("finished before"))
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def say(self, text: str) -> None:
        """A line that stays."""
        self._console.print(text, highlight=False, markup=False)

    def end(self, title: str, outcome: Outcome, node: str = "") -> None:
        """A cell ended."""
        self.outcomes[title] = outcome
        self.say(f"{title}: {outcome}" + (f" on {node}" if node else ""))

    def show(self) -> None:
        """Reads the runs, if it is time to, and shows them."""
        now = time.monotonic()
        if self._live is None or now - self._shown < (EVERY_FETCH if self._fetch else EVERY):
            return
        self._shown = now
        if self._fetch:
            with suppress(Exception):  # whatever a storage's library raises: the next time may work
                self._fetch([cell.name for cell in self.unfinished().values()], self.out)
        self._live.update(self.table(), refresh=True)

    def unfinished(self) -> dict[str, Cell]:
        """Cells that have not ended, by their titles."""
        return {title: cell for title, cell in self.cells.items() if title not in self.outcomes}

    def table(self) -> Table:
        """A row for each cell that runs, and how many others there are."""
        unfinished = self.unfinished()
        running = {title: node for title, cell in unfinished.items() if (node := self._node_of(cell))}
        ended = Counter(str(outcome.state) for outcome in self.outcomes.values())
        counts = {"running": len(running), "waiting": len(unfinished) - len(running), **ended}
        table = Table(*COLUMNS, box=None, title=", ".join(f"{count} {state}" for state, count in counts.items() if count))
        for title in list(running)[:ROWS]:
            table.add_row(*map(escape, (title, running[title], *self._how_far(self.cells[title]))))
        if len(running) > ROWS:
            table.caption = f"and {counted(len(running) - ROWS, 'cell')} more"
        return table

    def _node_of(self, cell: Cell) -> str:
        """The machine whose process has had a cell since this sweep began; empty if none has."""
        lock = locks_of(self.out) / cell.name
        try:
            holder = parse_object(lock.read_bytes()) if lock.stat().st_mtime >= self._began else None
        except OSError:
            return ""
        return str((holder or {}).get("host", ""))

    def _how_far(self, cell: Cell) -> tuple[str, str, str, str]:
        """Env steps, updates/s, scores and time left, by the last lines of the run's metrics and its evaluations."""
        path, rate, left = path_of(self.out, cell), "", ""
        lines = [line for line in read_metrics(path, TAIL) if is_number(line.get("update")) and is_number(line.get("time"))]
        steps = lines[-1]["env_steps"] if lines else 0
        if len(lines) > 1:
            seconds, done = lines[-1]["time"] - lines[0]["time"], steps - lines[0]["env_steps"]
            rate = f"{(lines[-1]['update'] - lines[0]['update']) / max(seconds, 1e-3):.1f}"
            left = duration((cell.steps - steps) * seconds / done) if done > 0 else ""
        scores = {each.task: f"{each.task} {each.mean:.0f}" for each in read_evaluations(path)}
        return f"{steps:,} of {cell.steps:,}", rate, ", ".join(scores.values()), left
