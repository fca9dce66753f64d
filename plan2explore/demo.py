"""`plan2explore demo`: explore a maze without reward, then solve tasks that are named only afterwards."""

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import exp
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from .bench.machine import machine
from .config import ExploreConfig, Schedule, WorldConfig, modern_tiny
from .envs import Task, maze
from .envs.worker import python_command
from .phases.adapt import adapt
from .phases.evaluate import FEWEST, Scores
from .phases.explore import explore
from .phases.policy import Policy
from .phases.progress import duration
from .phases.run import Run
from .report.page import write_report
from .report.pictures import write_video
from .runs.files import append_line, read_json, read_lines
from .runs.folder import RunError, RunFolder

WORLD = "maze_u"
METHODS = ("plan2explore", "random")
TITLES = {"plan2explore": "Plan2Explore", "random": "random actions"}
STEPS, UPDATES = 20_000, 3_000
SOLVED = 500
"""A task counts as solved at half of what standing at its goal for the whole episode would pay."""


def reach(x: float, y: float) -> Callable[[Any], float]:
    """The reward for being at a place: 1 there, 0.14 a cell away, nothing behind a wall."""

    def near(physics: Any) -> float:
        ball = physics.data.qpos
        return exp(-2 * ((ball[0] - x) ** 2 + (ball[1] - y) ** 2))

    return near


def half_way(physics: Any) -> float:
    """A reward of one's own, the README's: wait half-way down the northern corridor."""
    x, y = physics.data.qpos
    return exp(-2 * ((x + 1.5) ** 2 + (y - 1) ** 2))


TASKS = (
    Task("north_east", reward=reach(3.5, 1)),
    Task("north", reward=reach(0.5, 1)),
    Task("half_way", reward=half_way),
    Task("north_west", reward=reach(-3.5, 1)),
)


@dataclass(frozen=True)
class DemoCommand:
    """Explores a maze without reward, with Plan2Explore and at random, then solves four tasks with what each learned.

    For 2 CPU cores: about six minutes. Leaves a picture, a table, a video and a report.
    """

    out: Path = Path("runs/demo")
    """Where everything goes. What is there already is not done again."""
    seed: int = 0
    """Random seed."""
    episodes: int = 5
    """Episodes of each evaluation."""
    only: Literal["plan2explore", "random"] | None = None
    """One of the two explorations alone, without picture, table and report."""


def main(arguments: list[str]) -> int:
    """Both explorations side by side, and what came of them."""
    command = tyro.cli(DemoCommand, prog="plan2explore demo", args=arguments)
    console, start = Console(soft_wrap=True), time.monotonic()

    def say(text: str) -> None:
        console.print(f"\n[{duration(time.monotonic() - start)}] {text}", markup=False)

    if command.only:
        play(command, command.only, say)
        return 0
    say(f"Explore {WORLD} without any reward, then solve {len(TASKS)} tasks with what was learned")
    with beside(command, "random"):
        say("Random actions explore in a process beside this one")
        scores = {"plan2explore": play(command, "plan2explore", say)}
        say("Waiting for random actions")
    scores["random"] = play(command, "random", say)
    runs = {method: Run(command.out / method) for method in METHODS}
    console.print(maps_of(runs), markup=False, highlight=False)
    console.print(table_of(scores))
    shares = {method: maze.coverage(WORLD, states_of(run)) for method, run in runs.items()}
    write_results(command, scores, shares, time.monotonic() - start)
    draw(command.out / "demo.png", runs, scores)
    say("Writing the report")
    page = write_report([run.path for run in runs.values()], command.out / "report.html")
    console.print(headline(shares, scores), markup=False)
    console.print(f"{duration(time.monotonic() - start)}. Picture, video and scores: {command.out}; report: {page}")
    return 0


