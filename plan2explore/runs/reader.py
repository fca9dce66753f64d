"""The reader of runs that phases, reports, tables and lists share: settings, metrics, evaluations. All are untrusted.

What has to be right, such as settings that a run resumes with, is an error that says why. What is only shown is left out
where it is damaged.
"""

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard, TypeVar

from plan2explore.config import ExploreConfig, read_config
from plan2explore.envs.names import check_module
from plan2explore.untrusted import parse_object

from .files import read_lines
from .folder import RunError, RunFolder

Config = TypeVar("Config")
Value = TypeVar("Value")
FEWEST = 3
"""Episodes from which on an interval is shown: two say nothing of how far apart the others would be."""


# --- Settings ---


def stored_config(folder: RunFolder, name: str = "config") -> ExploreConfig:
    """The configuration that a run was started with."""
    config = read_stored(folder, name, ExploreConfig)
    check_module(config.world.world, str(folder.path))
    return config


def read_stored(folder: RunFolder, name: str, kind: type[Config]) -> Config:
    """A configuration out of a run's settings, which are untrusted."""
    values = stored(folder, name, dict)
    try:
        return read_config(kind, values)
    except (TypeError, ValueError) as error:
        raise RunError(f"The settings of {folder.path} cannot be read: {error}") from None


def stored(folder: RunFolder, name: str, kind: type[Value]) -> Value:
    """One of a run's settings, if it is of the kind that it should be."""
    value = folder.settings.get(name)
    if type(value) is not kind or (isinstance(value, int) and value < 1):
        wanted = "int above 0" if kind is int else kind.__name__
        raise RunError(f"The settings of {folder.path} cannot be read: {name!r} is {value!r:.100}, not {wanted}.")
    return value


@dataclass(frozen=True)
class Summary:
    """What settings say of a run, also where this version cannot read them as a whole."""

    world: str
    method: str
    """The exploration objective."""
    seed: Any
    """The exploration's."""
    probes: tuple[str, ...]
    task: str
    """Of an adaptation, else empty."""
    run: str
    """The id of the exploration that an adaptation began with."""
    snapshot: int
    """Env steps of the snapshot that it began with."""
    shots: int
    """Episodes of the task that it was given: 0 is zero-shot."""


def summary_of(folder: RunFolder) -> Summary:
    """What its settings say of an exploration, or of an adaptation and the exploration before it."""
    settings = folder.settings
    explored = _part(settings, "config" if folder.kind == "explore" else "explored")
    agent, probes = _part(explored, "agent"), explored.get("probes")
    objective = (_part(agent, "intrinsic") or _part(agent, "novelty")).get("objective")
    numbers = settings.get("snapshot"), _part(settings, "config").get("shots")
    before, shots = (number if isinstance(number, int) else 0 for number in numbers)
    return Summary(
        world=str(_part(explored, "world").get("world", "?")),
        method=objective if isinstance(objective, str) and objective else "?",
        seed=explored.get("seed"),
        probes=tuple(map(str, probes)) if isinstance(probes, list) else (),
        task=str(settings.get("task", "")),
        run=str(settings.get("run", "")),
        snapshot=before,
        shots=shots,
    )


def _part(settings: dict[str, Any], name: str) -> dict[str, Any]:
    found = settings.get(name)
    return found if isinstance(found, dict) else {}


def open_exploration(path: str | Path) -> RunFolder:
    """The run in a folder, which has to be an exploration."""
    folder = RunFolder.open(path)
    if folder.kind != "explore":
        raise RunError(f"{path} is an adaptation, not an exploration: load it with plan2explore.load.")
    return folder


def adaptations_of(folder: RunFolder) -> tuple[list[RunFolder], list[str]]:
    """The adaptations of an exploration that can be read, the newest last, and a sentence for each other folder there."""
    found, faults = [], []
    for path in sorted(folder.adapt.glob("[!.]*")):
        try:
            each = RunFolder.open(path)
        except RunError as error:
            faults.append(f"{path} was skipped: {error}")
            continue
        if each.kind == "adapt" and each.settings.get("run") == folder.id:
            found.append(each)
        else:
            faults.append(f"{path} was skipped: it is no adaptation of {folder.path}.")
    return sorted(found, key=lambda each: each.created), faults


# --- Metrics, evaluations and starts ---


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether a value out of a file is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def read_metrics(path: Path, tail: int = 0) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl that say at which env step they were written, under today's names.

    With `tail`, only those in so many bytes at the end of the file.
    """
    file, lines = path / "metrics.jsonl", []
    if not tail:
        lines = read_lines(file)
    elif file.is_file():
        with open(file, "rb") as opened:
            opened.seek(max(0, file.stat().st_size - tail))
            lines = [parse_object(text) or {} for text in opened.read().split(b"\n")]
    lines = [line for line in lines if is_number(line.get("env_steps"))]
    return [{re.sub("^novelty/", "intrinsic/", name): value for name, value in line.items()} for line in lines]


def greatest(lines: list[dict[str, Any]], name: str) -> float:
    """The greatest value of a metric; 0 where there is none."""
    return max((line[name] for line in lines if is_number(line.get(name))), default=0)


def progress_of(folder: RunFolder, lines: list[dict[str, Any]], name: str) -> tuple[str, bool]:
    """How far an exploration has come in `env_steps` or `update`, in words, and whether that is its goal.

    A run that explores has a goal of env steps, one that learns from a data set of updates.
    """
    done, goal = int(greatest(lines, name)), folder.settings.get("goal" if name == "env_steps" else "updates")
    reached = isinstance(goal, int) and done >= goal
    return f"{done:,}" + (f" of {goal:,}" if isinstance(goal, int) and not reached else ""), reached


class Evaluation(NamedTuple):
    """A line of evaluations.jsonl."""

    task: str
    env_steps: int
    mean: float
    std: float
    episodes: tuple[float, ...]
    interval: tuple[float, float] | None
    """95 % interval of the mean; none where there are too few episodes for one."""
    seconds: float | None
    """Since the process began, if it is told."""


def read_evaluations(path: Path) -> list[Evaluation]:
    """The evaluations of an exploration or an adaptation. Damaged lines are named in the log and skipped."""
    return read_lines(path / "evaluations.jsonl", _evaluation)


def _evaluation(line: dict[str, Any]) -> Evaluation:
    task, ends, seconds, scores = line["task"], line.get("interval"), line.get("seconds"), line["episodes"]
    if not isinstance(task, str) or not task or not isinstance(scores, list):
        raise TypeError(task)
    low, high = ends if isinstance(ends, list) and len(ends) == 2 and len(scores) >= FEWEST else (None, None)
    return Evaluation(
        task, int(line["env_steps"]), float(line["mean"]), float(line.get("std", 0.0)), tuple(map(float, scores)),
        None if low is None or high is None else (float(low), float(high)),
        None if seconds is None else float(seconds),
    )  # fmt: skip


def read_starts(folder: RunFolder) -> list[dict[str, Any]]:
    """How each start of a run came about: when, which command, which versions, which commit, what machine."""
    return read_lines(folder.path / "starts.jsonl")
