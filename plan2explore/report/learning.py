"""How learning went: disagreement, losses and rewards over env steps."""

from collections.abc import Sequence

from .explored import Explored, is_number
from .figures import Line, curves, outside, upright_axis
from .html import Markup, figure, grid, join, missing, tag

CURVES = {
    "explorer/reward": "What the explorer expects of imagined steps: disagreement, scaled (or its objective's reward)",
    "explorer/return": "What the explorer expects in the long run",
    "model/loss": "The world model's loss",
    "model/image": "What the decoder misses of pictures (half the squared error, summed over pixels)",
    "model/proprio": "What the decoder misses of proprioception",
    "model/kl": "Divergence of the posterior from the prior, in nats",
    "intrinsic/loss": "Loss of the objective's own predictor: the ensemble's members together",
}
TASK_CURVES = {
    "reward": "Reward per imagined step, as its head tells it",
    "return": "What the critic expects in the long run",
    "reward_loss": "What the reward head misses",
}


def learning(every: Sequence[Explored]) -> Markup:
    """A figure for each metric that any of the runs has."""
    tasks = dict.fromkeys(probe for explored in every for probe in explored.probes)
    wanted = CURVES | {f"{task}/{name}": f"{about}: {task}" for task in tasks for name, about in TASK_CURVES.items()}
    drawn = []
    for metric, about in wanted.items():
        lines = [line for explored in every if (line := metric_line(explored, metric))]
        if lines:
            logarithmic, limits = upright_axis(lines)
            drawing = curves(lines, "env steps", metric, logarithmic, len(every) > 1, limits)
            drawn.append(figure(drawing, about + outside(lines, limits)))
    empty = [missing(f"{explored.name} has no metrics that can be read.") for explored in every if not explored.metrics]
    note = "Each point is the mean over the updates since the one before."
    return join([*empty, tag("p", note, class_="soft") if drawn else "", grid(drawn)])


def metric_line(explored: Explored, metric: str) -> Line | None:
    """A metric of a run over env steps; none if the run does not have it."""
    points = [(line["env_steps"], line[metric]) for line in explored.metrics if is_number(line.get(metric))]
    if not points:
        return None
    x, y = zip(*points, strict=True)
    return Line(explored.label, x, y, colour=explored.number)
