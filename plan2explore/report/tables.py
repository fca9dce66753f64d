"""`plan2explore table`: the layouts of the paper's Tables 1 and 2, our numbers beside the paper's.

As in the paper, a score is the mean of the last 20 evaluation episodes with the actor's mode; over seeds we give mean ±
standard deviation (the paper: the mean of 3 seeds).
"""

import itertools
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from tyro.conf import Positional

from ..atomic import write_file
from ..console import counted, say
from ..options import command
from ..reference import METHODS, TASK_AVERAGE, Point, paper_table, published_curve, with_reward
from ..runs.files import check_folder
from ..runs.results import FEW_SHOT, OFFLINE, PROBE, SUPERVISED, Result, csv_bytes, left_out, one_each, read_results

Item = TypeVar("Item")
Key = TypeVar("Key")
EPISODES = 20
"""The last evaluation episodes that a table averages (the paper)."""
SLACK = 1.02
"""Environments step together: a run ends a few env steps after its goal."""
MISSING = "missing"
NAMES = {"plan2explore": "Plan2Explore", "max": "MAX"}
STEPS = {1: 3_500_000, 2: 1_150_000}
"""Env steps at which the paper's tables were taken."""
TITLES = {
    1: "Table 1: zero-shot performance (the paper: at 3.5M env steps)",
    2: "Table 2: adaptation performance (the paper: 1M env steps without a task, then 150K with it)",
}
EXPERIENCE = {
    1: {"Task-agnostic experience": ("3.5M", "–"), "Task-specific experience": ("–", "3.5M")},
    2: {"Task-agnostic experience": ("1M", "–"), "Task-specific experience": ("150K", "1.15M")},
}
"""The paper's rows above its scores: of the methods without a task, and of Dreamer."""
TABLE_COLUMNS = ("table", "task", "method", "score", "std", "seeds", "episodes", "env_steps", "paper")


@dataclass(frozen=True)
class Cell:
    """Our score of a task and method: over seeds, of each seed's last 20 episodes. A mean over tasks has no seeds."""

    mean: float
    seeds: int = 0
    std: float = 0.0
    """Over seeds; 0 for a single one."""
    env_steps: int = 0
    """Of the last evaluation; of the seed that came least far."""
    episodes: int = 0
    """Of the seed that has fewest."""
    protocol: str = ""

    def __str__(self) -> str:
        spread = f" ± {self.std:.1f}" if self.seeds > 1 else ""
        offline = ", offline" if self.protocol == OFFLINE else ""
        about = f" ({counted(self.seeds, 'seed')}, {steps_text(self.env_steps)}{offline})" if self.seeds else ""
        return f"{self.mean:.1f}{spread}{about}"

    def row(self) -> dict[str, Any]:
        """Its part of a CSV file's line."""
        row = {"score": f"{self.mean:.3f}", "std": f"{self.std:.3f}" if self.seeds > 1 else ""}
        return row | ({name: getattr(self, name) for name in ("seeds", "episodes", "env_steps")} if self.seeds else {})


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Items that have one key together, in their order."""
    groups: dict[Key, list[Item]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return groups


def summarise(results: Iterable[Result], most_steps: float = math.inf) -> Cell | None:
    """One cell out of the results of one task, method and protocol, up to so many env steps.

    Separate runs of one seed, and adaptations of one run, are never averaged: one counts. A seed that went further than
    others counts as it was there; or, if it was not evaluated by then, first of all.
    """
    chosen = one_each(each for each in results if each.env_steps <= most_steps * SLACK)
    if not chosen:
        return None
    seeds = grouped(chosen, lambda each: each.seed)
    reached = min(max(result.env_steps for result in each) for each in seeds.values())
    scores = []
    for each in seeds.values():
        last = max(reached * SLACK, min(result.env_steps for result in each))
        scores.append(last_episodes([result for result in each if result.env_steps <= last]))
    means, counts = zip(*scores, strict=True)
    std = float(np.std(means, ddof=1)) if len(means) > 1 else 0.0
    return Cell(float(np.mean(means)), len(seeds), std, reached, min(counts), chosen[0].protocol)


def last_episodes(results: Sequence[Result], episodes: int = EPISODES) -> tuple[float, int]:
    """The mean score of the last evaluation episodes, and how many those are. Older evaluations fill up the number."""
    total, count = 0.0, 0
    for result in sorted(results, key=lambda result: result.env_steps)[::-1]:
        share = min(result.episodes, episodes - count)
        total, count = total + share * result.score, count + share
    return total / max(count, 1), count


def steps_text(env_steps: int) -> str:
    """Env steps as people say them: 500K, 1.15M."""
    if env_steps < 1000:
        return str(env_steps)
    thousands = round(env_steps / 1000, 0 if env_steps >= 100_000 else 1)
    return f"{thousands / 1000:g}M" if thousands >= 1000 else f"{thousands:g}K"


# --- The paper's layouts ---


def table_cells(results: Sequence[Result], number: int) -> dict[tuple[str, str], Cell]:
    """Our cells of Table 1 or 2, by task and method; the mean over tasks where all of the paper's are there."""
    found = {}
    tasks = [task for task in paper_table(number) if task != TASK_AVERAGE]
    for method in METHODS:
        # The paper's own protocol is the last. Dreamer has its task from the start, for all of 1.15M env steps in Table 2.
        own = (SUPERVISED,) if method == "dreamer" else (OFFLINE, PROBE) if number == 1 else (FEW_SHOT,)
        for task, protocol in itertools.product(tasks, own):
            chosen = [each for each in results if (each.task, each.method, each.protocol) == (task, method, protocol)]
            if cell := summarise(chosen, STEPS[number]):
                found[task, method] = cell
        scores = [found[task, method].mean for task in tasks if (task, method) in found]
        if len(scores) == len(tasks):
            found[TASK_AVERAGE, method] = Cell(float(np.mean(scores)))
    return found


