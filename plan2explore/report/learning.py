"""How learning went, as curves; and what the world model predicts open-loop: it observes a few steps, and imagines the rest
from the actions alone.
"""

from collections.abc import Sequence

import jax
import numpy as np

from ..agent.inspect import CONTEXT, difference, open_loop, to_pixels
from ..envs.maze import ANTS, LAYOUTS, QPOS, half_size
from ..envs.names import domain_of
from ..replay import Episode
from ..runs.reader import is_number
from .charts import Line, chart
from .coordinates import proprio_names
from .curiosity import as_sequence
from .frames import frames_of
from .html import Markup, figure, grid, join, tag, video
from .run import Missing, ReportRun
from .videos import encode

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
STEPS = 50  # of a prediction: the length of a training sequence in the paper
FPS = 10
LARGEST = 2_000_000  # bytes of a video
COORDINATES = 6


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


def predict_openly(run: ReportRun) -> Markup:
    """True and imagined, side by side, from the middle of the last episode."""
    number, episode = run.last_episode()
    agent, params, steps = run.load_agent(episode)
    start = max(0, min(len(episode) // 3, len(episode) - STEPS))
    part = slice(start, min(start + STEPS, len(episode)))
    if part.stop - start <= CONTEXT:
        raise ValueError(f"Episode {number} of {run.name} has only {len(episode)} steps.")
    guess = open_loop(agent, params, *as_sequence(agent, episode, part), jax.random.key(0))
    pieces = []
    if guess.image is not None:
        pieces.append(grid(_images(episode.image[part], to_pixels(np.asarray(guess.image)[:, 0]))))
    if guess.proprio is not None:
        imagined = np.asarray(guess.proprio)[:, 0]
        states = None if guess.image is not None else imagined_states(episode, part, imagined)
        if states is not None:
            pieces.append(grid([_side_by_side(frames_of(episode, part), frames_of(episode, part, states))]))
        names = proprio_names(run.config.world.world, episode)
        pieces.append(grid(_vectors(episode.proprio[part], imagined, names)))
    note = (
        f"Episode {number} from env step {start * episode.state.shape[1]}, with the model of env step {steps:,}: it "
        f"observes the first {CONTEXT} steps, and imagines the rest from the actions alone."
    )
    return join([tag("h3", run.label), tag("p", note, class_="soft"), *pieces])


def imagined_states(episode: Episode, part: slice, proprio: np.ndarray) -> np.ndarray | None:
    """States with the positions that were imagined: of the mazes' point, whose vector is its whole state; else none."""
    maze = domain_of(episode.world)
    if maze not in LAYOUTS or maze in ANTS:
        return None
    states = episode.last_states()[part]
    states[:, QPOS] = half_size(maze) * proprio[:, :2]
    return states


def _side_by_side(true: np.ndarray, imagined: np.ndarray) -> Markup:
    about = "True, imagined, and their difference (grey where there is none)"
    beside = np.concatenate([true, imagined, difference(true, imagined)], axis=2)
    return figure(video(encode(beside, FPS, LARGEST), about, class_="wide"), about)


def _images(true: np.ndarray, imagined: np.ndarray) -> list[Markup]:
    """True and imagined images, and the error over time."""
    error = np.square(imagined.astype(float) - true).mean((1, 2, 3)) / 255**2
    caption = f"Mean squared error of images with values from 0 to 1; the first {CONTEXT} steps are observed"
    line = Line("", np.arange(1, len(error) + 1), error)
    return [_side_by_side(true, imagined), chart([line], "step", "squared error", caption)]


def _vectors(true: np.ndarray, guess: np.ndarray, names: Sequence[str]) -> list[Markup]:
    """True and imagined vectors: the numbers that move most."""
    x, drawn = np.arange(1, len(true) + 1), []
    for index in np.sort(np.argsort(-true.std(0), kind="stable")[:COORDINATES]):
        lines = [Line("true", x, true[:, index], colour=0), Line("imagined", x, guess[:, index], colour=1, quiet=True)]
        caption = f"{names[index]}: true, and imagined after the first {CONTEXT} steps"
        drawn.append(chart(lines, "step", names[index], caption))
    return drawn
