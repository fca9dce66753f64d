"""Scores of probes and adaptations with their intervals, beside what the paper and others have published."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..envs.maze import LAYOUTS
from ..reference import METHODS, paper_scores, published_curve
from ..runs.folder import RunFolder
from ..runs.reader import summary_of
from ..runs.results import FEW_SHOT, OFFLINE, PROBE, SUPERVISED, Result, RunResult, run_results
from .charts import Bar, Line, bars, chart
from .html import Markup, grid, join, missing, table, tag
from .run import Missing, ReportRun
from .tables import grouped

SOLVED = 500
"""Where a task in a maze counts as solved: half of what being at the goal for a whole episode pays."""
PAPER_TABLE = {PROBE: (1, "3.5M"), OFFLINE: (1, "3.5M"), SUPERVISED: (1, "3.5M"), FEW_SHOT: (2, "1M + 150k")}
NOTE = (
    "Mean score of the last evaluation's episodes. The line with ends is its 95 % interval, by bootstrap over 3 or more "
    "episodes; over several seeds, their range."
)
MARKED = (
    " The longer upright line is the paper's score of the method, at 3.5M env steps (zero-shot) or 1M and 150 episodes of "
    "the task (few-shot)."
)
DOTTED = " Dotted: published curves, shaded by one standard deviation over seeds."


@dataclass(frozen=True)
class Scored:
    """The evaluations of one task of one run, in order."""

    run: ReportRun
    folder: RunFolder
    """The exploration's or the adaptation's."""
    evaluations: list[RunResult]

    @property
    def last(self) -> Result:
        """The result that counts."""
        return self.evaluations[-1].result

    @property
    def special(self) -> str:
        """The run and the adaptation's folder, where that is not the task's own."""
        usual = self.folder.kind == "explore" or self.folder.path.name == self.last.task
        return "" if usual else f"{self.run.label}, adapt/{self.folder.path.name}"

    @property
    def label(self) -> str:
        """The run, and the adaptation's folder where it is not the task's own."""
        return self.special or self.run.label

    @property
    def how(self) -> str:
        """The protocol, with the number of episodes where the task's policy collected some."""
        shots = summary_of(self.folder).shots
        return f"{self.last.protocol}, {shots} episodes" if shots else self.last.protocol

    @property
    def paper(self) -> dict[str, float]:
        """The paper's scores of the same method, and of Plan2Explore where that is another."""
        found = paper_scores(self.last.task, PAPER_TABLE[self.last.protocol][0])
        return {name: found[name] for name in METHODS if name in (self.last.method, "plan2explore") and name in found}


def find_scores(run: ReportRun) -> list[Scored]:
    """All evaluations of a run and of what was adapted from it, by task and adaptation."""
    found = [each for each in run_results(run.folder) if each.result.protocol in PAPER_TABLE]
    groups = grouped(found, lambda each: (each.folder.path, each.result.task)).values()
    return [Scored(run, evaluations[0].folder, evaluations) for evaluations in groups]


def scores(runs: Sequence[ReportRun]) -> Markup:
    """The last evaluation of everything as bars and a table, and all of them as curves, a figure for each task."""
    found = [scored for run in runs for scored in find_scores(run)]
    found.sort(key=lambda each: (each.last.task, each.last.protocol))
    notes = [note for run in runs for note in _lacking(run, found)]
    if not found and not notes:
        raise Missing("Nothing was evaluated.")
    if not found:
        return join(notes)
    tasks = grouped(found, lambda each: each.last.task)
    # Seeds of one method and protocol together; a run's own adaptations apart.
    alike = {task: grouped(each, lambda one: (one.last.method, one.how, one.special)) for task, each in tasks.items()}
    compared = {task: [_bar(group) for group in groups.values()] for task, groups in alike.items()}
    every = [bar for each in compared.values() for bar in each]
    most = max(end for bar in every for end in (bar.value, bar.high, bar.mark) if end is not None)
    curves = {task: _lines(task, each) for task, each in tasks.items()}
    curves = {task: lines for task, lines in curves.items() if any(len(line.x) > 1 for line in lines)}
    head = ("Task", "Run", "How", "Env steps", "Score", "95 % interval", "Episodes", "Paper")
    numbers = tag("details", tag("summary", "All scores as a table"), table(head, map(_row, found)))
    note = NOTE + MARKED * any(bar.mark is not None for bar in every)
    note += DOTTED * any(line.quiet for lines in curves.values() for line in lines)
    drawn = grid(bars(task, each, most) for task, each in compared.items())
    figures = grid(chart(lines, "env steps", "score", task) for task, lines in curves.items())
    return join([*notes, drawn, tag("p", note, class_="soft"), numbers, figures])


