"""A worker process of `VectorEnv`: its environments, and the memory and messages it shares with its parent.

The parent writes actions into the shared block and sends one byte to each worker; a worker steps its environments, whose
images are drawn straight into the block, and answers with one byte. Nobody spins, and nothing is pickled between the
start and an error.
"""

import contextlib
import math
import mmap
import os
import pickle
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Self

import cloudpickle
import numpy as np

Make = str | Callable[..., Any]
STEP, RESET = b"s", b"r"  # the parent's commands
DONE, FAILED = b"d", b"f"  # a worker's answers
LEFT_TO_PARENT = {signal.SIGINT, signal.SIGTERM}
"""Ctrl-C, and the polite kill of `timeout` and of job schedulers, reach the whole group: the parent decides."""
GRACE = 2.0  # seconds that a worker has to close its environments before it is killed


class HungUp(Exception):
    """The process at the other end of a channel has closed it, usually by ending."""


def python_command(code: str, *arguments: object) -> list[str]:
    """A Python process that imports what this one would, but what lies in the current folder last.

    By itself `python -c` looks there first: a file json.py, of a run's folder say, would be taken for Python's own.
    """
    here = ("", os.getcwd())
    path = "\n".join(sorted(map(str, sys.path), key=lambda place: place in here))
    start = f"import sys; sys.path[:] = sys.argv.pop(1).split(chr(10)); {code}"
    return [sys.executable, "-P", "-c", start, path, *map(str, arguments)]


def episode_seed(seed: int, environment: int, episode: int) -> int:
    """Seed of an environment's episode; depends on nothing else, so the number of workers cannot matter."""
    return int(np.random.SeedSequence(seed, spawn_key=(environment, episode)).generate_state(1)[0])


# ---- shared memory ----


@dataclass(frozen=True)
class Spec:
    """Spaces and sizes of one environment: what is needed to lay out the shared memory."""

    observation_space: Any
    action_space: Any
    action_repeat: int
    state_size: int
    drawn_size: int

    @classmethod
    def of(cls, env: Any) -> Self:
        world = env.unwrapped
        actions = getattr(world, "flat_action_space", env.action_space)  # discrete ones travel as one-hot vectors
        return cls(env.observation_space, actions, world.action_repeat, world.state_size, world.drawn_size)

    def arrays(self) -> dict[str, tuple[tuple[int, ...], type]]:
        """Shape and type of one environment's row of each shared array: the action, and the fields of `Batch`."""
        return {
            "action": (self.action_space.shape, np.float32),
            "image": (self.observation_space["image"].shape, np.uint8),
            "proprio": (self.observation_space["proprio"].shape, np.float32),
            "state": ((self.action_repeat, self.state_size), np.float64),
            "drawn": ((self.drawn_size,), np.float64),
            "reward": ((), np.float64),
            **dict.fromkeys(("env_steps", "episodes"), ((), np.int64)),
            **dict.fromkeys(("terminated", "truncated", "first", "lost"), ((), np.bool_)),
        }


@dataclass(frozen=True)
class Batch:
    """What all environments returned, a row each; views of the shared memory, valid until the next `send`.

    `first` marks the first observation of an episode: reward 0, not ended, the action before it was ignored.
    `lost` marks those first observations that came in place of a step because the worker died: the episode
    before them never ends, drop it. `state` has a row per repeated env step; unused rows, all but one at
    `first`, are NaN. `drawn` is what the task drew into the model for the episode, and stays until its end.
    `env_steps` counts from the episode's start, `episodes` those started so far: this one has the number before.
    """

    image: np.ndarray
    proprio: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    first: np.ndarray
    env_steps: np.ndarray
    state: np.ndarray
    drawn: np.ndarray
    lost: np.ndarray
    episodes: np.ndarray  # kept here so that it outlives a worker


def common_spec(specs: list[Spec]) -> Spec:
    """The one Spec that all environments have."""
    for spec in specs[1:]:
        if spec != specs[0]:
            raise ValueError(f"Environments must have the same spaces and sizes; got {specs[0]} and {spec}.")
    return specs[0]


