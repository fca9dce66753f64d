"""Rewards afterwards: what a task would have paid for the states that an episode went through."""

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
from gymnasium import spaces

from ..envs import suite
from ..envs.gymnasium import make_inner
from ..envs.names import GYMNASIUM, split_name
from ..envs.state import Snapshot
from ..envs.tasks import RewardError, Task, call_reward
from .episode import Episode

WORTH_A_PROCESS = 50_000  # agent steps: with fewer, a process takes longer to start than to work
KEPT_LABELLERS = 16


@overload
def relabel(episodes: Episode, task: Task, workers: int | None = None) -> np.ndarray: ...
@overload
def relabel(episodes: Sequence[Episode], task: Task, workers: int | None = None) -> list[np.ndarray]: ...
def relabel(
    episodes: Episode | Sequence[Episode], task: Task, workers: int | None = None
) -> np.ndarray | list[np.ndarray]:
    """The rewards, float64 (steps,), that `task` would have given in an episode, or in each of several.

    Several episodes are shared out over processes, by default one for each usable core. Episodes are never changed.
    """
    if isinstance(episodes, Episode):
        return label(episodes, task, "episode 0")
    episodes = list(episodes)
    if workers is None:
        workers = min(len(os.sched_getaffinity(0)), sum(map(len, episodes)) // WORTH_A_PROCESS)
    if workers <= 1:
        return [label(episode, task, f"episode {index}") for index, episode in enumerate(episodes)]
    shares = [list(range(start, len(episodes), workers)) for start in range(min(workers, len(episodes)))]
    with ThreadPoolExecutor(len(shares)) as pool:  # the threads only wait for their process
        answers = list(pool.map(lambda share: _in_process(episodes, share, task), shares))
    labels = {index: rewards for answer in answers for index, rewards in answer.items()}
    return [labels[index] for index in range(len(episodes))]


def label(episode: Episode, task: Task, where: str) -> np.ndarray:
    """The rewards of one episode, computed here; `where` names it in errors."""
    rewards = np.zeros(len(episode))  # nothing was done yet at the first observation
    rewards[1:] = label_rows(
        episode.world, task, episode.state[1:], episode.drawn, before=episode.state[0, 0], where=where
    )
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
    """
    return _labeller(world, task)(Rows(state, drawn, before, first_step, where))


class Rows(NamedTuple):
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


Labeller = Callable[[Rows], np.ndarray]
_labellers: list[tuple[str, Task, Labeller]] = []  # a list, since a user's reward need not be hashable


def _labeller(world: str, task: Task) -> Labeller:
    """Building a world takes a tenth of a second: the last few are kept."""
    for known_world, known_task, labeller in _labellers:
        if known_world == world and known_task == task:
            return labeller
    kind = _gymnasium_labeller if world.startswith(GYMNASIUM) else _suite_labeller
    labeller = kind(world, task)
    _labellers.append((world, task, labeller))
    del _labellers[:-KEPT_LABELLERS]
    return labeller


def _suite_labeller(world_name: str, task: Task) -> Labeller:
    world, reward = _world_of_task(world_name, task)
    world.reset()  # the task's own constants, such as the size of its target
    physics, drawn_size = world.physics, world.drawn().size
    snapshot = Snapshot(physics.model.ptr, physics.data.ptr)

    def labels(rows: Rows) -> np.ndarray:
        if rows.state.shape[-1] != snapshot.size or rows.drawn.size != drawn_size:
            raise ValueError(
                f"The states of {rows.where} ({world_name}) do not fit {task.name!r}: {rows.state.shape[-1]} numbers "
                f"each, where its world has {snapshot.size}; the two have different bodies"
            )
        world.restore_drawn(rows.drawn)
        rewards = np.zeros(len(rows.state))
        for row, state in zip(*rows.taken(), strict=True):
            snapshot.write(state)
            rewards[row] += call_reward(reward, task.name, lambda: rows.spot(row), physics)  # noqa: B023
        return rewards

    return labels


def _world_of_task(world_name: str, task: Task) -> tuple[suite.World, Callable[[Any], float]]:
    domain, named = split_name(world_name)
    if task.reward is not None:
        return suite.load(domain, named), task.reward
    task_domain, task_named = split_name(task.name)
    if task_domain != domain:
        raise ValueError(f"Task {task.name!r} belongs to {task_domain}; the episode is from {domain} ({world_name})")
    world = suite.load(task_domain, task_named)
    return world, world.task.get_reward


def _gymnasium_labeller(world_name: str, task: Task) -> Labeller:
    function = task.reward
    if function is None:
        raise ValueError(f"Task {task.name!r} belongs to the suite; the episode is from {world_name}")
    inner = make_inner(world_name, None)
    space, box = inner.observation_space, inner.action_space
    flat = spaces.flatdim(space)

    def labels(rows: Rows) -> np.ndarray:
        if rows.state.shape[-1] != flat + int(np.prod(box.shape or ())):
            raise ValueError(f"The states of {rows.where} do not fit {world_name}")
        if rows.before is None:
            raise ValueError(f"A reward of {world_name} takes the observation before a step too: give `before`")
        rewards = np.zeros(len(rows.state))
        before = _unflatten(space, rows.before[:flat])
        for row, state in zip(*rows.taken(), strict=True):
            after, action = _unflatten(space, state[:flat]), state[flat:].reshape(box.shape).astype(box.dtype)
            spot = functools.partial(rows.spot, row)
            rewards[row] += call_reward(function, task.name, spot, before, action, after)
            before = after
        return rewards

    return labels


def _unflatten(space: spaces.Space[Any], flat: np.ndarray) -> Any:
    dtype = space.dtype if space.dtype is not None else np.float64
    return spaces.unflatten(space, flat.astype(dtype) if isinstance(space, spaces.Box) else flat)


def _in_process(episodes: Sequence[Episode], share: list[int], task: Task) -> dict[int, np.ndarray]:
    """Labels a share of the episodes in a process of its own, without their pictures."""
    bare = {
        index: (episodes[index].world, episodes[index].action, episodes[index].state, episodes[index].drawn)
        for index in share
    }
    # A plain child instead of multiprocessing: it works from any script, and inherits nothing of JAX's threads.
    child = subprocess.run(
        [sys.executable, "-c", "from plan2explore.memory.relabel import _child; _child()"],
        input=cloudpickle.dumps((sys.path, cloudpickle.dumps((task, bare)))),
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=False,
    )
    if child.returncode:
        raise RuntimeError(f"A process that relabelled episodes ended with status {child.returncode}; its output is above")
    answer = pickle.loads(child.stdout)
    if isinstance(answer, str):
        raise RewardError(answer)
    return answer


def _child() -> None:
    """What a process of `_in_process` does: episodes on standard input, rewards or a sentence on standard output."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a reward function that prints must not disturb the answer
    paths, payload = pickle.load(sys.stdin.buffer)
    sys.path[:] = paths
    task, bare = pickle.loads(payload)
    answer: dict[int, np.ndarray] | str
    try:
        answer = {}
        for index, (world, action, state, drawn) in bare.items():
            none = np.zeros((len(action), 0))
            episode = Episode(world, none, none, action, none, state, drawn)
            answer[index] = label(episode, task, f"episode {index}")
    except ValueError as error:
        answer = str(error)
    pickle.dump(answer, output)
    output.close()
