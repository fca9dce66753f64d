"""Progress of long work: a live line on a terminal, a line now and then in a log."""

import sys
import time

from rich.console import Console
from rich.live import Live
from rich.text import Text

from ..console import PatientConsole, duration
from ..envs.maze import Coverage

QUIET = 15.0  # seconds between lines where nobody watches
WARM_UP = 2  # blocks of updates before the speed counts: the first ones wait for compilers


class Progress:
    """Shows how far work has come: env steps, updates, speeds, time left and scores."""

    def __init__(self, what: str, repeat: int = 1, console: Console | None = None) -> None:
        self.what, self.repeat, self.console = what, repeat, console or PatientConsole(file=sys.stderr, soft_wrap=True)
        self.scores: dict[str, float] = {}
        self.coverage: Coverage | None = None
        """Of a maze: on a terminal it is drawn below the line."""
        self._live = Live(console=self.console, refresh_per_second=4, transient=True) if self.console.is_terminal else None
        self._start = self._shown = time.monotonic()
        self._first: tuple[float, int] | None = None
        self._blocks = 0
        self._last: tuple[float, int, int] | None = None
        self._rates = (0.0, 0.0)

    def __enter__(self) -> "Progress":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives the terminal back."""
        if self._live:
            self._live.stop()

    @property
    def unheard(self) -> bool:
        """Whether the reader has left."""
        return self.console.quiet

    def say(self, text: str) -> None:
        """A line that stays."""
        self.console.print(text, highlight=False, markup=False)

    def show(self, steps: int, goal: int, updates: int, updates_goal: int) -> None:
        """Tells where the work is. Cheap enough to be called at every step."""
        now = time.monotonic()
        if self._first is None or updates == self._first[1]:
            self._first = now, updates
        elif self._blocks < WARM_UP:
            self._first, self._blocks = (now, updates), self._blocks + 1
        if self._last is None:
            self._last = now, steps, updates
        elif (passed := now - self._last[0]) > 2:
            self._rates = (steps - self._last[1]) / passed / self.repeat, (updates - self._last[2]) / passed
            self._last = now, steps, updates
        if now - self._shown < (0.25 if self._live else QUIET):
            return
        self._shown = now
        line = "  ".join(self.line(now, steps, goal, updates, updates_goal))
        if self._live:
            self._live.update(Text(f"{line}\n{self.coverage}" if self.coverage else line))
        else:
            self.say(line)

    def line(self, now: float, steps: int, goal: int, updates: int, updates_goal: int) -> list[str]:
        """The pieces of a line of progress."""
        frames, trained = self._rates
        pieces = [self.what, *([f"env steps {steps:,} of {goal:,}", f"{frames:.0f} frames/s"] if goal else [])]
        pieces += [f"updates {updates:,} of {updates_goal:,}", f"{trained:.1f} updates/s"]
        pieces.append(f"{duration(now - self._start)} gone, {self.left(now, updates, updates_goal)} left")
        pieces += [] if self.coverage is None else [f"coverage {self.coverage.share:.0%}"]
        return pieces + [f"{task} {score:.0f}" for task, score in self.scores.items()]

    def left(self, now: float, updates: int, goal: int) -> str:
        """Time to go at the speed so far: learning is what takes it."""
        assert self._first is not None
        start, before = self._first
        if updates <= before or now - start < 1:
            return "?"
        return duration((goal - updates) * (now - start) / (updates - before))

    def spent(self, updates: int) -> str:
        """At the end, what the time went to: the start, and learning with all that runs beside it."""
        now = time.monotonic()
        whole = duration(now - self._start)
        if self._first is None or updates <= self._first[1] or now <= self._first[0]:
            return whole
        start, before = self._first
        rate = (updates - before) / (now - start)
        return f"{whole} ({duration(start - self._start)} until the first updates, then {rate:.1f} updates/s)"
