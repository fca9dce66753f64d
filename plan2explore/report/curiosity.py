"""Where in an episode the agent was curious: the ensemble's disagreement along it, and the frames at its peaks."""

from typing import Any

import jax
import numpy as np

from ..agent.agent import Agent
from ..agent.inspect import intrinsic_rewards
from ..agent.world_model import Observation
from ..replay import Episode
from .explored import Explored, Missing
from .figures import Line, curves
from .html import Markup, figure, grid, join, picture, tag
from .pictures import encode_png, frames_of

PEAKS = 6
WAKING = 5  # steps: an agent that has just opened its eyes knows nothing yet, and that is no curiosity
APART = 0.04  # of the episode: nearer peaks would show the same moment


def curiosity(explored: Explored) -> Markup:
    """Disagreement along the last episode, and what was to be seen at its peaks."""
    number, episode = explored.last_episode()
    agent, params, steps = explored.load_agent(episode)
    if agent.objective.reward is None:
        raise Missing(f"{explored.method} has no intrinsic reward, so there is nothing to show.")
    observation, actions = as_sequence(agent, episode)
    along = np.asarray(intrinsic_rewards(agent, params, observation, actions, jax.random.key(0)))[:, 0]
    repeat, found = episode.state.shape[1], WAKING + peaks(along[WAKING:])
    line = Line(explored.label, repeat * np.arange(1, len(along) + 1), along, colour=explored.number)
    marked = Line("peaks", repeat * (found + 1), along[found], colour=explored.number + 1, points=True)
    what = "disagreement, scaled" if explored.method in ("plan2explore", "retrospective") else f"reward of {explored.method}"
    drawing = curves([line, marked], "env step of the episode", what)
    caption = (
        f"Episode {number} of {explored.label}, seen with the agent of env step {steps:,}: {what}, and its peaks after the "
        f"first {WAKING} steps"
    )
    frames = [_frame(episode, index, float(along[index])) for index in found]
    return join([tag("h3", explored.label), grid([figure(drawing, caption), tag("div", *frames, class_="strip")])])


def as_sequence(agent: Agent, episode: Episode, start: int = 0, end: int | None = None) -> tuple[Observation, Any]:
    """Steps of an episode as a batch of one, time first."""
    spaces, cut = agent.spaces, slice(start, end)
    image = None if spaces.image is None else jax.numpy.asarray(episode.image[cut])[:, None]
    proprio = None if spaces.proprio is None else jax.numpy.asarray(episode.proprio[cut])[:, None]
    return Observation(image, proprio), jax.numpy.asarray(episode.action[cut])[:, None]


def peaks(along: np.ndarray, count: int = PEAKS) -> np.ndarray:
    """The highest moments that are not neighbours of a higher one, in the order of time."""
    apart, left = max(1, int(APART * len(along))), along.astype(float).copy()
    found: list[int] = []
    while len(found) < count and np.isfinite(left).any():
        top = int(np.nanargmax(np.where(np.isfinite(left), left, -np.inf)))
        found.append(top)
        left[max(0, top - apart) : top + apart + 1] = -np.inf
    return np.array(sorted(found), int)


def _frame(episode: Episode, index: int, value: float) -> Markup:
    step = (index + 1) * episode.state.shape[1]
    png = encode_png(frames_of(episode, slice(index + 1, index + 2))[0], 160)
    return figure(picture(png, f"frame at env step {step}"), f"env step {step}: {value:.3g}")
