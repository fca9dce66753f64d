"""Collecting: environments step, and what they return becomes episodes on disk and steps in replay."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from ..agent.world_model import Observation
from ..config import Spaces, WorldConfig
from ..envs import Task, VectorEnv
from ..envs.maze import Coverage
from ..envs.vector import Batch
from ..envs.worker import episode_seed
from ..replay import Episode
from ..replay.buffer import Replay, replay_rows
from ..replay.files import EpisodeFolder
from ..replay.relabel import label_rows
from .world import WorldInfo


def select_obs(spaces: Spaces, image: np.ndarray, proprio: np.ndarray) -> Observation:
    """The part of an environment's observations that the agent takes, copied."""
    taken_image: Any = None if spaces.image is None else np.array(image)
    taken_proprio: Any = None if spaces.proprio is None else np.array(proprio)
    return Observation(taken_image, taken_proprio)


def as_batch(spaces: Spaces, observation: Any) -> tuple[Observation, bool]:
    """What the agent observes as a batch, copied, and whether it was a single one.

    It is an image, a vector, or a dictionary with `image`, `proprio` or both, as the agent's spaces say.
    """
    image, proprio = (spaces.image, spaces.image, 3), (spaces.proprio,)
    shapes = {name: shape for name, shape in (("image", image), ("proprio", proprio)) if None not in shape}
    given = observation if isinstance(observation, Mapping) else dict.fromkeys(shapes, observation)
    parts = {name: np.array(given[name]) for name in shapes if name in given}
    batches = {part.shape[: -len(shapes[name])] for name, part in parts.items()}
    fits = [name in parts and parts[name].shape[-len(shape) :] == shape for name, shape in shapes.items()]
    kinds = [part.dtype == np.uint8 if name == "image" else part.dtype.kind in "iuf" for name, part in parts.items()]
    if not all(fits + kinds) or len(batches) != 1 or len(batch := batches.pop()) > 1:
        expected = " and ".join(f"{name} {shape}{', uint8' * (name == 'image')}" for name, shape in shapes.items())
        found = ", ".join(f"{name} {part.dtype} {part.shape}" for name, part in parts.items()) or repr(observation)
        raise ValueError(f"The agent observes {expected}, or a batch of it; got {found:.200}.")
    taken: dict[str, Any] = {name: part if batch else part[None] for name, part in parts.items()}
    return Observation(**taken), not batch


def label_steps(episode: Episode, tasks: Sequence[Task], start: int, left_out: int = 0) -> Float[np.ndarray, "steps tasks"]:
    """Rewards of all tasks for the steps from `start` on: what an episode that still runs has new.

    `left_out`: steps before the first one here, if these are not all.
    """
    rewards = np.zeros((len(episode) - start, len(tasks)))
    first = max(start, 1)  # nothing was done yet at the first observation
    last = episode.state[first - 1]
    before = last[~np.isnan(last).all(-1)][-1]
    for column, task in enumerate(tasks):
        rewards[first - start :, column] = label_rows(
            episode.world, task, episode.state[first:], episode.drawn,
            before=before, first_step=first + left_out, spaces=episode.meta.get("spaces"),
        )  # fmt: skip
    return rewards


@dataclass
class Running:
    """An episode that is being played in one environment."""

    number: int
    """The environment's count of episodes."""
    reset_params: np.ndarray
    """What its reset drew beyond the state."""
    policies: list[str] = field(default_factory=list)
    """Who chose its actions, one after the other."""
    steps: list[tuple[np.ndarray, ...]] = field(default_factory=list)
    env_steps: int = 0
    flushed: int = 0
    """Steps that replay has."""
    terminated: bool = False
    done: bool = False


