"""Rewards afterwards: what a task would have paid for the states that an episode went through."""

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
MOST_AT_ONCE = 500  # episodes sent to a process: their states are in memory three times meanwhile
KEPT_LABELLERS = 16


@overload
def relabel(episodes: Episode, task: Task, workers: int | None = None) -> np.ndarray: ...
@overload
def relabel(episodes: Sequence[Episode], task: Task, workers: int | None = None) -> list[np.ndarray]: ...
def relabel(episodes: Episode | Sequence[Episode], task: Task, workers: int | None = None) -> np.ndarray | list[np.ndarray]:
    """The rewards, float64 (steps,), that `task` would have given in an episode, or in each of several.

    Several episodes are shared out over processes, by default one for each usable core if there are enough. Episodes
    are never changed.
    """
    if isinstance(episodes, Episode):
        return relabel([episodes], task, 1)[0]
    for world in {episode.world for episode in episodes}:
        check_module(without_start(world), "an episode")
    named = [(episode, f"episode {index}") for index, episode in enumerate(episodes)]
    if workers is None:
        workers = min(len(os.sched_getaffinity(0)), 1 + sum(map(len, episodes)) // WORTH_A_PROCESS)
    if workers == 1 or len(named) < 2:  # nothing to share
        return [label(episode, task, where) for episode, where in named]
    size = min(MOST_AT_ONCE, -(-len(named) // workers))
    own, *shares = [named[start : start + size] for start in range(0, len(named), size)]
    job = cloudpickle.dumps(task), registered()
    with ThreadPoolExecutor(workers) as pool:  # its threads only wait for their processes
        others = pool.map(functools.partial(_in_process, job), shares)
        found = [label(episode, task, where) for episode, where in own]  # others start for a second
        return found + [rewards for share in others for rewards in share]


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

    `state` (n, action_repeat, state) and `drawn` are as in `Episode`. `before` (state,) is the last state before these
    steps; only `gymnasium:` worlds need it. `first_step` is the first one's number in its episode, and `where` the
    episode's name, both for errors. `spaces` are those that a data set's episodes describe.
    """
    try:
        return _labeller(world, task, spaces)(Segment(state, drawn, before, first_step, where))
    except RewardError:
        _labellers[:] = [each for each in _labellers if each[1] != task]  # the reward may have written to its world
        raise


class Segment(NamedTuple):
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


Labeller = Callable[[Segment], np.ndarray]
_labellers: list[tuple[tuple[str, Any], Task, Labeller]] = []  # a list, since a user's reward need not be hashable


def _labeller(world: str, task: Task, spaces: Any) -> Labeller:
    """Building a world takes a tenth of a second: the last few are kept."""
    for known, known_task, labeller in _labellers:
        if known == (world, spaces) and known_task == task:
            return labeller
    if world.startswith((GYMNASIUM, DATASET)):
        labeller = _transition_labeller(world, task, spaces)
    else:
        labeller = _physics_labeller(world, task)
    _labellers.append(((world, spaces), task, labeller))
    del _labellers[:-KEPT_LABELLERS]
    return labeller


def _physics_labeller(world_name: str, task: Task) -> Labeller:
    domain = split_name(world_name)[0] if is_suite(world_name) else world_name
    if task.reward is None and domain != (of_task := split_name(task.name)[0]):
        raise ValueError(f"Task {task.name!r} belongs to {of_task}; the episode is from {domain} ({world_name})")
    world = load_world(task.name if task.reward is None else without_start(world_name))
    world.reset()  # the task's own constants, such as the size of its target
    own = None if task.reward is None else PhysicsReward(task, world.physics)

    def labels(segment: Segment) -> np.ndarray:
        if segment.state.shape[-1] != world.snapshot.size or segment.drawn.size != world.drawn().size:
            raise ValueError(
                f"The states of {segment.where} ({world_name}) do not fit {task.name!r}: {segment.state.shape[-1]} numbers "
                f"each, where its world has {world.snapshot.size}; the two have different bodies"
            )
        return _of_physics(world, task, own, segment, 0)

    return labels


def _of_physics(world: World, task: Task, own: PhysicsReward | None, segment: Segment, start: int) -> np.ndarray:
    """Rewards, the user's `own` or the task's, of states whose numbers from `start` on are a snapshot of the physics."""
    taken, states = segment.taken()
    rewards, row = [0.0] * len(segment.state), 0
    spot = lambda: segment.spot(row)  # noqa: E731 (one function for all rows: it is asked about the present one)
    replayed = world.replay(states[:, start:], segment.drawn)
    if own:
        own.begin()
    for row, _ in zip(taken, replayed, strict=True):
        rewards[row] += own(spot) if own else call_reward(world.task.get_reward, task.name, spot, world.physics)
    if own:
        own.end(spot)
    return np.array(rewards)


def _transition_labeller(world_name: str, task: Task, described: Any) -> Labeller:
    """Of a Gymnasium world, or of a data set, whose episodes describe their spaces."""
    simulation = None
    if world_name.startswith(DATASET):
        known = described if isinstance(described, dict) else {}
        observed, acted = (space_from_json(known.get(name)) for name in ("observation", "action"))
    else:
        inner = make_inner(world_name, None)
        observed, acted, simulation = inner.observation_space, inner.action_space, simulation_of(inner)
    check_reward(world_name, task, simulation)
    parts, actions = ObservationParts(observed, world_name), ActionVector(acted, world_name)
    own = PhysicsReward(task, simulation.physics) if simulation and not task.of_transitions else None
    flat = parts.size + actions.size

    def labels(segment: Segment) -> np.ndarray:
        if segment.state.shape[-1] != flat + (simulation.snapshot.size if simulation else 0):
            raise ValueError(f"The states of {segment.where} do not fit {world_name}, or the spaces that it describes")
        if simulation and own:
            return _of_physics(simulation, task, own, segment, flat)
        return _of_transitions(parts, actions, task, segment)

    return labels


def _of_transitions(parts: ObservationParts, actions: ActionVector, task: Task, segment: Segment) -> np.ndarray:
    """Rewards of an observation, an action and the next observation, in states that begin with observation and action."""
    assert task.reward is not None
    if segment.before is None:
        raise ValueError(f"The reward {task.name!r} takes the observation before a step too: give `before`")
    rewards, flat = np.zeros(len(segment.state)), parts.size
    before = parts.unflatten(segment.before[:flat])
    for row, state in zip(*segment.taken(), strict=True):
        after, action = parts.unflatten(state[:flat]), actions.unflatten(state[flat : flat + actions.size])
        spot = functools.partial(segment.spot, row)
        rewards[row] += call_reward(task.reward, task.name, spot, before, action, after)
        before = after
    return rewards


def _in_process(job: tuple[bytes, Any], share: list[tuple[Episode, str]]) -> list[np.ndarray]:
    """Labels a share of the episodes in a process of its own, without their images."""
    empty: dict[str, Any] = dict.fromkeys(("image", "proprio", "reward"), np.zeros(0))
    bare = [(dataclasses.replace(episode, **empty), where) for episode, where in share]
    # A plain child instead of multiprocessing: it works from any script, and inherits nothing of JAX's threads.
    child = subprocess.run(
        python_command("from plan2explore.replay.relabel import _child; _child()"),
        input=pickle.dumps((*job, bare)),
        stdout=subprocess.PIPE,
        check=False,
    )
    if child.returncode:
        raise RuntimeError(f"A process that relabelled episodes ended with status {child.returncode}; its output is above")
    found = pickle.loads(child.stdout)
    if isinstance(found, ValueError):
        raise found
    return found


def _child() -> None:
    """What a process of `_in_process` does: episodes on standard input, rewards or an error on standard output."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a reward function that prints must not disturb the answer
    pickled, known, share = pickle.load(sys.stdin.buffer)
    receive(known)
    task = pickle.loads(pickled)
    try:
        found: Any = [label(episode, task, where) for episode, where in share]
    except ValueError as error:
        found = error
    pickle.dump(found, output)
    output.close()
    sys.stdout.flush()
    os._exit(0)  # without taking the interpreter apart, which takes as long as labelling a few episodes
