"""All that touches a simulator: worlds, their tasks and frames, and many of them at once."""

import contextlib
import importlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .gymnasium import GymnasiumEnv
    from .mujoco_env import MujocoEnv
    from .names import list_tasks
    from .tasks import RewardError, Task
    from .vector import VectorEnv

# Loaded when asked for: a worker process, or someone who only lists tasks, should not wait for all of it.
HOMES = {
    "RewardError": "tasks",
    "Task": "tasks",
    "VectorEnv": "vector",
    "list_tasks": "names",
}
__all__ = ["RewardError", "Task", "VectorEnv", "list_tasks", "make"]


@contextlib.contextmanager
def environment_variable(name: str, value: str) -> Iterator[None]:
    """Sets a variable for a while, unless the user has set it."""
    if name in os.environ:
        yield
        return
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]


# MuJoCo and Gymnasium import GLFW, which asks a `python -c` for its version: left alone, that process takes a file
# struct.py of the current folder for Python's own. Imported here, GLFW is there before all that needs it.
with environment_variable("PYTHONSAFEPATH", "1"), contextlib.suppress(ImportError):
    importlib.import_module("glfw")


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module 'plan2explore.envs' has no attribute {name!r}")
    return getattr(importlib.import_module(f".{HOMES[name]}", __name__), name)


def make(
    name: str | None = None,
    renderer: str = "auto",
    size: int = 64,
    action_repeat: int = 2,
    seed: int = 0,
    task: "Task | None" = None,
    obs: str = "both",
    observe_as: str | None = None,
    camera: str | int | None = None,
    env_args: "Mapping[str, Any] | None" = None,
    mjcf: "str | Path | None" = None,
    **model: Any,
) -> "MujocoEnv | GymnasiumEnv":
    """A Gymnasium environment: a task of the suite, a bare domain, `gymnasium:ID`, or a MuJoCo model file.

    Args:
        name: `walker_walk` (see `list_tasks`), a bare domain such as `walker` (reward always 0), `gymnasium:ID`, or
            `mjcf:FILE.xml`.
        renderer: `raycast` (no OpenGL), `gl` (MuJoCo's own), or `auto`: the first of these that can draw the world.
        size: width and height of the image.
        action_repeat: env steps per action; their rewards are summed.
        seed: of the first episode, where `reset` is given none.
        task: the user's own reward, in a world without a task.
        obs: `pixels`, `proprio` or `both`: what is observed. With `proprio` no image is drawn: it stays black.
        observe_as: a task or bare domain of the same body, whose `proprio` is observed instead of this task's own.
        camera: name or number of a camera of the model, or `free`; none: the one chosen for the world.
        env_args: arguments of a `gymnasium:` or `mjcf:` world, which become part of its name.
        mjcf: a model file, instead of a name.
        model: `episode`, `substeps`, `keyframe`, `sensors` and `reset` of a model file (see `mjcf.load`).
    """
    from .base import EnvOptions
    from .gymnasium import GymnasiumEnv
    from .mujoco_env import MujocoEnv
    from .names import DATASET, GYMNASIUM, full_name

    if (name is None) == (mjcf is None):
        raise ValueError("make takes a name, or a model file as mjcf=, and not both")
    if model and mjcf is None:
        raise TypeError(f"make takes no argument {next(iter(model))!r} without mjcf=")
    name = full_name(f"mjcf:{mjcf}" if name is None else str(name), {**(env_args or {}), **model})
    if name.startswith(DATASET):
        raise ValueError(f"{name} is a data set: there is no simulator to make")
    camera = None if camera is None else str(camera)
    options = EnvOptions(name, renderer, size, action_repeat, seed, task, obs, observe_as, camera)
    return GymnasiumEnv(options) if name.startswith(GYMNASIUM) else MujocoEnv(options)
