"""Explore a world without any reward, then solve tasks that are named only afterwards."""

from typing import Any

__version__ = "0.1.0"
__all__ = ["Episode", "RewardError", "Task", "VectorEnv", "list_tasks", "make", "record", "relabel"]


def __getattr__(name: str) -> Any:
    """Loads the simulator only when it is asked for: `import plan2explore` and `--help` stay quick."""
    if name not in __all__:
        raise AttributeError(f"module 'plan2explore' has no attribute {name!r}")
    from . import envs

    if name in envs.__all__:
        return getattr(envs, name)
    from . import memory

    return getattr(memory, name)
