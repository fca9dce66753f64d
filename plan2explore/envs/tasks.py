"""What to do in a world: a reward function with a name, from the suite or the user's own."""

import hashlib
import importlib.util
import inspect
import math
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import mujoco
import numpy as np

from .identity import NoIdentity, digest_of, source_of
from .names import split_name
from .world import STORED

LARGEST_REWARD = 1e15
"""Of one env step, either way. Losses square the sum of an action's: in float32, that of 1e19 is infinite."""
INTEGRATION = mujoco.mjtState.mjSTATE_INTEGRATION.value
FOLLOWS = ("xpos", "xquat", "xmat", "geom_xpos", "geom_xmat", "site_xpos", "site_xmat", "subtree_com", "cvel")
"""What follows from the state and rewards read, as do observations and frames after them."""
LEFT_OUT = ("_", "tex_", "mesh_", "hfield_", "skin_")
"""Prefixes of a model's attributes that are not compared: only drawing and collisions read its assets."""


class RewardError(ValueError):
    """A reward function that raised, or did not return a finite number, or one too large to learn from."""


@dataclass(frozen=True)
class Task:
    """A reward function with a name.

    In a world of the suite or of a model file, `reward` takes dm_control's `physics` and returns the reward of its current
    state. In a Gymnasium world it takes `(observation, action, next_observation)`, or, where MuJoCo is behind it, `physics`
    alone. Without `reward`, the name is one of `list_tasks()`.

    Runs keep a digest of the function and of all that it takes from elsewhere, so that another one is not taken for it.
    Where that is not what you want, or not possible, give a `version`, which then stands for the function.
    """

    name: str
    reward: Callable[..., float] | None = None
    version: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(f"A task needs a name, such as 'moonwalk'; got {self.name!r}")
        if self.reward is None:
            if split_name(self.name)[1] is None:
                raise ValueError(f"{self.name!r} is a world without a task; give a reward function or a task's name")
        elif not callable(self.reward):
            raise TypeError(f"The reward of task {self.name!r} must be a function; got {self.reward!r}")

    @classmethod
    def named(cls, name: str) -> "Task":
        """A task of the suite or a maze's goal, such as `walker_run` or `maze_u_goal_n`."""
        return cls(name)

    @classmethod
    def from_file(cls, spec: str) -> "Task":
        """The user's own reward, written `file.py:function` as on the command line."""
        path, _, name = spec.rpartition(":")
        if not path or not name:
            raise ValueError(f"Write a reward as file.py:function; got {spec!r}")
        module = _module(Path(path))
        if not callable(function := getattr(module, name, None)):
            known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
            raise ValueError(f"{path} has no function {name!r}; it has {', '.join(known) or 'none'}")
        return cls(name, reward=function)

    @property
    def of_transitions(self) -> bool:
        """Whether the reward takes an observation, an action and the next observation, and not `physics`."""
        try:
            inspect.signature(self.reward).bind(None, None, None)  # type: ignore[arg-type]
        except TypeError:
            return False
        except ValueError:  # a builtin function does not tell
            return True
        return True

    @property
    def digest(self) -> str | None:
        """By which a reward is known again (`identity`): a digest of its source, and one of all that it consists of.

        With a `version` that alone counts. None for a task of the suite.
        """
        if self.reward is None:
            return None
        if self.version is not None:
            return f"version {self.version}"
        source = hashlib.sha256((source_of(self.reward) or "").encode()).hexdigest()[:16]
        try:
            return f"{source}-{digest_of(self.reward)}"
        except NoIdentity as error:
            raise ValueError(
                f"The reward {self.name!r} uses something by which it cannot be known again ({error}): make that inside the "
                "function, or say yourself which reward it is: Task(name, reward, version='1')."
            ) from None


def _module(path: Path) -> ModuleType:
    if not path.is_file():
        raise ValueError(f"There is no file {path}")
    name = f"reward_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ValueError(f"{path} could not be run: {type(error).__name__}: {error}") from error
    # Worker processes cannot import this file by name: send its functions by value.
    cloudpickle.register_pickle_by_value(module)
    return module


