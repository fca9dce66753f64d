"""Explore a world without any reward, then solve tasks that are named only afterwards."""

import importlib
from typing import Any

__version__ = "0.1.0"
__all__ = [
    "Episode",
    "Policy",
    "RewardError",
    "Run",
    "Scores",
    "Task",
    "VectorEnv",
    "adapt",
    "explore",
    "list_tasks",
    "load",
    "make",
    "record",
    "relabel",
    "write_report",
]
PHASES = {
    "Policy": "policy",
    "Run": "run",
    "Scores": "evaluate",
    "adapt": "adapt",
    "explore": "explore",
    "load": "load",
}


def __getattr__(name: str) -> Any:
    """Loads the simulator only when it is asked for: `import plan2explore` and `--help` stay quick."""
    if name not in __all__:
        raise AttributeError(f"module 'plan2explore' has no attribute {name!r}")
    if name in PHASES:
        return getattr(importlib.import_module(f".phases.{PHASES[name]}", __name__), name)
    if name == "write_report":
        return importlib.import_module(".report.page", __name__).write_report
    from . import envs

    if name in envs.__all__:
        return getattr(envs, name)
    from . import memory

    return getattr(memory, name)


def __dir__() -> list[str]:
    """What the package is for, and none of its insides."""
    return sorted([*__all__, "__version__"])
