"""`plan2explore table`: the layouts of the paper's Tables 1 and 2, our numbers beside the paper's.

As in the paper, a score is the mean of the last 20 evaluation episodes with the actor's mode; over seeds we give mean ±
standard deviation (the paper: the mean of 3 seeds).
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tyro.conf import Positional

from ..atomic import write_file
from ..console import counted, say
from ..options import command
from ..reference import METHODS, TASK_AVERAGE, Point, paper_table, published_curve, with_reward
from ..runs.files import check_folder
from ..runs.results import FEW_SHOT, OFFLINE, PROBE, SUPERVISED, Result, csv_bytes, left_out, one_each, read_results

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


@dataclass(frozen=True)
class Cell:
    """Our score of a task and method: over seeds, of each seed's last 20 episodes."""

    seeds: int
    mean: float
    std: float
    """Over seeds; 0 for a single one."""
    env_steps: int
    """Of the last evaluation; of the seed that came least far."""
    episodes: int
    """Of the seed that has fewest."""
    protocol: str

    def __str__(self) -> str:
        spread = f" ± {self.std:.1f}" if self.seeds > 1 else ""
        offline = ", offline" if self.protocol == OFFLINE else ""
        return f"{self.mean:.1f}{spread} ({counted(self.seeds, 'seed')}, {steps_text(self.env_steps)}{offline})"


def summarise(results: Iterable[Result], most_steps: int | None = None) -> Cell | None:
    """One cell out of the results of one task, method and protocol, up to so many env steps.

    Separate runs of one seed, and adaptations of one run, are never averaged: one counts.
    """
    results = [each for each in results if most_steps is None or each.env_steps <= most_steps * SLACK]
    seeds: dict[int, list[Result]] = defaultdict(list)
    for result in one_each(results):
        seeds[result.seed].append(result)
    if not seeds:
        return None
    reached = min(max(result.env_steps for result in each) for each in seeds.values())
    means, counts = zip(*(last_episodes(_up_to(reached, each)) for each in seeds.values()), strict=True)
    std = float(np.std(means, ddof=1)) if len(means) > 1 else 0.0
    return Cell(len(seeds), float(np.mean(means)), std, reached, min(counts), results[0].protocol)


def _up_to(env_steps: int, results: Sequence[Result]) -> list[Result]:
    """What a seed that went further scored when it was there; or, if it was not evaluated by then, first of all."""
    first = min(result.env_steps for result in results)
    return [result for result in results if result.env_steps <= max(env_steps * SLACK, first)]


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
    """Our cells of Table 1 or 2, by task and method."""
    found = {}
    for task in paper_table(number):
        for method in METHODS:
            # The paper's own protocol first. Dreamer has its task from the start, for all of 1.15M env steps in Table 2.
            own = (PROBE, OFFLINE) if number == 1 else (FEW_SHOT,)
            for protocol in (SUPERVISED,) if method == "dreamer" else own:
                chosen = [each for each in results if (each.task, each.method, each.protocol) == (task, method, protocol)]
                if cell := summarise(chosen, STEPS[number]):
                    found[task, method] = cell
                    break
    return found


def task_average(cells: dict[tuple[str, str], Cell], number: int, method: str) -> float | None:
    """The mean over the paper's tasks; none unless all of them are there."""
    tasks = [task for task in paper_table(number) if task != TASK_AVERAGE]
    scores = [cells[task, method].mean for task in tasks if (task, method) in cells]
    return float(np.mean(scores)) if len(scores) == len(tasks) else None


def table_markdown(results: Sequence[Result], number: int) -> str:
    """Table 1 or 2: in each cell our score, a slash, and the paper's. A dash is a cell that the paper leaves empty."""
    cells = table_cells(results, number)
    rows = [["Zero-shot performance" if number == 1 else "Adaptation performance", *map(name_of, METHODS)]]
    for label, (others, dreamer) in EXPERIENCE[number].items():
        rows.append([f"{label} (paper)", *[others] * (len(METHODS) - 1), dreamer])
    for task, scores in paper_table(number).items():
        row = [task.replace("_", " ").title()]
        for method in METHODS:
            average = task_average(cells, number, method) if task == TASK_AVERAGE else None
            ours = str(cells.get((task, method), MISSING)) if average is None else f"{average:.1f}"
            row.append(f"{ours} / {scores[method]:g}" if method in scores else f"{ours} / –")
        rows.append(row)
    return f"## {TITLES[number]}\n\nEach cell: here / in the paper.\n\n{markdown(rows)}"


def table_rows(results: Sequence[Result], number: int) -> list[dict[str, Any]]:
    """Table 1 or 2 as lines of a CSV file; empty is missing."""
    cells, found = table_cells(results, number), []
    for task, scores in paper_table(number).items():
        for method in METHODS:
            average = task_average(cells, number, method) if task == TASK_AVERAGE else None
            ours = _numbers(cells.get((task, method))) | ({} if average is None else {"score": f"{average:.3f}"})
            found.append({"table": number, "task": task, "method": method, **ours, "paper": scores.get(method, "")})
    return found


def _numbers(cell: Cell | None) -> dict[str, Any]:
    if cell is None:
        return dict.fromkeys(("score", "std", "seeds", "episodes", "env_steps"), "")
    std = f"{cell.std:.3f}" if cell.seeds > 1 else ""
    return {
        "score": f"{cell.mean:.3f}", "std": std, "seeds": cell.seeds, "episodes": cell.episodes, "env_steps": cell.env_steps
    }  # fmt: skip


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
    groups: dict[tuple[str, str, str], list[Result]] = defaultdict(list)
    for result in results:
        groups[result.task, result.method, result.protocol].append(result)
    found = []
    for (task, method, protocol), group in sorted(groups.items()):
        cell = summarise(group)
        assert cell is not None
        point = published_at(task, method, protocol, cell.env_steps)
        published = {"published": point.mean if point else "", "published_std": point.std if point else ""}
        reward = {"with_reward": with_reward(task, cell.env_steps) or ""}
        found.append({"task": task, "method": method, "protocol": protocol, **_numbers(cell), **published, **reward})
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
    groups: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for row in result_rows(results):
        if row["published"] != "":
            groups[row["method"], row["protocol"]].append((float(row["score"]), row["published"]))
    return [Comparison(*group, len(pairs), *np.mean(pairs, 0).tolist()) for group, pairs in groups.items()]


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
            write_file(out / f"table_{number}.csv", [csv_bytes(table_rows(results, number))])
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
    faults = _faults(compare(results), gate) if gate else []
    for fault in faults:
        say(f"gate: {fault}", sys.stderr)
    return int(bool(faults))


def _faults(comparisons: Sequence[Comparison], tasks: int) -> list[str]:
    """Why results do not pass a gate of so many tasks."""
    found = max((each.tasks for each in comparisons), default=0)
    wanted = f"{counted(found, 'task')} with a published score at as many env steps (250K, 500K, 1M, 2M, 3.5M), not {tasks}"
    below = [f"below the published scores: {each}" for each in comparisons if each.ours < each.published]
    return ([wanted] if found < tasks else []) + below
