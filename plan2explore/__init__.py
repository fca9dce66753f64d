"""Explore a world without any reward, then solve tasks that are named only afterwards."""

import importlib
from typing import Any

__version__ = "0.2.0"

# Loaded when asked for: `import plan2explore` and `--help` stay quick without the simulator.
HOMES = {
    "Dataset": "replay.dataset",
    "Episode": "replay",
    "Model": "phases.model",
    "Policy": "phases.policy",
    "RewardError": "envs",
    "Run": "phases.run",
    "Scores": "phases.evaluate",
    "Task": "envs",
    "VectorEnv": "envs",
    "adapt": "phases.adapt",
    "explore": "phases.explore",
    "export": "phases.learn",
    "learn": "phases.learn",
    "list_tasks": "envs",
    "load": "phases.load",
    "make": "envs",
    "record": "replay",
    "relabel": "replay",
    "write_report": "report.page",
}
__all__ = [*HOMES]


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module 'plan2explore' has no attribute {name!r}")
    return getattr(importlib.import_module(f".{HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    """What the package is for, and none of its insides."""
    return sorted([*__all__, "__version__"])
