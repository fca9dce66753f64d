"""What commands print. Names and texts out of files pass here, so that none of them can steer the terminal."""

from collections.abc import Iterator
from typing import Any, TextIO

from rich.console import Console
from rich.segment import Segment

from .untrusted import printable


def duration(seconds: float) -> str:
    """Seconds as hours, minutes and seconds."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def counted(number: int, what: str) -> str:
    """1 episode, 2 episodes."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def say(text: str, file: TextIO | None = None) -> None:
    """Prints plain text, by default to the standard output."""
    print(printable(text), file=file, flush=True)


class PatientConsole(Console):
    """A console whose reader may leave (`| head`): it says no more, and whoever works finds a moment to end."""

    def on_broken_pipe(self) -> None:
        """Rich would end the process here, wherever it is."""
        self.quiet = True

    def render(self, *arguments: Any, **options: Any) -> Iterator[Segment]:
        """What is written, piece by piece: rich's own control codes stay, all others become visible."""
        for each in super().render(*arguments, **options):
            yield each if each.control else each._replace(text=printable(each.text))