def map_arrays(memory: int, spec: Spec, count: int) -> dict[str, np.ndarray]:
    """The shared arrays of `count` environments in the file `memory`, which grows if it is too small."""
    places, end = {}, 0
    for name, (shape, dtype) in spec.arrays().items():
        places[name] = end
        length = count * math.prod(shape) * np.dtype(dtype).itemsize
        end += -(-length // 64) * 64  # start each array on a cache line of its own
    if os.fstat(memory).st_size < end:
        os.ftruncate(memory, end)
    block = mmap.mmap(memory, end)
    return {
        name: np.frombuffer(block, dtype, count * math.prod(shape), places[name]).reshape(count, *shape)
        for name, (shape, dtype) in spec.arrays().items()
    }


def send(channel: Connection, kind: bytes, content: Any) -> None:
    """A message of more than the usual byte."""
    channel.send_bytes(kind + cloudpickle.dumps(content))


def receive(channel: Connection) -> tuple[bytes, Any]:
    """A message's first byte, and its content if there is more; or HungUp."""
    try:
        message = channel.recv_bytes()
    except (EOFError, OSError):
        raise HungUp from None
    return message[:1], pickle.loads(message[1:]) if len(message) > 1 else None


# ---- in the worker ----


@dataclass(frozen=True)
class Assignment:
    """What a worker is told at its start."""

    makes: list[Make]
    """How to make each of the environments `indices`."""
    options: dict[str, Any]
    indices: range
    count: int
    seed: int
    registered: dict[str, bytes] = field(default_factory=dict)
    """What the parent's code has registered."""


class EnvGroup:
    """The environments of one worker and their rows of the shared arrays."""

    def __init__(self, assignment: Assignment) -> None:
        self.assignment = assignment
        self.envs: dict[int, Any] = {}
        self.ended: set[int] = set()
        self.arrays: dict[str, np.ndarray] = {}
        self.current: int | None = None  # the environment at work, for the message if it fails

    def build(self) -> Spec:
        """Makes the environments; their common Spec."""
        from . import make as make_by_name
        from .registered import receive

        receive(self.assignment.registered)
        options = self.assignment.options
        for index, make in zip(self.assignment.indices, self.assignment.makes, strict=True):
            self.current = index
            self.envs[index] = make_by_name(make, **options) if isinstance(make, str) else make(**options)
        return common_spec([Spec.of(env) for env in self.envs.values()])

    def attach(self, memory: int, spec: Spec) -> None:
        """Maps the shared arrays and lets each environment draw straight into its row of them."""
        self.arrays = map_arrays(memory, spec, self.assignment.count)
        for index, env in self.envs.items():
            env.unwrapped.image_buffer = self.arrays["image"][index]

    def run(self, command: bytes) -> None:
        """Steps or resets every environment; where an episode ended at the last step, a step is a reset."""
        for index in self.assignment.indices:
            self.current = index
            self.arrays["lost"][index] = False
            if command == RESET or index in self.ended:
                self.reset(index)
            else:
                self.step(index)

    def reset(self, index: int) -> None:
        arrays = self.arrays
        episode = int(arrays["episodes"][index])
        arrays["episodes"][index] = episode + 1  # before the reset: one that kills the worker is not repeated
        self.ended.discard(index)
        observation, info = self.envs[index].reset(seed=episode_seed(self.assignment.seed, index, episode))
        arrays["drawn"][index] = info["drawn"]
        self.write(index, observation, info, reward=0.0, terminated=False, truncated=False, first=True)

    def step(self, index: int) -> None:
        action = self.arrays["action"][index].copy()  # the environment may keep or change it
        observation, reward, terminated, truncated, info = self.envs[index].step(action)
        if terminated or truncated:
            self.ended.add(index)
        self.write(index, observation, info, reward=float(reward), terminated=terminated, truncated=truncated, first=False)

    def write(self, index: int, observation: dict[str, np.ndarray], info: dict[str, Any], **row: Any) -> None:
        arrays = self.arrays
        if observation["image"] is not self.envs[index].unwrapped.image_buffer:  # a wrapper's own image
            arrays["image"][index] = observation["image"]
        state = info["state"]
        arrays["state"][index, : len(state)] = state
        arrays["state"][index, len(state) :] = np.nan
        for name, value in {"proprio": observation["proprio"], "env_steps": info["env_steps"], **row}.items():
            arrays[name][index] = value

    def close(self) -> None:
        for env in self.envs.values():
            with contextlib.suppress(Exception):  # one that cannot close must not keep the others open
                env.close()


def leave_with_parent(channel: int, parent: int) -> None:
    """Ends this process soon after its parent closed the socket or died, even if an environment hangs."""
    poll = select.poll()
    poll.register(channel, 0)  # reports hang-ups only
    # A process that the parent forked may hold the socket open after the parent's death: ask for both.
    while not poll.poll(1000) and os.getppid() == parent:
        pass
    time.sleep(GRACE)
    os._exit(1)


def work(channel: Connection, memory: int) -> None:
    """Builds the environments, then steps them once per byte received, until the parent hangs up or they fail."""
    group = None
    try:
        _, assignment = receive(channel)
        group = EnvGroup(assignment)
        spec = group.build()
        send(channel, DONE, spec)
        command, _ = receive(channel)  # comes when the parent has compared Specs and sized the memory
        group.attach(memory, spec)
        while True:
            group.run(command)
            channel.send_bytes(DONE)
            command, _ = receive(channel)
    except HungUp:
        pass
    except (Exception, SystemExit) as error:  # code that calls sys.exit has failed too
        from .base import EnvError

        own = str(error) if isinstance(error, EnvError) else None
        send(channel, FAILED, (group.current if group else None, traceback.format_exc(), own))
    finally:
        if group:
            group.close()


def serve(channel: int, memory: int, parent: int) -> None:
    """A worker's life, from the descriptors that it was given to the end of its parent's interest."""
    for number in LEFT_TO_PARENT:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, LEFT_TO_PARENT)
    for descriptor in (channel, memory):
        os.set_inheritable(descriptor, False)  # or programs started by an environment would keep them open
    threading.Thread(target=leave_with_parent, args=(channel, parent), daemon=True).start()
    with contextlib.suppress(ConnectionError):
        work(Connection(channel), memory)