@contextlib.contextmanager
def beside(command: DemoCommand, method: str) -> Iterator[None]:
    """Runs the demo with one exploration alone in a process of its own, until the end of the block."""
    command.out.mkdir(parents=True, exist_ok=True)
    log = command.out / f"{method}.log"
    given = [f"--{name}={getattr(command, name)}" for name in ("out", "seed", "episodes")]
    flags = {"XLA_FLAGS": os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"}
    with log.open("w") as file:
        process = subprocess.Popen(
            python_command("from plan2explore.cli import main; main()", "demo", f"--only={method}", *given),
            stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, env=os.environ | flags,
        )  # fmt: skip
    try:
        yield
    except BaseException:
        process.terminate()
        raise
    if process.wait():
        raise RunError(f"The exploration with {TITLES[method]} failed: see {log}.")


def demo_config(method: str, seed: int) -> ExploreConfig:
    """The modern preset for CPUs, which observes vectors."""
    agent = replace(modern_tiny, intrinsic=replace(modern_tiny.intrinsic, objective=method))
    schedule = Schedule(updates_per_episode=500, environments=1, evaluate_every=0, snapshot_every=STEPS, seed_episodes=2)
    return ExploreConfig(WorldConfig(WORLD, obs="proprio"), schedule, agent, seed=seed)


def play(command: DemoCommand, method: str, say: Callable[[str], None]) -> dict[str, Scores]:
    """Explores, then adapts to every task and evaluates it. Results that are there are read."""
    say(f"Exploring with {TITLES[method]}: {STEPS:,} env steps, no reward")
    run = explore(WORLD, STEPS, command.out / method, config=demo_config(method, command.seed))
    video, found = command.out / f"{method}.mp4", {}
    for task in TASKS:
        say(f"Adapting to {task.name} after {TITLES[method]}, without another step in the maze")
        policy = adapt(run, task, updates=UPDATES, seed=command.seed, evaluate_episodes=0)
        found[task.name] = scores_of(policy, command, again=not video.exists())
        say(str(found[task.name]))
    if not video.exists():
        write_video(video, np.concatenate([scores.frames for scores in found.values()], 2), fps=25, pixels=1024)
    return found


def scores_of(policy: Policy, command: DemoCommand, again: bool) -> Scores:
    """Plays a policy. Its scores are the adaptation's one evaluation, for reports, tables and the next time."""
    folder = RunFolder.open(policy.path)
    for line in read_lines(folder.evaluations_file):
        if len(line.get("episodes", [])) == command.episodes and policy.film.exists() and not again:
            return Scores(policy.task.name, tuple(line["episodes"]))
    scores = policy.evaluate(command.episodes, command.seed, policy.film, mode="sample")
    folder.evaluations_file.write_bytes(b"")
    append_line(folder.evaluations_file, scores.summary() | {"evaluation": 0, "updates": UPDATES})
    return scores


def solved(scores: dict[str, Scores]) -> int:
    """How many tasks were solved."""
    return sum(each.mean >= SOLVED for each in scores.values())


def headline(shares: dict[str, float], scores: dict[str, dict[str, Scores]]) -> str:
    """What happened, in a sentence."""
    found = {method: f"{shares[method]:.0%} of the maze and solved {solved(scores[method])}" for method in METHODS}
    return f"Plan2Explore visited {found['plan2explore']} of {len(TASKS)} tasks; random actions {found['random']}."


def table_of(scores: dict[str, dict[str, Scores]]) -> Table:
    """Tasks by columns, means with their 95 % intervals where the episodes are enough for one."""
    enough = all(len(each.episodes) >= FEWEST for rows in scores.values() for each in rows.values())
    about = "Mean score of an episode of 1000 env steps" + " (95 % interval)" * enough
    table = Table(title=about)
    table.add_column("zero-shot after", no_wrap=True)
    for name in (*(task.name for task in TASKS), "solved"):
        table.add_column(name)
    for method, found in scores.items():
        table.add_row(TITLES[method], *map(cell, found.values()), f"{solved(found)} of {len(found)}")
    return table


def cell(scores: Scores) -> str:
    """A mean with its interval, if the episodes are enough for one."""
    if len(scores.episodes) < FEWEST:
        return f"{scores.mean:.0f}"
    low, high = scores.interval
    return f"{scores.mean:.0f} ({low:.0f} to {high:.0f})"


def states_of(run: Run) -> np.ndarray:
    """Every state that an exploration visited, in order."""
    return np.concatenate([each.state.reshape(-1, each.state.shape[-1]) for each in run.episodes(pictures=False)])


def visits_of(states: np.ndarray) -> np.ndarray:
    """How often each cell of the maze was visited, with NaN for walls: (rows, columns)."""
    rows = maze.rows_of(WORLD)
    counts = np.array([[np.nan if mark == "#" else 0.0 for mark in row] for row in rows])
    for cell in maze.cell_of(WORLD, states[~np.isnan(states).any(-1)]):
        counts[tuple(cell)] += 1
    return counts


def maps_of(runs: dict[str, Run]) -> str:
    """The maze with visited cells, one exploration beside the other, for the terminal."""
    drawn = []
    for method, run in runs.items():
        counts = visits_of(states_of(run))
        marks = [["██" if np.isnan(count) else "··" if count else "  " for count in row] for row in counts]
        drawn.append([TITLES[method].ljust(2 * len(marks[0])), *("".join(row) for row in marks)])
    return "\n" + "\n".join("   ".join(lines) for lines in zip(*drawn, strict=True))


def write_results(
    command: DemoCommand, scores: dict[str, dict[str, Scores]], shares: dict[str, float], seconds: float
) -> None:
    """Everything as JSON."""
    file = command.out / "demo.json"
    if file.exists():  # nothing was done again: the time is that of the first start
        seconds = read_json(file).get("seconds", seconds)
    plain = {method: {task: each.summary() for task, each in found.items()} for method, found in scores.items()}
    content = {"seed": command.seed, "seconds": round(seconds, 1), "machine": machine(), "coverage": shares}
    content["scores"] = plain
    file.write_text(json.dumps(content, indent=1) + "\n")


def draw(file: Path, runs: dict[str, Run], scores: dict[str, dict[str, Scores]]) -> None:
    """One picture: visited cells as exploration went on, and the scores of the tasks."""
    import matplotlib.pyplot as plt

    shares = (0.1, 0.25, 0.5, 1.0)
    widths = [*[1.0] * len(shares), 1.7]
    figure, axes = plt.subplots(len(runs), len(widths), figsize=(13, 5.2), width_ratios=widths, layout="constrained")
    colours = plt.get_cmap("viridis").with_extremes(bad="0.25", under="white")
    for row, (method, run) in zip(axes, runs.items(), strict=True):
        states = states_of(run)
        for axis, share in zip(row, shares, strict=False):
            seen = states[: int(share * len(states))]
            axis.imshow(np.log1p(visits_of(seen)), cmap=colours, vmin=0.1)
            axis.set_title(f"{share * STEPS:,.0f} env steps: {maze.coverage(WORLD, seen):.0%}", fontsize=10)
            axis.set_xticks([])
            axis.set_yticks([])
        row[0].set_ylabel(TITLES[method], fontsize=12)
        found = scores[method]
        ends = np.array([each.interval if len(each.episodes) >= FEWEST else (each.mean,) * 2 for each in found.values()])
        means = np.array([each.mean for each in found.values()])
        row[-1].barh(range(len(found)), means, xerr=np.abs(ends.T - means), color="tab:green", capsize=3)
        row[-1].axvline(SOLVED, color="0.5", linestyle="--", linewidth=1)
        row[-1].set(yticks=range(len(found)), yticklabels=found, xlim=(0, 1000))
        row[-1].set_title(f"score; {solved(found)} of {len(found)} tasks solved", fontsize=10)
        row[-1].invert_yaxis()
    figure.savefig(file, dpi=130)
    plt.close(figure)