def solved(found: Sequence[Scored]) -> tuple[int, int] | None:
    """How many tasks have a score of `SOLVED`, and how many there are; none outside mazes."""
    if not found or not all(each.run.about.world.startswith(tuple(LAYOUTS)) for each in found):
        return None
    every = {(each.run.number, each.last.task) for each in found}
    return len({(each.run.number, each.last.task) for each in found if each.last.score >= SOLVED}), len(every)


def _lacking(run: ReportRun, found: Sequence[Scored]) -> list[Markup]:
    """A sentence for each adaptation that has no score, or has not come to its end."""
    shown = {each.folder.path for each in found}
    notes = []
    for folder in run.adaptations[0]:
        name, task = f"adapt/{folder.path.name}", summary_of(folder).task or "?"
        if not folder.finished.exists():
            notes.append(f"{run.label}: the adaptation to {task} in {name} is unfinished; rerun its command to resume.")
        elif folder.path not in shown:
            notes.append(f"{run.label}: without an evaluation, so without a score here: {name}.")
    return list(map(missing, notes))


def _bar(group: Sequence[Scored]) -> Bar:
    first, values = group[0], [each.last.score for each in group]
    low, high = first.evaluations[-1].interval or (None, None)
    label, mark = f"{first.label}, {first.how}", first.paper.get(first.last.method)
    if len(group) > 1:
        low, high, label = min(values), max(values), f"{first.last.method}, {first.how}, {len(group)} runs"
    return Bar(label, float(np.mean(values)), low, high, first.run.number, mark)


def _row(scored: Scored) -> list[object]:
    last, interval = scored.last, scored.evaluations[-1].interval
    steps = PAPER_TABLE[last.protocol][1]
    paper = "; ".join(f"{score:.0f} ({name}, {steps})" for name, score in scored.paper.items())
    return [
        last.task, scored.label, scored.how, f"{last.env_steps:,}", tag("strong", f"{last.score:.1f}"),
        f"{interval[0]:.1f} to {interval[1]:.1f}" if interval else "too few episodes",
        last.episodes, paper or "not in the paper's table",
    ]  # fmt: skip


def _lines(task: str, found: Sequence[Scored]) -> list[Line]:
    """Scores of a task over env steps: every run's, and what was published."""
    lines = []
    for number, each in enumerate(found):
        x, y = zip(*((one.result.env_steps, one.result.score) for one in each.evaluations), strict=True)
        low, high = zip(*(one.interval or (np.nan, np.nan) for one in each.evaluations), strict=True)
        group = f"{each.last.method}, {each.how}"
        lines.append(Line(f"{each.label}, {each.how}", x, y, low, high, colour=number, group=group))
    furthest = max(max(line.x) for line in lines)
    for method in ("plan2explore", "dreamer"):
        # Only as far as the curves here make comparable: a short run would be a dot in the corner otherwise.
        points = [point for point in published_curve(task, method) if point.env_steps <= 2 * furthest]
        if points:
            steps, _, mean, std = np.array(points).T
            lines.append(Line(f"published {method}", steps, mean, mean - std, mean + std, colour=len(lines), quiet=True))
    return lines
