"""Where the agent's intrinsic reward is high: along an episode, at its peaks, and among the latent states."""

from contextlib import suppress
from typing import Any

import jax
import numpy as np
from scipy.signal import find_peaks

from ..agent.agent import Agent, Params
from ..agent.inspect import intrinsic_rewards, posterior_states
from ..agent.world_model import Observation
from ..replay import Episode
from .charts import Line, chart, cloud
from .frames import encode_png, frames_of
from .html import Markup, data_url, figure, grid, join, tag
from .run import Missing, ReportRun

PEAKS = 6
WAKING = 5  # steps at the start of an episode, when the agent knows nothing of it yet, that are left out
APART = 0.04  # of the episode: nearer peaks would show the same moment
EPISODES, POINTS = 8, 1200  # of the map


def curiosity(run: ReportRun) -> Markup:
    """The intrinsic reward along the last episode, what could be observed at its peaks, and a map of latent states."""
    number, episode = run.last_episode()
    agent, params, steps = run.load_agent(episode)
    if agent.objective.reward is None:
        raise Missing(f"{run.about.method} has no intrinsic reward.")
    along = _rewards(agent, params, episode)
    repeat, found = episode.state.shape[1], WAKING + peaks(along[WAKING:])
    line = Line(run.label, repeat * np.arange(1, len(along) + 1), along, colour=run.number)
    marked = Line("peaks", repeat * (found + 1), along[found], colour=run.number + 1, points=True)
    method = run.about.method
    what = "disagreement, scaled" if method in ("plan2explore", "retrospective") else f"reward of {method}"
    caption = f"Episode {number}, with the agent of env step {steps:,}: {what}, and its peaks after the first {WAKING} steps"
    drawing = chart([line, marked], "env step of the episode", what, caption)
    frames = []
    for index in found:
        about, frame = f"env step {repeat * (index + 1)}", frames_of(episode, slice(index + 1, index + 2))[0]
        image = tag("img", src=data_url("image/png", encode_png(frame, 160)), alt=about)
        frames.append(figure(image, f"{about}: {along[index]:.3g}"))
    latent = _latents(run, agent, params, episode, what)
    return join([tag("h3", run.label), grid([drawing, latent]), tag("div", *frames, class_="strip")])


def _latents(run: ReportRun, agent: Agent, params: Params, last: Episode, what: str) -> Markup:
    """Latent states of episodes from the whole run by their two main components, coloured by the rank of their reward."""
    numbers = run.episodes.numbers()
    features, rewards, about = [], [], []
    for number in dict.fromkeys(numbers[index] for index in np.linspace(0, len(numbers) - 1, EPISODES).astype(int)):
        episode = None
        with suppress(ValueError, OSError):
            episode = run.episodes.load(number)
        if episode is None or episode.action.shape != last.action.shape:
            continue  # another length would be compiled anew
        states = posterior_states(agent, params, *as_sequence(agent, episode), jax.random.key(0))
        features.append(np.asarray(states.features, np.float32)[WAKING:-1, 0])
        rewards.append(_rewards(agent, params, episode)[WAKING:])
        repeat = episode.state.shape[1]
        about += [f"episode {number}, env step {repeat * step}" for step in range(WAKING, len(episode) - 1)]
    flat, along = np.concatenate(features), np.concatenate(rewards)
    keep = np.unique(np.linspace(0, len(flat) - 1, POINTS).astype(int))
    centred = flat[keep] - flat[keep].mean(0)
    _, sizes, axes = np.linalg.svd(centred, full_matrices=False)
    rank = np.argsort(np.argsort(along[keep])) / max(len(keep) - 1, 1)
    share = float((sizes[:2] ** 2).sum() / max((sizes**2).sum(), 1e-12))
    caption = f"Latent states of {len(features)} episodes, {share:.0%} of their variance; bright: high {what}"
    told = [f"{about[index]}: {along[index]:.3g}" for index in keep]
    return cloud(centred @ axes[:2].T, rank, told, "first main component", "second", caption)


def _rewards(agent: Agent, params: Params, episode: Episode) -> np.ndarray:
    """The intrinsic reward of each step of an episode."""
    return np.asarray(intrinsic_rewards(agent, params, *as_sequence(agent, episode), jax.random.key(0)))[:, 0]


def as_sequence(agent: Agent, episode: Episode, part: slice = slice(None)) -> tuple[Observation, Any]:
    """Steps of an episode as a batch of one, time first."""
    image = None if agent.spaces.image is None else jax.numpy.asarray(episode.image[part])[:, None]
    proprio = None if agent.spaces.proprio is None else jax.numpy.asarray(episode.proprio[part])[:, None]
    return Observation(image, proprio), jax.numpy.asarray(episode.action[part])[:, None]


def peaks(along: np.ndarray, count: int = PEAKS) -> np.ndarray:
    """The highest moments that are not neighbours of a higher one, in the order of time."""
    walled = np.pad(np.where(np.isfinite(along), along, -np.inf), 1, constant_values=-np.inf)  # the ends can be peaks, too
    found = find_peaks(walled, distance=max(1, int(APART * len(along))) + 1)[0] - 1
    return np.sort(found[np.argsort(-along[found], kind="stable")[:count]])
