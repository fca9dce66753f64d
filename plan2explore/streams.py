"""What happens when nobody takes what a command prints: a reader that left, a disk that is full."""

import contextlib
import logging
import os
import select
import signal
import sys
from collections.abc import Iterator
from typing import TextIO

from .untrusted import printable


@contextlib.contextmanager
def quiet_without_reader() -> Iterator[None]:
    """A reader that has seen enough (`| head`) ends the command without a word, with the status that shells know.

    SIGPIPE itself stays ignored: it would also end a run for a worker that died.
    """
    try:
        try:
            yield
        finally:
            print(end="", flush=True)  # here, not at the interpreter's exit, which would complain
    except (OSError, SystemExit) as end:
        if isinstance(end, BrokenPipeError) or isinstance(end.__context__, BrokenPipeError):  # rich exits by itself
            for stream in filter(is_left, (sys.stdout, sys.stderr)):
                _give_up(stream)
            sys.exit(128 + signal.SIGPIPE)
        if isinstance(end, SystemExit):
            raise
        _give_up(sys.stdout)  # it goes to a file on a full disk
        if not (isinstance(end.__context__, SystemExit) and end.__context__.code == 2):  # then it was said already
            print(f"plan2explore: what it printed could not be written: {end.strerror}", file=sys.stderr)
        sys.exit(2)


class PlainFormatter(logging.Formatter):
    """The message alone, which may quote a file, as a terminal may have it."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def _give_up(stream: TextIO) -> None:
    """What is still to be written there goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def is_left(stream: TextIO | None) -> bool:
    """Whether the reader of a stream has gone."""
    poll = select.poll()
    try:
        poll.register(stream.fileno() if stream else -1, 0)  # reports hang-ups only
    except (OSError, ValueError):  # it is no file
        return False
    return bool(poll.poll(0))
