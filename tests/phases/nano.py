"""Runs of the nano agent: ten actions an episode, so that a whole run takes seconds once it is compiled."""

import contextlib
import hashlib
import itertools
import os
import signal
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from sizes import NANO

import plan2explore as p2e
from plan2explore.config import ExploreConfig, Schedule, WorldConfig, paper
from plan2explore.phases.run import Run
from plan2explore.replay.buffer import Replay
from plan2explore.runs.checkpoint import Checkpoints
from plan2explore.runs.files import read_lines

WORLD = WorldConfig("cartpole", obs="proprio", size=8, action_repeat=100)
SCHEDULE = Schedule(
    seed_episodes=2, updates_per_episode=50, block=10, evaluate_every=2000, evaluate_episodes=1, snapshot_every=2000
)
TASKS = ("cartpole_balance", "cartpole_swingup")
FRAMES = 11  # of an episode: 1000 env steps, 100 of them to an action


def nano_config(world: str = "cartpole", seed: int = 0, **schedule: Any) -> ExploreConfig:
    """A configuration whose programs are compiled once for all tests."""
    return ExploreConfig(replace(WORLD, world=world), replace(SCHEDULE, **schedule), NANO, seed=seed)


def in_turn(**schedule: Any) -> ExploreConfig:
    return nano_config(collect="in-turn", environments=1, **schedule)


def overlap(**schedule: Any) -> ExploreConfig:
    return nano_config(collect="overlap", environments=2, **schedule)


def nano_explore(out: Path, config: ExploreConfig, steps: int = 5000) -> Run:
    """`explore` as all tests call it."""
    return p2e.explore(config.world.world, steps, out, probes=TASKS, config=config)


def nano_adapt(run: Run, task: Any = TASKS[0], **options: Any) -> Any:
    """`adapt` in no time."""
    return run.adapt(task, **({"updates": 20, "block": 10, "evaluate_episodes": 1} | options))


def command(out: Path, config: ExploreConfig, steps: int = 5000) -> list[str]:
    """The arguments on the command line that do the same as `nano_explore`."""
    flags = [f"--agent.{flag}" for flag in _flags(config.agent, paper)]
    flags += [f"--{flag}" for part in (config.world, config.schedule) for flag in _flags(part, type(part)())]
    probes = [piece for task in TASKS for piece in ("--probe", task)]
    start = ["explore", config.world.world, "--steps", str(steps), "--preset", "paper", "--out", str(out)]
    return [*start, *probes, *(flag for flag in flags if not flag.startswith("--world="))]


def _flags(ours: Any, default: Any) -> list[str]:
    found = []
    for each in fields(ours):
        value, usual = getattr(ours, each.name), getattr(default, each.name)
        if is_dataclass(value):
            found += [f"{each.name}.{flag}" for flag in _flags(value, usual)]
        elif value != usual:
            found.append(f"{each.name}={value}")
    return found


@contextlib.contextmanager
def remembered() -> Iterator[list[dict[str, np.ndarray]]]:
    """The rows of every whole episode that replay is given meanwhile."""
    found, add = [], Replay.add_episode

    def noted(replay: Replay, rows: dict[str, np.ndarray], stream: int | None = None) -> None:
        found.append({name: np.array(values) for name, values in rows.items()})
        add(replay, rows, stream)

    with mock.patch.object(Replay, "add_episode", noted):
        yield found


class KilledError(BaseException):
    """Ends a run in this process as a kill would: nothing is saved on the way out."""


@contextlib.contextmanager
def dies_at(kind: type, method: str, call: int, process: bool = False) -> Iterator[None]:
    """Ends the block, or this very process, without a last word when a method is called for the n-th time."""
    original, calls = getattr(kind, method), itertools.count(1)

    def deadly(self: Any, *arguments: Any) -> Any:
        if next(calls) == call:
            if process:
                os.kill(os.getpid(), signal.SIGKILL)
            raise KilledError
        return original(self, *arguments)

    with mock.patch.object(kind, method, deadly), contextlib.suppress(KilledError):
        yield
        raise AssertionError(f"{method} was called too seldom")


def parameters(run: Run | Path) -> dict[str, np.ndarray]:
    """All arrays of the last checkpoint: parameters, what optimisers remember, the random key."""
    path = run if isinstance(run, Path) else run.path
    found = Checkpoints(path / "checkpoints").load_latest()
    assert found is not None
    return found[0]


def progress_of(run: Run) -> dict[str, Any]:
    """What the last checkpoint says beside its arrays."""
    found = Checkpoints(run.path / "checkpoints").load_latest()
    assert found is not None
    return found[1]


def evaluations(run: Run | Path) -> list[dict[str, Any]]:
    """The lines of evaluations.jsonl, without the time that they took."""
    path = run if isinstance(run, Path) else run.path
    return [{k: v for k, v in line.items() if k != "seconds"} for line in read_lines(path / "evaluations.jsonl")]


def digests(path: Path) -> dict[str, str]:
    """What is in every file of a run, adaptations left out."""
    files = (file for file in sorted(path.rglob("*")) if file.is_file() and path / "adapt" not in file.parents)
    return {str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def assert_same_arrays(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> None:
    """Bit by bit."""
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert ours[name].tobytes() == theirs[name].tobytes(), name
