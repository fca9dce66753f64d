"""What the agent of the last snapshot makes of the last episode: where its intrinsic reward is high, and what its world
model predicts open-loop.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import jax
import numpy as np
from scipy.signal import find_peaks

from ..agent.agent import Agent, Params
from ..agent.inspect import CONTEXT, difference, intrinsic_rewards, open_loop, posterior_states, to_pixels
from ..agent.world_model import Observation
from ..envs.maze import ANTS, LAYOUTS, QPOS, half_size
from ..envs.names import domain_of
from ..replay import Episode
from .charts import Line, chart, scatter
from .coordinates import proprio_names
from .frames import encode_png, frames_of
from .html import Markup, data_url, figure, grid, join, tag, video
from .run import Missing, ReportRun
from .videos import encode

PEAKS = 6
WARM_UP = 5  # steps at the start of an episode, when the agent knows nothing of it yet, that are left out
APART = 0.04  # of the episode: nearer peaks would show the same moment
EPISODES, POINTS = 8, 1200  # of the map
STEPS = 50  # of a prediction: the length of a training sequence in the paper
FPS = 10
LARGEST = 2_000_000  # bytes of a video of a prediction
COORDINATES = 6  # of a predicted vector


def intrinsic_reward(run: ReportRun) -> Markup:
    """The intrinsic reward along the last episode, what could be observed at its peaks, and a map of latent states."""
    number, episode = run.last_episode()
    agent, params, steps = run.load_agent(episode)
    if agent.objective.reward is None:
        raise Missing(f"{run.about.method} has no intrinsic reward.")
    along = _rewards(agent, params, episode)
    repeat, found = episode.state.shape[1], WARM_UP + peaks(along[WARM_UP:])
    line = Line(run.label, repeat * np.arange(1, len(along) + 1), along, colour=run.number)
    marked = Line("peaks", repeat * (found + 1), along[found], colour=run.number + 1, points=True)
    method = run.about.method
    what = "disagreement, scaled" if method in ("plan2explore", "retrospective") else f"reward of {method}"
    caption = (
        f"Episode {number}, with the agent of env step {steps:,}: {what}, and its peaks after the first {WARM_UP} steps"
    )
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
            episode = run.load_episode(number)
        if episode is None or episode.action.shape != last.action.shape:
            continue  # another length would be compiled anew
        states = posterior_states(agent, params, *as_sequence(agent, episode), jax.random.key(0))
        features.append(np.asarray(states.features, np.float32)[WARM_UP:-1, 0])
        rewards.append(_rewards(agent, params, episode)[WARM_UP:])
        repeat = episode.state.shape[1]
        about += [f"episode {number}, env step {repeat * step}" for step in range(WARM_UP, len(episode) - 1)]
    flat, along = np.concatenate(features), np.concatenate(rewards)
    keep = np.unique(np.linspace(0, len(flat) - 1, POINTS).astype(int))
    centred = flat[keep] - flat[keep].mean(0)
    _, sizes, axes = np.linalg.svd(centred, full_matrices=False)
    rank = np.argsort(np.argsort(along[keep])) / max(len(keep) - 1, 1)
    share = float((sizes[:2] ** 2).sum() / max((sizes**2).sum(), 1e-12))
    caption = f"Latent states of {len(features)} episodes, {share:.0%} of their variance; bright: high {what}"
    told = [f"{about[index]}: {along[index]:.3g}" for index in keep]
    return scatter(centred @ axes[:2].T, rank, told, "first main component", "second", caption)


def _rewards(agent: Agent, params: Params, episode: Episode) -> np.ndarray:
    """The intrinsic reward of each step of an episode."""
    return np.asarray(intrinsic_rewards(agent, params, *as_sequence(agent, episode), jax.random.key(0)))[:, 0]


def peaks(along: np.ndarray, count: int = PEAKS) -> np.ndarray:
    """The highest moments that are not neighbours of a higher one, in the order of time."""
    walled = np.pad(np.where(np.isfinite(along), along, -np.inf), 1, constant_values=-np.inf)  # the ends can be peaks, too
    found = find_peaks(walled, distance=max(1, int(APART * len(along))) + 1)[0] - 1
    return np.sort(found[np.argsort(-along[found], kind="stable")[:count]])


def open_loop_prediction(run: ReportRun) -> Markup:
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
        true, imagined = episode.image[part], to_pixels(np.asarray(guess.image)[:, 0])
        error = np.square(imagined.astype(float) - true).mean((1, 2, 3)) / 255**2
        caption = f"Mean squared error of images with values from 0 to 1; the first {CONTEXT} steps are observed"
        over_time = chart([Line("", np.arange(1, len(error) + 1), error)], "step", "squared error", caption)
        pieces.append(grid([_side_by_side(true, imagined), over_time]))
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


def _vectors(true: np.ndarray, guess: np.ndarray, names: Sequence[str]) -> list[Markup]:
    """True and imagined vectors: the numbers that move most."""
    x, drawn = np.arange(1, len(true) + 1), []
    for index in np.sort(np.argsort(-true.std(0), kind="stable")[:COORDINATES]):
        lines = [Line("true", x, true[:, index], colour=0), Line("imagined", x, guess[:, index], colour=1, quiet=True)]
        caption = f"{names[index]}: true, and imagined after the first {CONTEXT} steps"
        drawn.append(chart(lines, "step", names[index], caption))
    return drawn


def as_sequence(agent: Agent, episode: Episode, part: slice = slice(None)) -> tuple[Observation, Any]:
    """Steps of an episode as a batch of one, time first."""
    image = None if agent.spaces.image is None else jax.numpy.asarray(episode.image[part])[:, None]
    proprio = None if agent.spaces.proprio is None else jax.numpy.asarray(episode.proprio[part])[:, None]
    return Observation(image, proprio), jax.numpy.asarray(episode.action[part])[:, None]
