"""A MuJoCo model file as a world: actuators are its actions, joints or sensors its observations."""

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from . import suite
from .base import check_whole
from .names import MJCF, split_name, split_world
from .registered import find_function
from .suite import MjModel, Physics, base
from .world import POSES, World

ENV_STEP = 0.02
"""Seconds of an env step, about, where `substeps` does not say."""
Reset = Callable[[Any, np.random.Generator], None]


class ModelTask(base.Task):
    """Nothing to do in a model: starts episodes, and observes."""

    def __init__(self, keyframe: int | None, reset: Reset | None, sensors: Sequence[int]) -> None:
        super().__init__(random=0)
        self._keyframe, self._reset, self._sensors = keyframe, reset, sensors

    def initialize_episode(self, physics: Any) -> None:
        """The key frame, if there is one, and then the user's function."""
        if self._keyframe is not None:
            mujoco.mj_resetDataKeyframe(physics.model.ptr, physics.data.ptr, self._keyframe)
        if self._reset:
            self._reset(physics, np.random.default_rng(self.random.randint(2**32, dtype=np.uint32)))

    def get_observation(self, physics: Any) -> dict[str, np.ndarray]:
        """The sensors that were asked for, or positions and velocities of all joints."""
        if not self._sensors:
            return {"position": physics.data.qpos.copy(), "velocity": physics.data.qvel.copy()}
        return {physics.model.ptr.sensor(each).name: physics.data.ptr.sensor(each).data.copy() for each in self._sensors}

    def get_reward(self, physics: Any) -> float:
        """There is none."""
        return 0.0


def load_world(name: str) -> World:
    """The simulation of a world of the suite, a maze, or a model file; without a task its reward is always 0."""
    if not name.startswith(MJCF):
        return suite.load(*split_name(name))
    path, arguments = split_world(name)
    known = tuple(inspect.signature(load).parameters)[1:]
    unknown = sorted(set(arguments) - set(known))
    if unknown:
        raise ValueError(f"The world of a model file takes no argument {unknown[0]!r}; it takes {', '.join(known)}")
    return load(path.removeprefix(MJCF), **arguments)


def load(
    path: str,
    *,
    episode: int = 1000,
    substeps: int | None = None,
    keyframe: str | int | None = None,
    sensors: Sequence[str] | str = (),
    reset: Reset | str | None = None,
) -> World:
    """The world of a model file.

    Args:
        path: an MJCF file, or a compiled model (.mjb). A URDF has no actuators, so attach it to an MJCF that has.
        episode: env steps.
        substeps: physics steps in one env step; none: as many as take about 0.02 s.
        keyframe: name or number of the key frame that an episode starts from; none: the first, if the model has any.
        sensors: names of the sensors to observe (on the command line with commas between them) instead of all joints'
            positions and velocities.
        reset: a function of `physics` and a random generator, or `module:function`, which changes the start.
    """
    check_whole("episode", episode)
    if substeps is not None:
        check_whole("substeps", substeps)
    physics = Physics.from_model(_compiled(path))
    model = physics.model.ptr
    if not model.nu:
        raise ValueError(
            f"{path} has no actuators, so there is nothing for an agent to do. A URDF never has any: attach it to an MJCF "
            "that has (docs/own_model.md)"
        )
    names = [sensors] if isinstance(sensors, str) else list(sensors)
    names = [name for each in names for name in each.split(",") if name]
    if keyframe is None:
        keyframe = 0 if model.nkey else None
    else:
        keyframe = _find(model, mujoco.mjtObj.mjOBJ_KEY, model.nkey, keyframe, path)
    task = ModelTask(
        keyframe,
        find_function(reset) if isinstance(reset, str) else reset,
        [_find(model, mujoco.mjtObj.mjOBJ_SENSOR, model.nsensor, name, path) for name in names],
    )
    substeps = substeps or max(1, round(ENV_STEP / model.opt.timestep))
    return World(physics, task, substeps, POSES, episode, camera=0 if model.ncam else "free")


def _compiled(path: str) -> Any:
    if not Path(path).is_file():
        raise ValueError(f"There is no file {path}")
    try:
        if path.endswith(".mjb"):
            return MjModel(mujoco.MjModel.from_binary_path(path))
        return MjModel(mujoco.MjModel.from_xml_path(path))
    except ValueError as error:
        raise ValueError(f"MuJoCo cannot load {path}: {error}") from None


def _find(model: mujoco.MjModel, kind: mujoco.mjtObj, count: int, name: str | int, path: str) -> int:
    number = name if isinstance(name, int) else mujoco.mj_name2id(model, kind, name)
    if not 0 <= number < count:
        what = {mujoco.mjtObj.mjOBJ_KEY: "key frame", mujoco.mjtObj.mjOBJ_SENSOR: "sensor"}[kind]
        known = ", ".join(mujoco.mj_id2name(model, kind, index) or str(index) for index in range(count))
        raise ValueError(f"{path} has no {what} {name!r}; it has {known or 'none'}")
    return number