class Collector:
    """Steps all environments together, writes finished episodes to disk, and appends steps to replay.

    Each environment has a stream of its own. With `piece`, replay gets a running episode every so many steps; without,
    whole episodes only.
    """

    def __init__(
        self,
        vector: VectorEnv,
        replay: Replay,
        folder: EpisodeFolder,
        tasks: Sequence[Task],
        world: WorldConfig,
        info: WorldInfo,
        spaces: Spaces,
        seed: int,
        piece: int | None = None,
        coverage: Coverage | None = None,
    ) -> None:
        self.vector, self.replay, self.folder, self.tasks, self.count = vector, replay, folder, tasks, vector.count
        self.world, self.info, self.spaces, self.seed, self.piece = world, info, spaces, seed, piece
        self.coverage = coverage
        self.policy = "random"
        self.finished_steps = 0
        """Env steps of the episodes that this collector has finished."""
        self.finished_episodes = 0
        self.notes: dict[str, Any] = {}
        """Kept with each episode that ends: how much the agent had learned."""
        self.is_first: Bool[np.ndarray, " environments"] = np.ones(vector.count, bool)
        self.worker_restarted = False
        """Whether an episode was lost at the last step, because its process died."""
        self._round = False
        self._running: list[Running | None] = [None] * vector.count
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="episodes")
        self._writes: list[Future[None]] = []

    @property
    def env_steps(self) -> int:
        """Env steps so far, those of running episodes included."""
        return self.finished_steps + sum(running.env_steps for running in self._running if running)

    def reset(self, episode: int | None = None) -> None:
        """Starts an episode everywhere, and drops those that were running.

        With the `episode`'s number, a round: environments that are done are ignored, and when all are, all episodes are
        kept at once. Without, each environment plays one episode after the other.
        """
        self._round = episode is not None
        for index in range(self.count):
            self._drop(index)
        self._take(self.vector.reset(episode), np.zeros((self.count, self.info.action), np.float32))

    def send(self, actions: np.ndarray) -> None:
        """Starts a step in every environment."""
        self._actions = np.asarray(actions, np.float32)
        for running in self._running:
            if running and running.policies[-1:] != [self.policy]:
                running.policies.append(self.policy)
        self.vector.send(self._actions)

    def receive(self) -> None:
        """Waits for the step and keeps what came of it."""
        self._take(self.vector.receive(), self._actions)

    def check_writes(self, wait: bool = False) -> None:
        """Raises what went wrong when episodes were written: a full disk, say. `wait` for those under way."""
        while self._writes and (wait or self._writes[0].done()):
            self._writes.pop(0).result()

    def close(self) -> None:
        """Waits for episodes that are being written, and ends the environments."""
        self._writer.shutdown(wait=True)
        self.vector.close()

    def _take(self, batch: Batch, actions: np.ndarray) -> None:
        self.is_first, self.worker_restarted = np.array(batch.first), bool(batch.lost.any())
        self.observation = select_obs(self.spaces, batch.image, batch.proprio)
        if self.coverage:
            self.coverage.add(batch.state)
        for index in range(self.count):
            running = self._running[index]
            if running and running.done:
                continue
            if running is None or batch.first[index]:
                self._drop(index)
                running = Running(int(batch.episodes[index]) - 1, batch.drawn[index].copy())
                self._running[index] = running
            action = np.zeros_like(actions[index]) if batch.first[index] else actions[index]
            obs = batch.image[index].copy(), batch.proprio[index].copy()
            running.steps.append((*obs, action, batch.reward[index], batch.state[index].copy()))
            running.env_steps = int(batch.env_steps[index])
            running.terminated = bool(batch.terminated[index])
            running.done = running.terminated or bool(batch.truncated[index])
            if self.piece and not running.done and len(running.steps) - running.flushed >= self.piece:
                self._flush_to_replay(index, running)
        done = [(index, running) for index, running in enumerate(self._running) if running and running.done]
        if not self._round or len(done) == self.count:
            for index, running in done:
                self._finish(index, running)

    def _drop(self, index: int) -> None:
        """Drops an episode that will never end."""
        running, self._running[index] = self._running[index], None
        if running:
            self.replay.retract(index, running.flushed)

    def _finish(self, index: int, running: Running) -> None:
        self._running[index] = None
        self._flush_to_replay(index, running)
        number = running.number * self.count + index  # on disk: the same whenever the same episode is played again
        meta = self._meta(index, running)
        self._writes.append(self._writer.submit(lambda: self.folder.save(number, self._episode(running, meta))))
        self.finished_steps += running.env_steps
        self.finished_episodes += 1
        self.check_writes()

    def _meta(self, index: int, running: Running) -> dict[str, Any]:
        return {
            "renderer": self.info.renderer,
            "seed": episode_seed(self.seed, index, running.number),
            "action_repeat": self.world.action_repeat,
            "env_steps": running.env_steps,
            "policy": ", ".join(running.policies),
            "environment": index,
            "episode": running.number,
            "terminated": running.terminated,
            **({"discrete": list(self.spaces.discrete)} if self.spaces.discrete else {}),
            **({"terminates": True} if self.spaces.terminates else {}),
            **({"camera": self.world.camera} if self.world.camera is not None else {}),
            **self.notes,
        }

    def _episode(self, running: Running, meta: dict[str, Any], start: int = 0) -> Episode:
        """The steps from `start` on."""
        columns = zip(*running.steps[start:], strict=True)
        image, proprio, action, reward, state = (np.stack(column) for column in columns)
        return Episode(self.world.world, image, proprio, action, reward, state, running.reset_params, meta)

    def _flush_to_replay(self, index: int, running: Running) -> None:
        """Appends the steps that replay does not have yet, with the rewards of all tasks."""
        left_out = max(running.flushed - 1, 0)  # a reward may depend on the state before
        episode, new = self._episode(running, self._meta(index, running), left_out), running.flushed - left_out
        rewards = label_steps(episode, self.tasks, new, left_out)
        self.replay.append(index, replay_rows(episode, self.spaces, rewards, new))
        running.flushed = len(running.steps)
