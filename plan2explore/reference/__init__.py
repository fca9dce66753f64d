"""The paper's numbers and published curves, once, as data with their source (README.md beside this file)."""

import csv
import functools
from importlib import resources
from typing import NamedTuple

METHODS = ("plan2explore", "curiosity", "random", "max", "retrospective", "dreamer")
"""In the order of the paper's columns."""
TABLES = {1: "zero_shot_3.5M", 2: "few_shot_1M+150K"}
TASK_AVERAGE = "task_average"
"""The name of the last row of both tables."""
ALIASES = {"ball_in_cup_catch": "cup_catch"}


class Point(NamedTuple):
    """A point of a published curve: mean and standard deviation over seeds."""

    env_steps: int
    seeds: int
    mean: float
    std: float


def paper_table(number: int) -> dict[str, dict[str, float]]:
    """Table 1 (zero-shot) or 2 (adaptation): scores by task, then method, in its order. What it lacks is left out."""
    if number not in TABLES:
        raise ValueError(f"The paper has Table 1 (zero-shot) and Table 2 (adaptation); got {number!r}")
    lines = [line for line in _read("paper_tables.csv") if line["table"] == TABLES[number]]
    return {line["task"]: {method: float(line[method]) for method in METHODS if line[method]} for line in lines}


def paper_scores(task: str, table: int = 1) -> dict[str, float]:
    """The scores of a task by method; empty if the paper's table does not have the task."""
    return paper_table(table).get(_named(task), {})


def published_curve(task: str, method: str = "plan2explore") -> list[Point]:
    """The published learning curve of `plan2explore` (zero-shot) or `dreamer`; empty if there is none."""
    name = "dmc_" + _named(task)
    lines = [line for line in _read("published_curves.csv") if (line["task"], line["method"]) == (name, method)]
    return [Point(int(x["env_steps"]), int(x["seeds"]), float(x["mean"]), float(x["std"])) for x in lines]


def with_reward(task: str, env_steps: int) -> float | None:
    """DreamerV3's score of a task with its reward, from pixels, at so many env steps (within 2 %): 0.5M and 1M are known."""
    columns = {"dreamerv3_500k": 500_000, "dreamerv3_1M": 1_000_000}
    near = [column for column, known in columns.items() if abs(env_steps / known - 1) < 0.02]
    lines = [line for line in _read("supervised_dmc_vision.csv") if line["task"] == _named(task)]
    return float(lines[0][near[0]]) if near and lines else None


def crafter_scoreboard() -> dict[str, tuple[float, float]]:
    """Agents that explored Crafter without reward for 1M env steps: score in percent, and its std over seeds."""
    lines = _read("crafter_no_reward.csv")
    return {line["agent"]: (float(line["score_percent"]), float(line["score_std"])) for line in lines}


def _named(task: str) -> str:
    """The paper's name of a task of the suite."""
    return ALIASES.get(task, task)


@functools.cache
def _read(name: str) -> tuple[dict[str, str], ...]:
    text = resources.files(__name__).joinpath(name).read_text(encoding="utf-8")
    return tuple(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))
