"""Rewards afterwards: what a task would have paid for the states that an episode went through."""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, overload

import cloudpickle
import numpy as np
from gymnasium import spaces

from ..envs import suite
from ..envs.gymnasium import make_inner
from ..envs.names import GYMNASIUM, split_name
from ..envs.state import Snapshot
from ..envs.tasks import RewardError, Task, call_reward
from .episode import Episode

Labeller = Callable[[Episode, str], np.ndarray]
WORTH_A_PROCESS = 50_000  # agent steps: with fewer, a process takes longer to start than to work


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
    return _labeller(episode.world, task)(episode, where)


_last_labeller: tuple[str, Task, Labeller] | None = None


def _labeller(world: str, task: Task) -> Labeller:
    """Building a world takes a tenth of a second: the last one is kept for the next episode."""
    global _last_labeller
    if _last_labeller is None or _last_labeller[:2] != (world, task):
        kind = _gymnasium_labeller if world.startswith(GYMNASIUM) else _suite_labeller
        _last_labeller = (world, task, kind(world, task))
    return _last_labeller[2]


def _suite_labeller(world_name: str, task: Task) -> Labeller:
    world, reward = _world_of_task(world_name, task)
    physics = world.physics
    snapshot = Snapshot(physics.model.ptr, physics.data.ptr)

    def labels(episode: Episode, where: str) -> np.ndarray:
        if episode.state.shape[-1] != snapshot.size or episode.drawn.size != world.drawn().size:
            raise ValueError(
                f"The states of {where} ({episode.world}) do not fit {task.name!r}: {episode.state.shape[-1]} numbers "
                f"each, where its world has {snapshot.size}; the two have different bodies"
            )
        world.reset()  # the task's own constants, such as the size of its target
        world.restore_drawn(episode.drawn)
        rewards = np.zeros(len(episode))
        for step, state in _taken(episode):
            snapshot.write(state)
            rewards[step] += call_reward(reward, task.name, lambda: f"step {step}, {where}", physics)  # noqa: B023
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

    def labels(episode: Episode, where: str) -> np.ndarray:
        if episode.state.shape[-1] != flat + int(np.prod(box.shape or ())):
            raise ValueError(f"The states of {where} do not fit {world_name}")
        rewards = np.zeros(len(episode))
        before = _unflatten(space, episode.state[0, 0, :flat])
        for step, state in _taken(episode):
            after, action = _unflatten(space, state[:flat]), state[flat:].reshape(box.shape).astype(box.dtype)
            spot = f"step {step}, {where}"
            rewards[step] += call_reward(function, task.name, lambda: spot, before, action, after)  # noqa: B023
            before = after
        return rewards

    return labels


def _taken(episode: Episode) -> Iterator[tuple[int, np.ndarray]]:
    """(step, state) of every env step that was taken, in order."""
    taken = ~np.isnan(episode.state).all(-1)
    taken[0] = False  # the first observation: nothing was done yet
    return zip(np.nonzero(taken)[0].tolist(), episode.state[taken], strict=True)


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
