"""How learning went, as curves."""

from collections.abc import Sequence

from ..runs.reader import is_number
from .charts import Line, chart
from .html import Markup, grid, join, tag
from .run import Missing, ReportRun

CURVES = {
    "intrinsic/mean": "Intrinsic reward before normalisation, running mean: how much there still is to learn",
    "explorer/reward": "Intrinsic reward of the explorer's imagined steps",
    "explorer/return": "Return that the explorer expects",
    "explorer/std": "Spread of the explorer's policy",
    "model/loss": "Loss of the world model",
    "model/image": "Negative log-likelihood of images",
    "model/proprio": "Negative log-likelihood of vectors",
    "model/kl": "KL divergence of posterior and prior, in nats",
    "intrinsic/loss": "Loss of the objective's predictor, for an ensemble the sum over its members",
}
TASK_CURVES = {
    "reward": "predicted reward of an imagined step",
    "return": "return that the actor expects",
    "reward_loss": "loss of the reward head",
}
NOTE = "Means over the updates since the point before. Drag to zoom, double-click for the whole, click a name to hide it."


def learning(runs: Sequence[ReportRun]) -> Markup:
    """A figure for each metric that any of the runs has: over env steps, or over updates where no env step was made."""
    tasks = dict.fromkeys(probe for run in runs for probe in run.about.probes)
    wanted = CURVES | {f"{task}/{name}": f"{task}: {about}" for task in tasks for name, about in TASK_CURVES.items()}
    explored = any(len({line["env_steps"] for line in run.metrics}) > 1 for run in runs)
    axis, name = ("env_steps", "env steps") if explored else ("update", "updates")
    drawn = []
    for metric, about in wanted.items():
        lines = metric_lines(runs, metric, axis)
        if any(len(line.x) > 1 for line in lines):
            drawn.append(chart(lines, name, metric, f"{about} ({metric})"))
    if not drawn:
        raise Missing("No metric was written twice.")
    return join([tag("p", NOTE, class_="soft"), tag("div", class_="controls curves-controls"), grid(drawn)])


def metric_lines(runs: Sequence[ReportRun], metric: str, axis: str = "env_steps") -> list[Line]:
    """A metric over another, of the runs that have it."""
    lines = []
    for run in runs:
        points = [(line.get(axis), line.get(metric)) for line in run.metrics]
        if points := [point for point in points if all(map(is_number, point))]:
            lines.append(run.line(*zip(*points, strict=True)))
    return lines
