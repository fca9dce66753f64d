"""What TensorBoard shows of a run beside numbers: how novel its replay is, what it predicts, and what it does."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, UInt8

from ..agent.agent import Agent
from ..agent.inspect import CONTEXT, difference, intrinsic_rewards, open_loop, to_pixels
from ..agent.learner import LearnerState, open_batch
from ..replay.buffer import Replay
from ..runs.metrics import Metrics
from .evaluate import Scores

EPISODES = 8  # whose newest steps are shown
STEPS = 50  # of each: the length of a training sequence in the paper
MOST_FRAMES = 125  # of a video: every fourth of an episode with two env steps per action
FASTEST = 20.0  # frames per second: a browser slows a faster GIF down, and a short video would be over at once


class Preview(NamedTuple):
    """What an agent made of the newest steps in replay. The device may still be at it: whoever reads it, waits."""

    env_steps: int
    intrinsic: Float[Array, "steps batch"] | None = None
    true: UInt8[Array, "time height width 3"] | None = None
    imagined: Float[Array, "time height width 3"] | None = None


def preview_agent(agent: Agent, state: LearnerState, replay: Replay, frames: int, env_steps: int) -> Preview:
    """Asks for the objective's reward and for an open-loop prediction, where the agent has such, without waiting.

    `frames`: stored steps of an episode that nothing ends early.
    Always the same key, which training does not use.
    """
    if not replay.steps:
        return Preview(env_steps)
    newest = replay.newest(EPISODES, min(STEPS, frames))
    preview, key = Preview(env_steps), jax.random.key(0)
    params = {name: state.networks[name].params for name in ("model", "intrinsic")}
    batch = open_batch(agent, newest)
    if agent.objective.reward is not None:
        preview = preview._replace(intrinsic=intrinsic_rewards(agent, params, batch.observation, batch.actions, key))
    if batch.observation.image is not None and len(batch.actions) > CONTEXT:
        first, actions = jax.tree.map(lambda part: part[:, :1], (batch.observation, batch.actions))
        guess = open_loop(agent, params, first, actions, key)
        preview = preview._replace(true=first.image[:, 0], imagined=guess.image[:, 0])
    return preview


def show_preview(metrics: Metrics, preview: Preview, fps: float) -> None:
    """Writes a histogram of the intrinsic reward, and a video of what was true, what was imagined, and the difference."""
    if preview.intrinsic is not None:
        metrics.histogram(preview.env_steps, "intrinsic/reward", preview.intrinsic)
    if preview.imagined is not None:
        true, imagined = np.asarray(preview.true), to_pixels(np.asarray(preview.imagined))
        beside = np.concatenate([true, imagined, difference(true, imagined)], axis=2)
        metrics.video(preview.env_steps, "model/open_loop", beside, min(fps, FASTEST))


def show_episode(metrics: Metrics, scores: Scores, fps: float) -> None:
    """Writes a video of the first episode of an evaluation."""
    if scores.frames is not None:
        every = -(-len(scores.frames) // MOST_FRAMES)
        metrics.video(scores.env_steps, f"evaluation/{scores.task}", scores.frames[::every], min(fps / every, FASTEST))
