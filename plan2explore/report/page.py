"""`plan2explore report`: runs as one HTML page that holds all that it shows."""

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from ..atomic import write_file
from ..device import prepare_device
from .coverage import Pair, coverage
from .curiosity import curiosity
from .explored import Explored, Missing, open_runs
from .facts import headline, what_was_run
from .html import Markup, anchor, join, missing, page, section, tag
from .learning import learning, predict_openly
from .scores import scores
from .videos import videos

log = logging.getLogger("plan2explore.report")
LARGEST = 20_000_000
"""Bytes of a page: what one can still send to someone."""
SPARE = 500_000
MOST_INSPECTED = 4
"""Runs whose curiosity and predictions are shown: each takes seconds, and room."""
ORDER = ("Scores", "Coverage", "Videos", "Where it was curious", "Open-loop prediction", "Learning", "What was run")


def write_report(runs: str | Path | Sequence[str | Path], out: str | Path | None = None, pairs: Sequence[Pair] = ()) -> Path:
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
    """The page's text: everything but videos first, and videos in the room that is left. Empty sections are left out."""
    build = SectionBuilder()
    parts = {
        "Scores": build("Scores", scores, every),
        "What was run": build.each("What was run", every, what_was_run),
        "Coverage": build("Coverage", coverage, every, pairs),
        "Where it was curious": build.each("Where it was curious", every[:MOST_INSPECTED], curiosity),
        "Open-loop prediction": build.each("Open-loop prediction", every[:MOST_INSPECTED], predict_openly),
        "Learning": build("Learning", learning, every),
    }
    room = LARGEST - SPARE - sum(len(content.encode()) for content in parts.values())
    parts["Videos"] = build("Videos", videos, every, room)
    head = build("Headline", headline, every)
    if build.failed:
        log.warning("Not all could be shown; the page says why: %s.", ", ".join(build.failed))
    if damaged:
        log.warning("%s", " ".join(damaged))
    title = ", ".join(explored.name for explored in every)
    shown = [name for name in ORDER if parts[name]]
    made = f"{title}. Plan2Explore, {datetime.now(UTC).isoformat(sep=' ', timespec='minutes')}"
    links = tag("nav", *(tag("a", name, href=f"#{anchor(name)}") for name in shown))
    top = tag("header", tag("h1", head or title), tag("p", made, class_="soft"), links, *map(missing, damaged))
    return page(f"Plan2Explore: {title}", top, *(section(name, parts[name]) for name in shown))


class SectionBuilder:
    """Makes pieces of the page: nothing in a run's folder may fail it. What has nothing to say is empty; faults are said."""

    def __init__(self) -> None:
        self.failed: dict[str, None] = {}
        """Parts of the page that lack something they should have, in order."""

    def __call__(self, part: str, make: Callable[..., Markup], *arguments: object, name: str = "") -> Markup:
        try:
            return make(*arguments)
        except Missing:
            return Markup()
        except Exception as error:
            self.failed[part] = None
            log.debug("A piece of the report is missing (%s).", name or part, exc_info=error)
            expected = isinstance(error, ValueError | OSError)  # our own sentences; anything else is told by its kind too
            why = f"{error!s:.400}" if expected else f"{type(error).__name__}: {error!s:.300}"
            return missing(f"{name or part}: this could not be shown. {why}")

    def each(self, part: str, every: Sequence[Explored], make: Callable[[Explored], Markup]) -> Markup:
        """A piece for each run."""
        return join(filter(None, (self(part, make, explored, name=explored.name) for explored in every)))
