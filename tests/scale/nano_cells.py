"""Cells of nano agents that take seconds, and what is compared of their runs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from sizes import NANO

from plan2explore.config import ExploreConfig, Schedule, WorldConfig
from plan2explore.runs.checkpoint import Checkpoints
from plan2explore.runs.files import read_lines
from plan2explore.scale.cells import Cell

WORLD = WorldConfig("cartpole", obs="proprio", size=8, action_repeat=100)
SCHEDULE = Schedule(
    seed_episodes=1, updates_per_episode=50, block=5, collect="in-turn", environments=1, evaluate_every=2000,
    evaluate_episodes=1, snapshot_every=2000, checkpoint_seconds=0.0,
)  # fmt: skip


def nano_cell(seed: int, steps: int = 4000, name: str = "", **schedule) -> Cell:
    """An exploration of the nano agent, the same bit by bit wherever it runs."""
    config = ExploreConfig(WORLD, replace(SCHEDULE, **schedule), NANO, ("cartpole_swingup",), seed)
    return Cell(name or f"cell-{seed}", config, steps)


def results_of_run(path: Path) -> tuple[dict[str, bytes], list[dict], list[bytes]]:
    """What a run has made: the last checkpoint, the evaluations and the episodes, without times."""
    found = Checkpoints(path / "checkpoints").load_latest()
    assert found is not None
    evaluations = [{k: v for k, v in line.items() if k != "seconds"} for line in read_lines(path / "evaluations.jsonl")]
    episodes = [dict(np.load(file, allow_pickle=False)) for file in sorted((path / "episodes").glob("*.npz"))]
    assert evaluations and episodes
    actions = [episode["action"].tobytes() for episode in episodes]
    return {name: array.tobytes() for name, array in found[0].items()}, evaluations, actions