def table_markdown(results: Sequence[Result], number: int) -> str:
    """Table 1 or 2: in each cell our score, a slash, and the paper's. A dash is a cell that the paper leaves empty."""
    cells = table_cells(results, number)
    rows = [["Zero-shot performance" if number == 1 else "Adaptation performance", *map(name_of, METHODS)]]
    for label, (others, dreamer) in EXPERIENCE[number].items():
        rows.append([f"{label} (paper)", *[others] * (len(METHODS) - 1), dreamer])
    for task, scores in paper_table(number).items():
        paper = {method: f"{scores[method]:g}" if method in scores else "–" for method in METHODS}
        ours = (f"{cells.get((task, method), MISSING)} / {score}" for method, score in paper.items())
        rows.append([task.replace("_", " ").title(), *ours])
    return f"## {TITLES[number]}\n\nEach cell: here / in the paper.\n\n{markdown(rows)}"


def table_rows(results: Sequence[Result], number: int) -> list[dict[str, Any]]:
    """Table 1 or 2 as lines of a CSV file; what is not there is missing."""
    cells = table_cells(results, number)
    rows = {(task, method): scores.get(method, "") for task, scores in paper_table(number).items() for method in METHODS}
    return [
        {"table": number, "task": place[0], "method": place[1], "paper": paper}
        | (cells[place].row() if place in cells else {})
        for place, paper in rows.items()
    ]


def name_of(method: str) -> str:
    """A method as the paper writes it."""
    return NAMES.get(method, method.capitalize())


# --- Everything, at its own number of env steps ---


def published_at(task: str, method: str, protocol: str, env_steps: int) -> Point | None:
    """The point of the published curve at this number of env steps, if it has one (within 2 %)."""
    if protocol == FEW_SHOT or (method == "dreamer") != (protocol == SUPERVISED):
        return None
    near = [point for point in published_curve(task, method) if abs(point.env_steps / max(env_steps, 1) - 1) < SLACK - 1]
    return near[0] if near else None


def result_rows(results: Sequence[Result]) -> list[dict[str, Any]]:
    """A line for each task, method and protocol there is: its last episodes' score, beside the published curve."""
    groups, found = grouped(results, lambda each: (each.task, each.method, each.protocol)), []
    for (task, method, protocol), group in sorted(groups.items()):
        cell = summarise(group)
        assert cell is not None
        point = published_at(task, method, protocol, cell.env_steps)
        published = {"published": point.mean if point else "", "published_std": point.std if point else ""}
        reward = {"with_reward": with_reward(task, cell.env_steps) or ""}
        found.append({"task": task, "method": method, "protocol": protocol} | cell.row() | published | reward)
    return found


