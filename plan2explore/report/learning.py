"""How learning went: disagreement, losses and rewards over env steps."""

from collections.abc import Sequence

from .charts import Line, chart
from .explored import Explored, Missing, is_number
from .html import Markup, grid, join, tag

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


def learning(every: Sequence[Explored]) -> Markup:
    """A figure for each metric that any of the runs has."""
    tasks = dict.fromkeys(probe for explored in every for probe in explored.probes)
    wanted = CURVES | {f"{task}/{name}": f"{task}: {about}" for task in tasks for name, about in TASK_CURVES.items()}
    found = {metric: metric_lines(every, metric) for metric in wanted}
    drawn = [chart(lines, "env steps", metric, f"{wanted[metric]} ({metric})") for metric, lines in found.items() if lines]
    if not drawn:
        raise Missing("There are no metrics.")
    return join([tag("p", NOTE, class_="soft"), tag("div", class_="controls curves-controls"), grid(drawn)])


def metric_lines(every: Sequence[Explored], metric: str) -> list[Line]:
    """A metric over env steps, of the runs that have it."""
    lines = []
    for explored in every:
        points = [(line["env_steps"], line[metric]) for line in explored.metrics if is_number(line.get(metric))]
        if points:
            x, y = zip(*points, strict=True)
            lines.append(Line(explored.label, x, y, colour=explored.number, group=explored.method))
    return lines
