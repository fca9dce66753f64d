"""Scores of probes and adaptations with their intervals, beside what the paper and others have published."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..phases.evaluate import FEWEST
from ..reference import METHODS, paper_scores, published_curve
from ..runs.folder import RunFolder
from .explored import Explored, is_number, lines_of, shots_of
from .figures import Line, curves
from .html import Markup, figure, grid, join, missing, table, tag
from .results import FEW_SHOT, OFFLINE, PROBE

NOTE = (
    "A score is the mean sum of rewards over the episodes of the last evaluation (plan2explore table: over the last 20 "
    "episodes, of one evaluation or more); the interval is of that mean, by bootstrap over 3 or more episodes. The paper's "
    "numbers are those of its tables, at 3.5M env steps (zero-shot) and at 1M and 150 episodes of the task (few-shot): "
    "compare with the env steps here, which are those of exploration and of the task's own episodes together. Adaptations "
    "are those in the run's own folder adapt/: one that was written elsewhere (--out) is not shown."
)
NOTE_ON_PUBLISHED = " Dotted: published curves, shaded by one standard deviation over seeds."
PAPER_TABLE = {PROBE: (1, "3.5M"), OFFLINE: (1, "3.5M"), FEW_SHOT: (2, "1M + 150k")}


@dataclass(frozen=True)
class Scored:
    """The evaluations of one task of one run, in order."""

    explored: Explored
    task: str
    protocol: str
    before: float
    """Env steps of exploration that came before the first."""
    shots: int
    lines: list[dict[str, Any]]
    folder: str = ""
    """Of an adaptation."""

    @property
    def label(self) -> str:
        """The run, and the adaptation's folder where that has another name than its task."""
        return f"{self.explored.label}, adapt/{self.folder}" if self.folder not in ("", self.task) else self.explored.label


def find_scores(explored: Explored) -> list[Scored]:
    """All evaluations of a run and of what was adapted from it."""
    found = _by_task(explored, lines_of(explored.run.folder), PROBE, 0.0, 0)
    for folder in explored.adaptations:
        snapshot, shots = folder.settings.get("snapshot"), shots_of(folder)
        before = float(snapshot) if snapshot is not None and is_number(snapshot) else 0.0
        found += _by_task(explored, lines_of(folder), FEW_SHOT if shots else OFFLINE, before, shots, folder.path.name)
    return found


def _by_task(
    explored: Explored, lines: list[dict[str, Any]], protocol: str, before: float, shots: int, folder: str = ""
) -> list[Scored]:
    tasks = dict.fromkeys(line["task"] for line in lines)
    return [
        Scored(explored, task, protocol, before, shots, [line for line in lines if line["task"] == task], folder)
        for task in tasks
    ]


def scores(every: Sequence[Explored]) -> Markup:
    """The last evaluation of everything as a table, and all of them as curves, a figure for each task."""
    found = [scored for explored in every for scored in find_scores(explored)]
    notes = [_unfinished(explored, folder) for explored in every for folder in explored.unfinished]
    notes += [_without_score(explored, folders) for explored in every if (folders := _not_evaluated(explored))]
    if not found:
        return join([*notes, missing("Nothing was evaluated: explore with --probe TASK, or adapt the run to a task.")])
    head = ("Task", "Run", "How", "Env steps", "Score", "95 % interval", "Episodes", "Paper")
    rows = [_row(scored) for scored in sorted(found, key=lambda scored: (scored.task, scored.protocol))]
    lines = {task: _lines(task, found) for task in dict.fromkeys(scored.task for scored in found)}
    # Where no line has two points, the table says more.
    drawn = {task: each for task, each in lines.items() if any(len(line.x) > 1 for line in each)}
    figures = [figure(curves(each, "env steps", "score", named=True), task) for task, each in drawn.items()]
    note = NOTE + NOTE_ON_PUBLISHED * any(line.quiet for each in drawn.values() for line in each)
    return join([*notes, table(head, rows), tag("p", note, class_="soft"), grid(figures)])


def _unfinished(explored: Explored, folder: RunFolder) -> Markup:
    task = folder.settings.get("task", "?")
    return missing(
        f"{explored.label}: the adaptation to {task} in adapt/{folder.path.name} is unfinished. "
        "If nothing is running there any more, its adapt command resumes it."
    )


def _not_evaluated(explored: Explored) -> list[RunFolder]:
    return [folder for folder in explored.adaptations if folder.finished.exists() and not lines_of(folder)]


def _without_score(explored: Explored, folders: Sequence[RunFolder]) -> Markup:
    names = ", ".join(f"adapt/{folder.path.name}" for folder in folders)
    return missing(
        f"{explored.label}: without an evaluation, so without a score here: {names} (adapted with --evaluate-episodes 0, or "
        "evaluations.jsonl is missing or damaged). plan2explore evaluate FOLDER plays such a policy and prints its scores."
    )


def _row(scored: Scored) -> list[Any]:
    last = scored.lines[-1]
    low, high = last["interval"]
    interval = f"{low:.1f} to {high:.1f}" if len(last["episodes"]) >= FEWEST else "too few episodes"
    how = f"{scored.protocol}, {scored.shots} episodes" if scored.shots else scored.protocol
    return [
        scored.task, scored.label, how, f"{scored.before + last['env_steps']:,.0f}",
        tag("strong", f"{last['mean']:.1f}"), interval, len(last["episodes"]), _paper(scored),
    ]  # fmt: skip


def _paper(scored: Scored) -> str:
    """The paper's score of the same method, and of Plan2Explore where that is another."""
    number, steps = PAPER_TABLE[scored.protocol]
    found = paper_scores(scored.task, number)
    shown = [name for name in METHODS if name in (scored.explored.method, "plan2explore") and name in found]
    return "; ".join(f"{found[name]:.0f} ({name}, {steps})" for name in shown) or "not in the paper's table"


def _lines(task: str, found: Sequence[Scored]) -> list[Line]:
    """Scores of a task over env steps: every run's, and what was published."""
    lines = [_line(scored, number) for number, scored in enumerate(s for s in found if s.task == task)]
    furthest = max(max(line.x) for line in lines)
    for method in ("plan2explore", "dreamer"):
        # Only as far as the curves here make comparable: a short run would be a dot in the corner otherwise.
        points = [point for point in published_curve(task, method) if point.env_steps <= 2 * furthest]
        if points:
            x, y = [point.env_steps for point in points], [point.mean for point in points]
            low, high = ([point.mean + sign * point.std for point in points] for sign in (-1, 1))
            lines.append(Line(f"published {method}", x, y, low, high, colour=len(lines), quiet=True))
    return lines


def _line(scored: Scored, number: int) -> Line:
    x = [scored.before + line["env_steps"] for line in scored.lines]
    low, high = ([_end(line, side) for line in scored.lines] for side in (0, 1))
    label = f"{scored.label}, {scored.protocol}"
    return Line(label, x, [line["mean"] for line in scored.lines], low, high, colour=number)


def _end(line: dict[str, Any], side: int) -> float:
    """An end of the shade around an evaluation; none where its episodes are too few for an interval."""
    return line["interval"][side] if len(line["episodes"]) >= FEWEST else float("nan")