class Comparison(NamedTuple):
    """A method's mean over all tasks that have a published score at as many env steps, and the published mean."""

    method: str
    protocol: str
    tasks: int
    ours: float
    published: float

    def __str__(self) -> str:
        which = f"{name_of(self.method)} ({self.protocol}), {counted(self.tasks, 'task')}"
        means = f"mean {self.ours:.1f} here, {self.published:.1f} published"
        return f"{which} with a published score at as many env steps: {means}."


def compare(results: Sequence[Result]) -> list[Comparison]:
    """The lines of `result_rows` that have a published score, taken together."""
    published = [row for row in result_rows(results) if row["published"] != ""]
    groups = grouped(published, lambda row: (row["method"], row["protocol"]))
    pairs = {group: [(float(row["score"]), row["published"]) for row in rows] for group, rows in groups.items()}
    return [Comparison(*group, len(each), *np.mean(each, 0).tolist()) for group, each in pairs.items()]


def results_markdown(results: Sequence[Result]) -> str:
    """The lines of `result_rows` for people."""
    score = f"Mean of last {EPISODES}"
    rows = [["Task", "Method", "Protocol", "Env steps", score, "Seeds", "Episodes", "Published at as many", "With reward"]]
    for row in result_rows(results):
        score = f"{float(row['score']):.1f}" + (f" ± {float(row['std']):.1f}" if row["std"] else "")
        published = MISSING if row["published"] == "" else f"{row['published']:.0f} ± {row['published_std']:.0f}"
        numbers = [steps_text(row["env_steps"]), score, row["seeds"], row["episodes"], published]
        reward = MISSING if row["with_reward"] == "" else f"{row['with_reward']:.0f}"
        rows.append([str(value) for value in (row["task"], row["method"], row["protocol"], *numbers, reward)])
    return (
        f"## Every result: mean of the last {EPISODES} evaluation episodes\n\nUp to the env steps given, of as many "
        "evaluations as that takes; Episodes says how many there were, of the seed with fewest. (A report's score is of the "
        "last evaluation alone.) Published: mean ± standard deviation over seeds, Plan2Explore zero-shot "
        f"and Dreamer supervised. With reward: DreamerV3 from pixels, at as many.\n\n{left_out(results)}{markdown(rows)}"
        + "".join(f"\n\n{comparison}" for comparison in compare(results))
    )


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown, padded so that it reads well as text too."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["| " + " | ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


# --- The command ---


def write_tables(results: Sequence[Result], out: Path | None = None) -> str:
    """The tables of results as Markdown; with `out`, also `tables.md` and CSV files in that folder.

    A table of the paper's in which nothing is ours is left out.
    """
    numbers = [number for number in (1, 2) if table_cells(results, number)]
    text = "\n\n".join([*(table_markdown(results, number) for number in numbers), results_markdown(results)]) + "\n"
    if out is not None:
        check_folder(out)
        out.mkdir(parents=True, exist_ok=True)
        write_file(out / "tables.md", [text.encode()])
        for number in numbers:
            write_file(out / f"table_{number}.csv", [csv_bytes(table_rows(results, number), TABLE_COLUMNS)])
        if rows := result_rows(results):
            write_file(out / "last_scores.csv", [csv_bytes(rows)])
    return text


@command
def table(sources: Positional[tuple[Path, ...]], out: Path | None = None, gate: int = 0) -> int:
    """Prints the paper's tables with the numbers of your runs beside the paper's, as Markdown.

    Args:
        sources: Runs, CSV files of results, or folders with either directly in them.
        out: Also write tables.md and CSV files into this folder.
        gate: End with status 1 unless so many tasks at least have a published score at as many env steps, and no method's
            mean over them is below the published one.
    """
    results = read_results(sources)
    say(write_tables(results, out).rstrip("\n"))
    compared = compare(results) if gate else []
    faults = [f"below the published scores: {each}" for each in compared if each.ours < each.published]
    if (most := max((each.tasks for each in compared), default=0)) < gate:
        at = "with a published score at as many env steps (250K, 500K, 1M, 2M, 3.5M)"
        faults.insert(0, f"{counted(most, 'task')} {at}, not {gate}")
    for fault in faults:
        say(f"gate: {fault}", sys.stderr)
    return int(bool(faults))
