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


def write_report(runs: Sequence[Path], out: Path | None = None, pairs: Sequence[Pair] = ()) -> Path:
    """Writes one self-contained page about a run, or comparing several; where it is.

    Args:
        runs: Folders of explorations.
        out: The page, by default `report.html` in the run's folder, or here if there are several.
        pairs: Coordinates whose visited states are shown, by name, such as ("rootz", "rooty"); by default the domain's.
    """
    if not runs:
        raise ValueError("A report needs at least one run: give its folder.")
    prepare_device()
    every, damaged = open_runs([Path(run) for run in runs])
    if out is None:
        out = Path(runs[0]) / "report.html" if len(runs) == 1 else Path("report.html")
    out.parent.mkdir(parents=True, exist_ok=True)
    write_file(out, [compose(every, damaged, pairs).encode()])
    return out


def compose(every: Sequence[Explored], damaged: Sequence[str] = (), pairs: Sequence[Pair] = ()) -> str:
    """The page's text: everything but films first, and films in the room that is left."""
    parts = {
        "What was run": join([*map(missing, damaged), *(_kept(each.name, what_was_run, each) for each in every)]),
        "Scores": _kept("Scores", scores, every),
        "Coverage": _kept("Coverage", coverage, every, pairs),
        "Where it was curious": _each(every, curiosity),
        "Open-loop prediction": _each(every, predict_openly),
        "Learning": _kept("Learning", learning, every),
    }
    room = LARGEST - SPARE - sum(len(content.encode()) for content in parts.values())
    order = ["What was run", "Scores", "Coverage", "Films", "Where it was curious", "Open-loop prediction", "Learning"]
    parts["Films"] = _films(every, room)
    title = ", ".join(explored.name for explored in every) or "no run"
    return page(f"Plan2Explore: {title}", _head(title, order), *(section(name, parts[name]) for name in order))


def _head(title: str, order: Sequence[str]) -> Markup:
    made = f"Made by plan2explore {__version__}, {datetime.now(UTC).isoformat(sep=' ', timespec='minutes')}"
    links = [tag("a", name, href=f"#{anchor(name)}") for name in order]
    return tag("header", tag("h1", title), tag("p", made, class_="soft"), tag("nav", *links))


def _films(every: Sequence[Explored], room: int) -> Markup:
    shown, left = [], room
    for index, explored in enumerate(every):
        share = left // (len(every) - index)
        piece, size = _kept_films(explored, share)
        shown.append(piece)
        left -= size
    return join(shown)


def _kept_films(explored: Explored, room: int) -> tuple[Markup, int]:
    try:
        return films_of(explored, room)
    except Exception as error:
        return _told(explored.name, error), 0


def _each(every: Sequence[Explored], look: Callable[[Explored], Markup]) -> Markup:
    """Looks into the minds of the first few runs."""
    rest = [explored.name for explored in every[MOST_LOOKED_INTO:]]
    note = [missing(f"Not shown, to keep the page small: {', '.join(rest)}.")] if rest else []
    return join([*(_kept(explored.name, look, explored) for explored in every[:MOST_LOOKED_INTO]), *note])


def _kept(name: str, make: Callable[..., Markup], *arguments: object) -> Markup:
    """A piece of the page, or a sentence that says why it is missing: nothing in a run's folder may fail the page."""
    try:
        return make(*arguments)
    except Exception as error:
        return _told(name, error)


def _told(name: str, error: Exception) -> Markup:
    if isinstance(error, Missing):
        return missing(str(error))
    log.warning("A piece of the report is missing (%s).", name, exc_info=error)
    return missing(f"{name}: this could not be shown. {type(error).__name__}: {error!s:.300}")
