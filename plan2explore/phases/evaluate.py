"""Evaluating: whole episodes with the policy's mode, and what can be said of their scores."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from scipy import stats

from ..agent.acting import Mode
from ..agent.learner import Learner, LearnerState
from ..agent.optimizer import TrainState
from ..console import counted
from ..envs import Task, VectorEnv
from ..runs.reader import FEWEST
from .collect import select_obs


@dataclass(frozen=True)
class Scores:
    """The scores of an evaluation: every episode's sum of rewards."""

    task: str
    episodes: tuple[float, ...]
    env_steps: int = 0
    """How much the agent had explored, or collected for the task."""
    frames: np.ndarray | None = field(default=None, repr=False, compare=False)
    """The first episode's frames, if they were asked for."""

    @property
    def mean(self) -> float:
        """Mean over episodes."""
        return float(np.mean(self.episodes))

    @property
    def std(self) -> float:
        """Standard deviation over episodes; 0 for a single one."""
        return float(np.std(self.episodes, ddof=1)) if len(self.episodes) > 1 else 0.0

    @property
    def iqm(self) -> float:
        """Interquartile mean: of the middle half of the episodes."""
        return float(stats.trim_mean(self.episodes, 0.25))

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the mean, by bootstrap over the episodes: with fewer than 3 of them it means nothing."""
        values = np.asarray(self.episodes)
        if len(values) < 2 or np.ptp(values) == 0:
            return self.mean, self.mean
        found = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=2000, rng=np.random.default_rng(0))
        return float(found.confidence_interval.low), float(found.confidence_interval.high)

    def summary(self) -> dict[str, Any]:
        """All of it as plain numbers, for a file."""
        plain = {name: getattr(self, name) for name in ("task", "env_steps", "mean", "std", "iqm")}
        return plain | {"interval": list(self.interval), "episodes": list(self.episodes)}

    def __str__(self) -> str:
        count = counted(len(self.episodes), "episode")
        about = f"{self.task}: {self.mean:.1f} (std {self.std:.1f}, interquartile mean {self.iqm:.1f}"
        if len(self.episodes) < FEWEST:
            return f"{about}, {count}: too few for an interval)"
        low, high = self.interval
        return f"{about}, 95 % interval {low:.1f} to {high:.1f}, {count})"


def acting_copy(state: LearnerState) -> LearnerState:
    """Only what acting needs, copied: training may reuse the original's memory."""
    copied = {name: TrainState(jax.numpy.copy(state.networks[name].params), None) for name in ("model", "actor")}
    return state._replace(networks=copied)


def step_key(key: Any, step: int, task: int) -> Any:
    """The random key of one step of one task's episodes."""
    return jax.random.fold_in(jax.random.fold_in(key, step), task)


def evaluate_tasks(
    learner: Learner,
    state: LearnerState,
    vector: VectorEnv,
    tasks: Sequence[Task],
    rows: Sequence[int],
    key: Any,
    env_steps: int = 0,
    mode: Mode = "mode",
    frames: bool = False,
    episode: int = 0,
) -> Generator[None, None, list[Scores]]:
    """Plays the episode of this number in every environment of `make_for_tasks`, each task with its row of the agent.

    Pauses whenever actions are being computed, so that the caller can give the device other work meanwhile;
    `finish` runs it to the end.
    """
    each = vector.count // len(tasks)
    shares = [slice(index * each, (index + 1) * each) for index in range(len(tasks))]
    carried = [learner.carry(each) for _ in tasks]
    batch = vector.reset(episode)
    scores, running = np.zeros(vector.count), np.ones(vector.count, bool)
    kept: list[np.ndarray] = []
    lengths = np.zeros(vector.count, int)
    step = 0
    while running.any():
        if frames:
            kept.append(batch.image[:: each or 1].copy())
        actions = []
        for index, share in enumerate(shares):
            observation = select_obs(learner.agent.spaces, batch.image[share], batch.proprio[share])
            is_first, acting_key = np.array(batch.first[share]), step_key(key, step, index)
            action, carried[index] = learner.act(state, carried[index], observation, is_first, acting_key, mode, rows[index])
            actions.append(action)
        yield
        batch = vector.step(np.concatenate([np.asarray(action) for action in actions]))
        lengths += running
        scores += np.where(running, batch.reward, 0.0)
        # A worker that died has begun a new episode: it counts from there, as an episode of its own.
        scores[batch.lost & running] = 0.0
        running &= ~(batch.terminated | batch.truncated)
        step += 1
    found = []
    for index, (task, share) in enumerate(zip(tasks, shares, strict=True)):
        video = np.stack([each[index] for each in kept[: lengths[share][0]]]) if frames else None
        found.append(Scores(task.name, tuple(scores[share].tolist()), env_steps, video))
    return found


def finish(playing: Generator[None, None, list[Scores]]) -> list[Scores]:
    """Runs an evaluation to its end."""
    while True:
        try:
            next(playing)
        except StopIteration as end:
            return end.value