def call_reward(function: Callable[..., Any], name: str, where: Callable[[], str], *arguments: Any) -> float:
    """The reward as a float, or an error that names the function and, by `where()`, the step and episode."""
    try:
        value = function(*arguments)
        value = float(value) if isinstance(value, int) else value  # NumPy does not take the largest for a number
    except (Exception, SystemExit) as error:  # one that calls sys.exit must not end whoever asks it
        frames = traceback.extract_tb(error.__traceback__)[1:]  # the first is this one
        own = [f" at {Path(each.filename).name}:{each.lineno}" for each in frames if each.filename == frames[0].filename]
        what = f"{type(error).__name__}: {error}{own[-1] if own else ''}"  # the user's code, not what that called
        raise RewardError(f"Reward {name!r} raised {what} ({where()})") from error
    if isinstance(value, float) and abs(value) <= LARGEST_REWARD:  # the common case; NumPy's float64 is a float too
        return float(value)
    array = np.asarray(value)  # a bool, or named indexing's array of one element, counts as its number
    if array.size != 1 or array.dtype.kind not in "biuf":
        what = f"{value!r}, not a number"
    elif abs(number := float(array.item())) <= LARGEST_REWARD:
        return number
    elif not math.isfinite(number):
        what = f"{number}, not a finite number"
    else:
        best = f"scale it, best to about 1 as the suite's, at most to {LARGEST_REWARD:g}"
        what = f"{number:g}, too large to learn from: {best}"
    raise RewardError(f"Reward {name!r} returned {what} ({where()})")


class PhysicsReward:
    """The user's reward as a function of dm_control's `physics`, which is found out if it writes there.

    Such a reward would change the world that it scores, or pay otherwise when episodes are relabelled. Compared are, at
    every step, all that MuJoCo integrates, is told or computes, and new attributes of `physics`, its data and its model;
    and, from `begin` to `end`, the model without its assets: in between the world itself does not change it.
    """

    def __init__(self, task: Task, physics: Any) -> None:
        assert task.reward is not None
        self._function, self._name, self._physics = task.reward, task.name, physics
        self._attributes = [(each, set(vars(each))) for each in (physics, physics.data, physics.model)]
        self._mujoco = model, data = physics.model.ptr, physics.data.ptr
        self._state = np.zeros(mujoco.mj_stateSize(model, INTEGRATION))
        self._computed = [getattr(data, name) for name in STORED + FOLLOWS]
        fields = [getattr(part, name) for part in (model, model.opt) for name in dir(part) if not name.startswith(LEFT_OUT)]
        self._constants = [array for array in fields if isinstance(array, np.ndarray)]
        numbers = [name for name in dir(model.opt) if isinstance(getattr(model.opt, name), int | float)]
        self._options = attrgetter(*numbers)

    def begin(self) -> None:
        """Call it when the model of an episode is as it will be."""
        self._model = self._read_model()

    def __call__(self, where: Callable[[], str]) -> float:
        """The reward of the current state."""
        before = self._read_state()
        reward = call_reward(self._function, self._name, where, self._physics)
        if self._read_state() != before:
            raise self._has_written("state", where)
        for each, known in self._attributes:
            for name in vars(each).keys() - known:
                if not hasattr(type(each), name):
                    raise self._has_written(f"attribute {name!r}", where)
        return reward

    def end(self, where: Callable[[], str]) -> None:
        """Call it at the end of the episode, or of a part of it."""
        if self._read_model() != self._model:
            raise self._has_written("model", where)

    def _read_state(self) -> bytes:
        mujoco.mj_getState(*self._mujoco, self._state, INTEGRATION)
        return b"".join([self._state.tobytes(), *[array.tobytes() for array in self._computed]])

    def _read_model(self) -> tuple[Any, ...]:
        return self._options(self._mujoco[0].opt), *[array.tobytes() for array in self._constants]

    def _has_written(self, part: str, where: Callable[[], str]) -> RewardError:
        return RewardError(f"Reward {self._name!r} has written to physics (its {part}): it may only read it ({where()})")
