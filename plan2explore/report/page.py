"""`plan2explore report`: runs as one HTML page that holds all that it shows."""

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from .. import __version__
from ..atomic import write_file
from ..phases.device import prepare_device
from .coverage import Pair, coverage
from .curiosity import curiosity
from .explored import Explored, Missing, open_runs
from .facts import what_was_run
from .films import films_of
from .html import Markup, anchor, join, missing, page, section, tag
from .learning import learning
from .openloop import predict_openly
from .scores import scores

log = logging.getLogger("plan2explore.report")
LARGEST = 20_000_000
"""Bytes of a page: what one can still send to someone."""
SPARE = 500_000
MOST_LOOKED_INTO = 4
"""Runs whose curiosity and predictions are shown: each takes seconds, and room."""


def write_report(
    runs: str | Path | Sequence[str | Path], out: str | Path | None = None, pairs: Sequence[Pair] = ()
) -> Path:
    """Writes one self-contained page about a run, or comparing several; where it is.

    Args:
        runs: The folder of an exploration, or several.
        out: The page, by default `report.html` in the run's folder, or here if there are several.
        pairs: Coordinates whose visited states are shown, by name, such as ("rootz", "rooty"); by default the domain's.
    """
    folders = [Path(run) for run in ([runs] if isinstance(runs, str | Path) else runs)]
    if not folders:
        raise ValueError("A report needs at least one run: give its folder.")
    prepare_device()
    every, damaged = open_runs(folders)
    out = Path(out or (folders[0] / "report.html" if len(folders) == 1 else "report.html"))
    out.parent.mkdir(parents=True, exist_ok=True)
    write_file(out, [compose(every, damaged, pairs).encode()])
    return out


def compose(every: Sequence[Explored], damaged: Sequence[str] = (), pairs: Sequence[Pair] = ()) -> str:
    """The page's text: everything but films first, and films in the room that is left."""
    kept = Kept()
    parts = {
        "Scores": kept("Scores", scores, every),
        "What was run": join([*map(missing, damaged), *kept.each("What was run", every, what_was_run)]),
        "Coverage": kept("Coverage", coverage, every, pairs),
        "Where it was curious": _look(kept, "Where it was curious", every, curiosity),
        "Open-loop prediction": _look(kept, "Open-loop prediction", every, predict_openly),
        "Learning": kept("Learning", learning, every),
    }
    room = LARGEST - SPARE - sum(len(content.encode()) for content in parts.values())
    order = ["Scores", "What was run", "Coverage", "Films", "Where it was curious", "Open-loop prediction", "Learning"]
    parts["Films"] = _films(kept, every, room)
    kept.warn(damaged)
    title = ", ".join(explored.name for explored in every)
    return page(f"Plan2Explore: {title}", _head(title, order), *(section(name, parts[name]) for name in order))


def _head(title: str, order: Sequence[str]) -> Markup:
    made = f"Made by plan2explore {__version__}, {datetime.now(UTC).isoformat(sep=' ', timespec='minutes')}"
    links = [tag("a", name, href=f"#{anchor(name)}") for name in order]
    return tag("header", tag("h1", title), tag("p", made, class_="soft"), tag("nav", *links))


def _films(kept: "Kept", every: Sequence[Explored], room: int) -> Markup:
    shown, left = [], room
    for index, explored in enumerate(every):
        piece = kept("Films", films_of, explored, left // (len(every) - index), name=explored.name)
        shown.append(piece)
        left -= len(piece)
    return join(shown)


def _look(kept: "Kept", part: str, every: Sequence[Explored], look: Callable[[Explored], Markup]) -> Markup:
    """Looks into the minds of the first few runs."""
    rest = [explored.name for explored in every[MOST_LOOKED_INTO:]]
    note = [missing(f"Not shown, to keep the page small: {', '.join(rest)}.")] if rest else []
    return join([*kept.each(part, every[:MOST_LOOKED_INTO], look), *note])


class Kept:
    """Makes pieces of the page, or a sentence that says why one is missing: nothing in a run's folder may fail the page."""

    def __init__(self) -> None:
        self.failed: dict[str, None] = {}
        """Parts of the page that lack something they should have, in order."""

    def __call__(self, part: str, make: Callable[..., Markup], *arguments: object, name: str = "") -> Markup:
        try:
            return make(*arguments)
        except Missing as error:
            return missing(str(error))
        except Exception as error:
            self.failed[part] = None
            log.debug("A piece of the report is missing (%s).", name or part, exc_info=error)
            expected = isinstance(error, ValueError | OSError)  # our own sentences; anything else is told by its kind too
            why = f"{error!s:.400}" if expected else f"{type(error).__name__}: {error!s:.300}"
            return missing(f"{name or part}: this could not be shown. {why}")

    def each(self, part: str, every: Sequence[Explored], make: Callable[[Explored], Markup]) -> list[Markup]:
        """A piece for each run."""
        return [self(part, make, explored, name=explored.name) for explored in every]

    def warn(self, damaged: Sequence[str]) -> None:
        """One line for the terminal: what the page lacks."""
        if self.failed:
            log.warning("Not all could be shown; the page says why: %s.", ", ".join(self.failed))
        if damaged:
            log.warning("%s", " ".join(damaged))
