"""All that touches a simulator: worlds, their tasks and pictures, and many of them at once."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .dmc import SuiteEnv
    from .gymnasium import GymnasiumEnv
    from .names import list_tasks
    from .tasks import RewardError, Task
    from .vector import VectorEnv

SIZES = (8, 1024)  # smallest and largest picture
REPEATS = (1, 100)
OBSERVATIONS = ("pixels", "proprio", "both")

# Loaded when asked for: a worker process, or someone who only lists tasks, should not wait for all of it.
HOMES = {
    "RewardError": "tasks",
    "Task": "tasks",
    "VectorEnv": "vector",
    "list_tasks": "names",
}
__all__ = ["RewardError", "Task", "VectorEnv", "list_tasks", "make"]


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module 'plan2explore.envs' has no attribute {name!r}")
    return getattr(importlib.import_module(f".{HOMES[name]}", __name__), name)


def make(
    name: str,
    renderer: str = "auto",
    size: int = 64,
    action_repeat: int = 2,
    seed: int = 0,
    task: "Task | None" = None,
    obs: str = "both",
    observe_as: str | None = None,
) -> "SuiteEnv | GymnasiumEnv":
    """A Gymnasium environment: a task of the suite, a bare domain, or `gymnasium:ID`.

    Args:
        name: `walker_walk` (see `list_tasks`), a bare domain such as `walker` (reward always 0), or `gymnasium:ID`.
        renderer: `raycast` (no OpenGL), `gl` (MuJoCo's own), or `auto`: the first of these that can draw the world.
        size: width and height of the picture.
        action_repeat: env steps per action; their rewards are summed.
        seed: of the first episode, where `reset` is given none.
        task: the user's own reward, in a world without a task.
        obs: `pixels`, `proprio` or `both`: what is observed. With `proprio` no image is drawn: it stays black.
        observe_as: a task or bare domain of the same body, whose `proprio` is observed instead of this task's own.
    """
    from .dmc import SuiteEnv
    from .gymnasium import GymnasiumEnv
    from .names import GYMNASIUM
    from .render import RENDERERS

    _check("size", size, *SIZES)
    _check("action_repeat", action_repeat, *REPEATS)
    if renderer not in RENDERERS:
        raise ValueError(f"A renderer is one of {', '.join(RENDERERS)}; got {renderer!r}")
    if obs not in OBSERVATIONS:
        raise ValueError(f"obs is one of {', '.join(OBSERVATIONS)}; got {obs!r}")
    if str(name).startswith(GYMNASIUM):
        return GymnasiumEnv(name, renderer, size, action_repeat, seed, task, obs)
    return SuiteEnv(name, renderer, size, action_repeat, seed, task, obs, observe_as)


def _check(what: str, value: int, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{what} is a whole number from {low} to {high}; got {value!r}")
