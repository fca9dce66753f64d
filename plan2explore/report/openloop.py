"""Open-loop prediction: the model sees a few frames, then tells from the actions alone what happens next."""

from collections.abc import Sequence

import jax
import numpy as np

from ..agent.inspect import CONTEXT, difference, open_loop, to_pixels
from .coordinates import proprio_names
from .curiosity import as_sequence
from .explored import Explored
from .figures import Line, curves
from .html import Markup, figure, grid, join, picture, tag
from .pictures import encode_png, enlarge

STEPS = 50  # the length of a training sequence in the paper
SHOWN = (0, 4, 5, 7, 10, 15, 25, 35, 49)  # steps on the strip
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
        pieces.append(_strip(episode.image[start:end], np.asarray(guess.image)[:, 0]))
    if guess.proprio is not None:
        names = proprio_names(explored.config.world.world, episode)
        pieces.append(_curves(episode.proprio[start:end], np.asarray(guess.proprio)[:, 0], names))
    repeat = episode.state.shape[1]
    note = (
        f"Episode {number} from env step {start * repeat}, with the model of env step {steps:,}: it sees the first "
        f"{CONTEXT} steps, and imagines the rest from the actions alone."
    )
    return join([tag("h3", explored.label), tag("p", note, class_="soft"), *pieces])


def _strip(true: np.ndarray, guess: np.ndarray) -> Markup:
    """Frames as columns; rows: true, imagined, difference (grey: none)."""
    imagined = to_pixels(guess)
    apart = difference(true, imagined)
    shown = [index for index in SHOWN if index < len(true)]
    frames = []
    for index in shown:
        column = enlarge(np.concatenate([true[index], imagined[index], apart[index]]), 96)
        name = f"step {index + 1}" + (", seen" if index < CONTEXT else "")
        frames.append(figure(picture(encode_png(column), f"true, imagined and difference at {name}"), name))
    error = np.square(imagined.astype(float) - true).mean((1, 2, 3)) / 255**2
    drawing = curves([Line("", np.arange(1, len(error) + 1), error)], "step", "mean squared error")
    caption = f"Error of pictures with values from 0 to 1; the first {CONTEXT} steps are seen, the others imagined"
    about = "From the top: true, imagined, difference (grey where there is none)."
    return join([tag("p", about), tag("div", *frames, class_="strip"), grid([figure(drawing, caption)])])


def _curves(true: np.ndarray, guess: np.ndarray, names: Sequence[str]) -> Markup:
    """True and imagined proprioception: the numbers that move most."""
    moving = np.sort(np.argsort(-true.std(0), kind="stable")[:COORDINATES])
    x = np.arange(1, len(true) + 1)
    drawn = []
    for index in moving:
        lines = [Line("true", x, true[:, index], colour=0), Line("imagined", x, guess[:, index], colour=1, quiet=True)]
        drawn.append(figure(curves(lines, "step", names[index]), f"{names[index]} (number {index} of proprioception)"))
    return grid(drawn)
