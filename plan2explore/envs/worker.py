"""A worker process of `VectorEnv`: its environments, and the memory and messages it shares with its parent.

The parent writes actions into the shared block and sends one byte to each worker; a worker steps its environments, whose
images are drawn straight into the block, and answers with an empty message. Nobody spins, and nothing is pickled between
the start and an error.
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
DONE = b""  # a worker's answer to each; a Failure otherwise
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
    """Spaces of one environment, and its part of the shared memory."""

    observation_space: Any
    action_space: Any
    rows: dict[str, tuple[tuple[int, ...], type]]
    """Shape and type of its row of each shared array: the action, and the fields of `Batch`."""

    @classmethod
    def of(cls, env: Any) -> Self:
        world, observed = env.unwrapped, env.observation_space
        actions = getattr(world, "flat_action_space", env.action_space)  # discrete ones travel as one-hot vectors
        rows: dict[str, tuple[tuple[int, ...], type]] = {
            "action": (actions.shape, np.float32),
            "image": (observed["image"].shape, np.uint8),
            "proprio": (observed["proprio"].shape, np.float32),
            "state": ((world.action_repeat, world.state_size), np.float64),
            "drawn": ((world.drawn_size,), np.float64),
            "reward": ((), np.float64),
            **dict.fromkeys(("env_steps", "episodes"), ((), np.int64)),
            **dict.fromkeys(("terminated", "truncated", "first", "lost"), ((), np.bool_)),
        }
        return cls(observed, actions, rows)


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


def map_arrays(memory: int, spec: Spec, count: int) -> dict[str, np.ndarray]:
    """The shared arrays of `count` environments in the file `memory`, which grows if it is too small."""
    places, end = {}, 0
    for name, (shape, dtype) in spec.rows.items():
        places[name] = end
        length = count * math.prod(shape) * np.dtype(dtype).itemsize
        end += -(-length // 64) * 64  # start each array on a cache line of its own
    if os.fstat(memory).st_size < end:
        os.ftruncate(memory, end)
    block = mmap.mmap(memory, end)
    return {name: np.ndarray((count, *shape), dtype, block, places[name]) for name, (shape, dtype) in spec.rows.items()}


def receive(channel: Connection) -> bytes:
    """A message, or HungUp."""
    try:
        return channel.recv_bytes()
    except (EOFError, OSError):
        raise HungUp from None


# ---- in the worker ----


@dataclass(frozen=True)
class Failure:
    """An exception in a worker."""

    environment: int | None  # at work
    traceback: str
    own: str | None  # an EnvError's message


@dataclass
class EnvGroup:
    """The environments of one worker, as the parent describes them and the worker makes them, and their shared rows."""

    makes: list[Make]
    """How to make each of the environments `indices`."""
    options: dict[str, Any]
    indices: range
    count: int
    seed: int
    registered: dict[str, bytes] = field(default_factory=dict)
    """What the parent's code has registered."""
    envs: dict[int, Any] = field(default_factory=dict, init=False)
    current: int | None = field(default=None, init=False)
    """The environment at work, for the message if it fails."""

    def build(self) -> list[Spec]:
        """Makes the environments; their Specs."""
        from . import make as make_by_name
        from .registered import receive

        receive(self.registered)
        for index, make in zip(self.indices, self.makes, strict=True):
            self.current = index
            self.envs[index] = make_by_name(make, **self.options) if isinstance(make, str) else make(**self.options)
        return [Spec.of(env) for env in self.envs.values()]

    def attach(self, memory: int, spec: Spec) -> None:
        """Maps the shared arrays and lets each environment draw straight into its row of them."""
        self.arrays = map_arrays(memory, spec, self.count)
        for index, env in self.envs.items():
            env.unwrapped.image_buffer = self.arrays["image"][index]

    def run(self, command: bytes) -> None:
        """Steps or resets every environment; where an episode ended at the last step, a step is a reset."""
        arrays = self.arrays
        ended = arrays["terminated"] | arrays["truncated"]
        for index, env in self.envs.items():
            self.current = index
            first = command == RESET or bool(ended[index])
            if first:
                episode = int(arrays["episodes"][index])
                arrays["episodes"][index] = episode + 1  # before the reset: one that kills the worker is not repeated
                observation, info = env.reset(seed=episode_seed(self.seed, index, episode))
                reward, terminated, truncated = 0.0, False, False
                arrays["drawn"][index] = info["drawn"]
            else:
                action = arrays["action"][index].copy()  # the environment may keep or change it
                observation, reward, terminated, truncated, info = env.step(action)
            if observation["image"] is not env.unwrapped.image_buffer:  # a wrapper's own image
                arrays["image"][index] = observation["image"]
            state, taken = arrays["state"][index], len(info["state"])
            state[:taken], state[taken:] = info["state"], np.nan
            row = dict(proprio=observation["proprio"], env_steps=info["env_steps"], reward=float(reward), first=first)
            for name, value in (row | dict(terminated=terminated, truncated=truncated, lost=False)).items():
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
    group: EnvGroup | None = None
    try:
        group = pickle.loads(receive(channel))
        specs = group.build()
        channel.send_bytes(cloudpickle.dumps(specs))
        command = receive(channel)  # comes when the parent has compared Specs and sized the memory
        group.attach(memory, specs[0])
        while True:
            group.run(command)
            channel.send_bytes(DONE)
            command = receive(channel)
    except HungUp:
        pass
    except (Exception, SystemExit) as error:  # code that calls sys.exit has failed too
        from .base import EnvError

        own = str(error) if isinstance(error, EnvError) else None
        failure = Failure(group.current if group else None, traceback.format_exc(), own)
        channel.send_bytes(cloudpickle.dumps(failure))
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
