"""Rewards afterwards: what a task would have paid for the states that an episode went through."""

import collections
import contextlib
import dataclasses
import functools
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, overload

import cloudpickle
import numpy as np

from ..envs.gymnasium import check_reward, make_inner, simulation_of
from ..envs.mjcf import load_world
from ..envs.names import DATASET, GYMNASIUM, check_module, is_suite, split_name, without_start
from ..envs.registered import receive, registered
from ..envs.spaces import ActionVector, ObservationParts, space_from_json
from ..envs.tasks import PhysicsReward, RewardError, Task, call_reward
from ..envs.worker import python_command
from ..envs.world import World
from .episode import Episode

WORTH_A_PROCESS = 50_000  # agent steps: with fewer, another process takes longer to start than to work
MOST_AT_ONCE = 64  # episodes sent to a process: their states are in memory twice meanwhile
KEPT_LABELLERS = 16


@overload
def relabel(episodes: Episode, task: Task, workers: int | None = None) -> np.ndarray: ...
@overload
def relabel(episodes: Sequence[Episode], task: Task, workers: int | None = None) -> list[np.ndarray]: ...
def relabel(
    episodes: Episode | Sequence[Episode], task: Task, workers: int | None = None
) -> np.ndarray | list[np.ndarray]:
    """The rewards, float64 (steps,), that `task` would have given in an episode, or in each of several.

    Several episodes are shared out over processes, this one among them, by default one for each usable core. Episodes
    are never changed.
    """
    if isinstance(episodes, Episode):
        check_module(without_start(episodes.world), "an episode")
        return label(episodes, task, "episode 0")
    episodes = list(episodes)
    for world in {episode.world for episode in episodes}:
        check_module(without_start(world), "an episode")
    if workers is None:
        workers = min(len(os.sched_getaffinity(0)), 1 + sum(map(len, episodes)) // WORTH_A_PROCESS)
    work = Work(dict(enumerate(episodes)), task)
    with ThreadPoolExecutor(max(1, workers)) as pool:  # its threads only wait for their processes
        crew = [pool.submit(_in_process, work, work.take_part(workers), workers) for _ in range(workers - 1)]
        try:
            while share := work.take(1):
                work.label_here(share)
        finally:
            work.stop()  # after Ctrl-C
        for each in crew:
            each.result()
    if work.errors:
        raise work.errors[min(work.errors)]
    return [work.rewards[index] for index in range(len(episodes))]


class Work:
    """Episodes to label, of which each process takes some when it has time; nobody waits for one that starts late."""

    def __init__(self, episodes: dict[int, Episode], task: Task) -> None:
        self.episodes = episodes
        self.task = task
        self.rewards: dict[int, np.ndarray] = {}
        self.errors: dict[int, Exception] = {}
        self._left = collections.deque(episodes)

    def take(self, count: int) -> list[int]:
        """The next few episodes; none when all are taken, or one has failed."""
        share: list[int] = []
        while len(share) < count and not self.errors:
            try:
                share.append(self._left.popleft())  # threads can do this without a lock
            except IndexError:
                break
        return share

    def take_part(self, workers: int) -> list[int]:
        """A share for another process: large at first, for few messages, small later, so that all end together."""
        return self.take(min(MOST_AT_ONCE, 1 + len(self._left) // (2 * workers)))

    def stop(self) -> None:
        """Leaves the rest undone."""
        self._left.clear()

    def label_here(self, share: list[int]) -> None:
        """Labels episodes in this process."""
        for index in share:
            try:
                self.rewards[index] = label(self.episodes[index], self.task, f"episode {index}")
            except ValueError as error:
                self.errors[index] = error


def label(episode: Episode, task: Task, where: str) -> np.ndarray:
    """The rewards of one episode, computed here; `where` names it in errors."""
    rewards = np.zeros(len(episode))  # nothing was done yet at the first observation
    rewards[1:] = label_rows(
        episode.world, task, episode.state[1:], episode.drawn,
        before=episode.state[0, 0], where=where, spaces=episode.meta.get("spaces"),
    )  # fmt: skip
    return rewards


def label_rows(
    world: str,
    task: Task,
    state: np.ndarray,
    drawn: np.ndarray,
    *,
    before: np.ndarray | None = None,
    first_step: int = 1,
    where: str = "running episode",
    spaces: Any = None,
) -> np.ndarray:
    """The rewards, float64 (n,), of n steps of an episode, none of them its first observation.

    Args:
        world: the name given to `make`.
        task: what to reward.
        state: float64 (n, action_repeat, state), as in `Episode`.
        drawn: float64 (drawn,), the episode's.
        before: float64 (state,), the last state before these steps; only `gymnasium:` worlds need it.
        first_step: number of the first of these steps in its episode, for errors.
        where: what errors call the episode.
        spaces: of a data set's observations and actions, as its episodes describe them.
    """
    try:
        return _labeller(world, task, spaces)(Stretch(state, drawn, before, first_step, where))
    except RewardError:
        _labellers[:] = [each for each in _labellers if each[1] != task]  # the reward may have written to its world
        raise


class Stretch(NamedTuple):
    """Some steps of an episode, as `label_rows` takes them."""

    state: np.ndarray
    drawn: np.ndarray
    before: np.ndarray | None
    first_step: int
    where: str

    def taken(self) -> tuple[list[int], np.ndarray]:
        """Row and state of every env step that was taken, in order."""
        taken = ~np.isnan(self.state).all(-1)
        return np.nonzero(taken)[0].tolist(), self.state[taken]

    def spot(self, row: int) -> str:
        """Where an error happened."""
        return f"step {self.first_step + row}, {self.where}"


Labeller = Callable[[Stretch], np.ndarray]
_labellers: list[tuple[tuple[str, Any], Task, Labeller]] = []  # a list, since a user's reward need not be hashable


def _labeller(world: str, task: Task, spaces: Any) -> Labeller:
    """Building a world takes a tenth of a second: the last few are kept."""
    for known, known_task, labeller in _labellers:
        if known == (world, spaces) and known_task == task:
            return labeller
    if world.startswith(DATASET):
        labeller = _data_labeller(world, task, spaces)
    else:
        labeller = (_gymnasium_labeller if world.startswith(GYMNASIUM) else _physics_labeller)(world, task)
    _labellers.append(((world, spaces), task, labeller))
    del _labellers[:-KEPT_LABELLERS]
    return labeller


def _physics_labeller(world_name: str, task: Task) -> Labeller:
    world = _world_of_task(world_name, task)
    world.reset()  # the task's own constants, such as the size of its target
    own = None if task.reward is None else PhysicsReward(task, world.physics)

    def labels(stretch: Stretch) -> np.ndarray:
        if stretch.state.shape[-1] != world.snapshot.size or stretch.drawn.size != world.drawn().size:
            raise ValueError(
                f"The states of {stretch.where} ({world_name}) do not fit {task.name!r}: {stretch.state.shape[-1]} numbers "
                f"each, where its world has {world.snapshot.size}; the two have different bodies"
            )
        return _of_physics(world, task, own, stretch, 0)

    return labels


def _of_physics(world: World, task: Task, own: PhysicsReward | None, stretch: Stretch, start: int) -> np.ndarray:
    """Rewards, the user's `own` or the task's, of states whose numbers from `start` on are a snapshot of the physics."""
    taken, states = stretch.taken()
    rewards, row = [0.0] * len(stretch.state), 0
    spot = lambda: stretch.spot(row)  # noqa: E731 (one function for all rows: it is asked about the present one)
    replayed = world.replay(states[:, start:], stretch.drawn)
    if own:
        own.begin()
    for row, _ in zip(taken, replayed, strict=True):
        rewards[row] += own(spot) if own else call_reward(world.task.get_reward, task.name, spot, world.physics)
    if own:
        own.end(spot)
    return np.array(rewards)


def _world_of_task(world_name: str, task: Task) -> World:
    if task.reward is not None:
        return load_world(without_start(world_name))
    domain = split_name(world_name)[0] if is_suite(world_name) else world_name
    task_domain = split_name(task.name)[0]
    if task_domain != domain:
        raise ValueError(f"Task {task.name!r} belongs to {task_domain}; the episode is from {domain} ({world_name})")
    return load_world(task.name)


def _gymnasium_labeller(world_name: str, task: Task) -> Labeller:
    inner = make_inner(world_name, None)
    simulation = simulation_of(inner)
    check_reward(world_name, task, simulation)
    parts = ObservationParts(inner.observation_space, world_name)
    actions, flat = ActionVector(inner.action_space, world_name), parts.size
    physics = simulation.snapshot.size if simulation else 0
    own = PhysicsReward(task, simulation.physics) if simulation and not task.of_transitions else None

    def labels(stretch: Stretch) -> np.ndarray:
        if stretch.state.shape[-1] != flat + actions.size + physics:
            raise ValueError(f"The states of {stretch.where} do not fit {world_name}")
        if simulation and own:
            return _of_physics(simulation, task, own, stretch, flat + actions.size)
        return _of_transitions(parts, actions, task, stretch)

    return labels


def _data_labeller(world_name: str, task: Task, spaces: Any) -> Labeller:
    check_reward(world_name, task, None)
    described = spaces if isinstance(spaces, dict) else {}
    observation, action = (space_from_json(described.get(name)) for name in ("observation", "action"))
    parts, actions = ObservationParts(observation, world_name), ActionVector(action, world_name)

    def labels(stretch: Stretch) -> np.ndarray:
        if stretch.state.shape[-1] != parts.size + actions.size:
            raise ValueError(f"The states of {stretch.where} do not fit the spaces that it describes")
        return _of_transitions(parts, actions, task, stretch)

    return labels


def _of_transitions(parts: ObservationParts, actions: ActionVector, task: Task, stretch: Stretch) -> np.ndarray:
    """Rewards of an observation, an action and the next observation, in states that begin with observation and action."""
    assert task.reward is not None
    if stretch.before is None:
        raise ValueError(f"The reward {task.name!r} takes the observation before a step too: give `before`")
    rewards, flat = np.zeros(len(stretch.state)), parts.size
    before = parts.unflatten(stretch.before[:flat])
    for row, state in zip(*stretch.taken(), strict=True):
        after, action = parts.unflatten(state[:flat]), actions.unflatten(state[flat : flat + actions.size])
        spot = functools.partial(stretch.spot, row)
        rewards[row] += call_reward(task.reward, task.name, spot, before, action, after)
        before = after
    return rewards


def _in_process(work: Work, share: list[int], workers: int) -> None:
    """Labels a share of the episodes, and then others, in a process of its own, without their pictures."""
    if not share:
        return
    # A plain child instead of multiprocessing: it works from any script, and inherits nothing of JAX's threads.
    child = subprocess.Popen(
        python_command("from plan2explore.replay.relabel import _child; _child()"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with child:  # ends it by closing its input
        assert child.stdin and child.stdout
        try:
            pickle.dump((cloudpickle.dumps(work.task), registered()), child.stdin)
            while share:
                bare = {index: _without_pictures(work.episodes[index]) for index in share}
                pickle.dump(bare, child.stdin, protocol=pickle.HIGHEST_PROTOCOL)
                child.stdin.flush()
                rewards, errors = pickle.load(child.stdout)
                work.rewards.update(rewards)
                work.errors.update(errors)
                share = work.take_part(workers)
        except (EOFError, BrokenPipeError):
            work.stop()
            sentence = f"A process that relabelled episodes ended with status {child.wait()}; its output is above"
            raise RuntimeError(sentence) from None


def _without_pictures(episode: Episode) -> Episode:
    none = np.zeros((len(episode), 0))
    return dataclasses.replace(episode, image=none, proprio=none, reward=none)


def _child() -> None:
    """What a process of `_in_process` does: episodes on standard input, rewards and errors on standard output."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a reward function that prints must not disturb the answer
    pickled, known = pickle.load(sys.stdin.buffer)
    task = pickle.loads(pickled)
    receive(known)
    with contextlib.suppress(EOFError, BrokenPipeError):  # the parent has no more work, or has gone
        while True:
            share: dict[int, Episode] = pickle.load(sys.stdin.buffer)
            work = Work(share, task)
            work.label_here(list(share))
            pickle.dump((work.rewards, {i: RewardError(str(error)) for i, error in work.errors.items()}), output)
            output.flush()
    sys.stdout.flush()
    os._exit(0)  # without taking the interpreter apart, which takes as long as labelling a few episodes
