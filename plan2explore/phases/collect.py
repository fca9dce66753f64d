"""Collecting: environments step, and what they return becomes episodes on disk and sequences in memory."""

import logging
from collections.abc import Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from ..agent.world_model import Observation
from ..config import Spaces, WorldConfig
from ..envs import Task, VectorEnv
from ..envs.vector import Batch
from ..envs.worker import episode_seed
from ..replay import Episode
from ..replay.buffer import Replay
from ..replay.files import EpisodeFolder
from ..replay.relabel import label_rows
from .world import WorldInfo

log = logging.getLogger("plan2explore.phases")


def see(spaces: Spaces, image: np.ndarray, proprio: np.ndarray) -> Observation:
    """The part of what a world shows that the agent may look at, copied."""
    picture: Any = None if spaces.image is None else np.array(image)
    body: Any = None if spaces.proprio is None else np.array(proprio)
    return Observation(picture, body)


def label_steps(
    episode: Episode, tasks: Sequence[Task], start: int, left_out: int = 0
) -> Float[np.ndarray, "steps tasks"]:
    """Rewards of all tasks for the steps from `start` on: what an episode that still runs has new.

    `left_out`: steps before the first one here, if these are not all.
    """
    rewards = np.zeros((len(episode) - start, len(tasks)))
    first = max(start, 1)  # nothing was done yet at the first observation
    last = episode.state[first - 1]
    before = last[~np.isnan(last).all(-1)][-1]
    for column, task in enumerate(tasks):
        rewards[first - start :, column] = label_rows(
            episode.world, task, episode.state[first:], episode.drawn, before=before, first_step=first + left_out
        )
    return rewards


def replay_rows(
    episode: Episode, spaces: Spaces, rewards: Float[np.ndarray, "steps tasks"], start: int = 0
) -> dict[str, np.ndarray]:
    """An episode's steps from `start` on, in the form that memory takes."""
    rows = {"action": episode.action[start:]}
    if spaces.image is not None:
        rows["image"] = episode.image[start:]
    if spaces.proprio is not None:
        rows["proprio"] = episode.proprio[start:]
    if spaces.tasks:
        rows["reward"] = rewards.astype(np.float32)
    return rows


def make_room(replay: Replay, keep: Collection[int] = ()) -> None:
    """Lets memory forget its oldest episode where episodes end early, and are more than was planned for."""
    if replay.make_room(keep):
        log.info("Memory holds %d episodes, all it was made for: the oldest is forgotten.", replay.capacity)


@dataclass
class Running:
    """An episode that is being played in one environment."""

    number: int
    """The environment's count of episodes."""
    drawn: np.ndarray
    policies: list[str] = field(default_factory=list)
    """Who chose its actions, one after the other."""
    steps: list[tuple[np.ndarray, ...]] = field(default_factory=list)
    env_steps: int = 0
    slot: int | None = None
    """Where memory keeps it, and how much of it memory has."""
    known: int = 0


class Collector:
    """Steps all environments together, writes finished episodes to disk, and tells memory of new steps.

    With `piece`, memory learns of a running episode every so many steps; without, of whole episodes only.
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
    ) -> None:
        self.vector, self.replay, self.folder, self.tasks = vector, replay, folder, tasks
        self.count = vector.count
        self.world, self.info, self.spaces, self.seed, self.piece = world, info, spaces, seed, piece
        self.policy = "random"
        self.finished_steps = 0
        """Env steps of the episodes that this collector has finished."""
        self.finished_episodes = 0
        self.notes: dict[str, Any] = {}
        """Kept with each episode that ends: how much the agent had learned."""
        self.first: Bool[np.ndarray, " environments"] = np.ones(vector.count, bool)
        self.lost = False
        """Whether an episode ended without an end at the last step, because its process died."""
        self._running: list[Running | None] = [None] * vector.count
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="episodes")
        self._writes: list[Future[None]] = []

    @property
    def env_steps(self) -> int:
        """Env steps so far, those of running episodes included."""
        return self.finished_steps + sum(running.env_steps for running in self._running if running)

    def reset(self, episode: int | None = None) -> None:
        """Starts an episode everywhere, the next or the one of this number. What was running is forgotten."""
        for index in range(self.count):
            self._forget(index)
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
        self.first, self.lost = np.array(batch.first), bool(batch.lost.any())
        self.observation = see(self.spaces, batch.image, batch.proprio)
        for index in range(self.count):
            if batch.first[index]:
                self._begin(index, batch)
            running = self._running[index]
            assert running is not None
            action = np.zeros_like(actions[index]) if batch.first[index] else actions[index]
            seen = batch.image[index].copy(), batch.proprio[index].copy()
            running.steps.append((*seen, action, batch.reward[index], batch.state[index].copy()))
            running.env_steps = int(batch.env_steps[index])
            over = bool(batch.terminated[index] or batch.truncated[index])
            if over:
                self._finish(index, running)
            elif self.piece and len(running.steps) - running.known >= self.piece:
                self._tell_memory(index, running)

    def _begin(self, index: int, batch: Batch) -> None:
        if batch.lost[index]:
            self._forget(index)
        number = int(batch.episodes[index]) - 1
        self._running[index] = Running(number, batch.drawn[index].copy())

    def _forget(self, index: int) -> None:
        """Drops an episode that will never end."""
        running, self._running[index] = self._running[index], None
        if running and running.slot is not None:
            self.replay.drop(running.slot)

    def _finish(self, index: int, running: Running) -> None:
        self._running[index] = None
        self._tell_memory(index, running)
        number, meta = self._number(index, running), self._meta(index, running)
        self._writes.append(self._writer.submit(lambda: self.folder.save(number, self._episode(running, meta))))
        self.finished_steps += running.env_steps
        self.finished_episodes += 1
        self.check_writes()

    def _number(self, index: int, running: Running) -> int:
        """The episode's place on disk: the same whenever the same episode is played again."""
        return running.number * self.count + index

    def _meta(self, index: int, running: Running) -> dict[str, Any]:
        return {
            "renderer": self.info.renderer,
            "seed": episode_seed(self.seed, index, running.number),
            "action_repeat": self.world.action_repeat,
            "env_steps": running.env_steps,
            "policy": ", ".join(running.policies),
            "environment": index,
            "episode": running.number,
            **({"discrete": list(self.spaces.discrete)} if self.spaces.discrete else {}),
            **({"terminates": True} if self.spaces.terminates else {}),
            **self.notes,
        }

    def _episode(self, running: Running, meta: dict[str, Any], start: int = 0) -> Episode:
        """The steps from `start` on."""
        columns = zip(*running.steps[start:], strict=True)
        image, proprio, action, reward, state = (np.stack(column) for column in columns)
        return Episode(self.world.world, image, proprio, action, reward, state, running.drawn, meta)

    def _tell_memory(self, index: int, running: Running) -> None:
        """Gives memory the steps that it does not have yet, with the rewards of all tasks."""
        if running.slot is None:
            make_room(self.replay, [other.slot for other in self._running if other and other.slot is not None])
            running.slot = self.replay.open()
        left_out = max(running.known - 1, 0)  # a reward may depend on the state before
        episode, new = self._episode(running, self._meta(index, running), left_out), running.known - left_out
        rewards = label_steps(episode, self.tasks, new, left_out)
        self.replay.extend(running.slot, replay_rows(episode, self.spaces, rewards, new))
        running.known = len(running.steps)
