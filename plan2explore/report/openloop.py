"""Open-loop prediction: the model sees a few steps, then tells from the actions alone what happens next."""

from collections.abc import Sequence

import jax
import numpy as np

from ..agent.inspect import CONTEXT, difference, open_loop, to_pixels
from .charts import Line, chart
from .coordinates import proprio_names
from .curiosity import as_sequence
from .explored import Explored
from .films import encode
from .html import Markup, figure, film, grid, join, tag

STEPS = 50  # the length of a training sequence in the paper
FPS = 10
LARGEST = 2_000_000  # bytes of the video
COORDINATES = 6


def predict_openly(explored: Explored) -> Markup:
    """True and imagined, side by side, from the middle of the last episode."""
    number, episode = explored.last_episode()
    agent, params, steps = explored.load_agent(episode)
    start = max(0, min(len(episode) // 3, len(episode) - STEPS))
    end = min(start + STEPS, len(episode))
    if end - start <= CONTEXT:
        raise ValueError(f"Episode {number} of {explored.name} has only {len(episode)} steps.")
    observation, actions = as_sequence(agent, episode, start, end)
    guess = open_loop(agent, params, observation, actions, jax.random.key(0))
    pieces = []
    if guess.image is not None:
        pieces.append(grid(_video(episode.image[start:end], np.asarray(guess.image)[:, 0])))
    if guess.proprio is not None:
        names = proprio_names(explored.config.world.world, episode)
        pieces.append(grid(_curves(episode.proprio[start:end], np.asarray(guess.proprio)[:, 0], names)))
    repeat = episode.state.shape[1]
    note = (
        f"Episode {number} from env step {start * repeat}, with the model of env step {steps:,}: it sees the first "
        f"{CONTEXT} steps, and imagines the rest from the actions alone."
    )
    return join([tag("h3", explored.label), tag("p", note, class_="soft"), *pieces])


def _video(true: np.ndarray, guess: np.ndarray) -> list[Markup]:
    """True, imagined and their difference beside each other, and the error over time."""
    imagined = to_pixels(guess)
    beside = np.concatenate([true, imagined, difference(true, imagined)], axis=2)
    about = "True, imagined, and their difference (grey where there is none)"
    error = np.square(imagined.astype(float) - true).mean((1, 2, 3)) / 255**2
    caption = f"Mean squared error of images with values from 0 to 1; the first {CONTEXT} steps are seen"
    shown = figure(film(encode(beside, FPS, LARGEST), about, class_="wide"), about)
    return [shown, chart([Line("", np.arange(1, len(error) + 1), error)], "step", "squared error", caption)]


def _curves(true: np.ndarray, guess: np.ndarray, names: Sequence[str]) -> list[Markup]:
    """True and imagined vectors: the numbers that move most."""
    moving = np.sort(np.argsort(-true.std(0), kind="stable")[:COORDINATES])
    x = np.arange(1, len(true) + 1)
    drawn = []
    for index in moving:
        lines = [Line("true", x, true[:, index], colour=0), Line("imagined", x, guess[:, index], colour=1, quiet=True)]
        caption = f"{names[index]}: true, and imagined after the first {CONTEXT} steps"
        drawn.append(chart(lines, "step", names[index], caption))
    return drawn
