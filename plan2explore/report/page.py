"""`plan2explore report`: runs as one HTML page that holds all that it shows."""

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from ..atomic import write_file
from ..device import prepare_device
from .coverage import Pair, coverage
from .facts import headline, what_was_run
from .html import Markup, anchor, join, missing, page, tag
from .inspection import intrinsic_reward, open_loop_prediction
from .learning import learning
from .run import Missing, ReportRun, open_runs
from .scores import scores
from .videos import videos

log = logging.getLogger("plan2explore.report")
LARGEST = 20_000_000
"""Bytes of a page: what one can still send to someone."""
SPARE = 500_000
MOST_INSPECTED = 4
"""Runs whose intrinsic reward and predictions are shown: each takes seconds, and room."""


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
    found, damaged = open_runs(folders)
    out = Path(out or (folders[0] / "report.html" if len(folders) == 1 else "report.html"))
    out.parent.mkdir(parents=True, exist_ok=True)
    write_file(out, [compose(found, damaged, pairs).encode()])
    return out


def compose(runs: Sequence[ReportRun], damaged: Sequence[str] = (), pairs: Sequence[Pair] = ()) -> str:
    """The page's text: everything but videos first, and videos in the room that is left. Empty sections are left out."""
    build, inspected = SectionBuilder(), runs[:MOST_INSPECTED]
    sections = {
        "Scores": build("Scores", scores, runs),
        "Coverage": build("Coverage", coverage, runs, pairs),
        "Videos": Markup(),
        "Where it was curious": build.each("Where it was curious", inspected, intrinsic_reward),
        "Open-loop prediction": build.each("Open-loop prediction", inspected, open_loop_prediction),
        "Learning": build("Learning", learning, runs),
        "What was run": build.each("What was run", runs, what_was_run),
    }
    room = LARGEST - SPARE - sum(len(content.encode()) for content in sections.values())
    sections["Videos"] = build("Videos", videos, runs, room)
    head = build("Headline", headline, runs)
    if build.failed:
        log.warning("Not all could be shown; the page says why: %s.", ", ".join(build.failed))
    if damaged:
        log.warning("%s", " ".join(damaged))
    title = ", ".join(run.name for run in runs)
    shown = {name: content for name, content in sections.items() if content}
    made = f"{title}. Plan2Explore, {datetime.now(UTC).isoformat(sep=' ', timespec='minutes')}"
    links = tag("nav", *(tag("a", name, href=f"#{anchor(name)}") for name in shown))
    top = tag("header", tag("h1", head or title), tag("p", made, class_="soft"), links, *map(missing, damaged))
    body = (tag("section", tag("h2", name), content, id=anchor(name)) for name, content in shown.items())
    return page(f"Plan2Explore: {title}", top, *body)


class SectionBuilder:
    """Makes pieces of the page: nothing in a run's folder may fail it. What has nothing to say is empty; faults are said."""

    def __init__(self) -> None:
        self.failed: dict[str, None] = {}
        """Sections that lack something they should have, in order."""

    def __call__(self, section: str, make: Callable[..., Markup], *arguments: object, name: str = "") -> Markup:
        try:
            return make(*arguments)
        except Missing:
            return Markup()
        except Exception as error:
            self.failed[section] = None
            log.debug("A piece of the report is missing (%s).", name or section, exc_info=error)
            expected = isinstance(error, ValueError | OSError)  # our own sentences; anything else is told by its kind too
            why = f"{error!s:.400}" if expected else f"{type(error).__name__}: {error!s:.300}"
            return missing(f"{name or section}: this could not be shown. {why}")

    def each(self, section: str, runs: Sequence[ReportRun], make: Callable[[ReportRun], Markup]) -> Markup:
        """A piece for each run."""
        return join(filter(None, (self(section, make, run, name=run.name) for run in runs)))
