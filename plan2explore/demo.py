"""`plan2explore demo`: explore a maze without reward, then solve tasks that are named only afterwards."""

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import exp, hypot
from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.console import Console
from rich.table import Table

from .config import ExploreConfig, Schedule, WorldConfig, modern_tiny
from .console import duration
from .envs import Task, maze
from .envs.worker import python_command
from .options import parse
from .phases.adapt import adapt
from .phases.evaluate import Scores
from .phases.explore import explore
from .phases.policy import Policy
from .phases.run import Run
from .report.page import write_report
from .report.scores import SOLVED
from .runs.files import append_line, write_json
from .runs.folder import RunError, RunFolder
from .runs.machine import machine
from .runs.reader import FEWEST, read_evaluations
from .video import read_video, write_video

WORLD = "maze_rooms"
METHODS = ("plan2explore", "random")
TITLES = {"plan2explore": "Plan2Explore", "random": "random actions"}
STEPS, UPDATES = 36_000, 4_000


def reach(x: float, y: float) -> Callable[[Any], float]:
    """The reward for being at a place: 1 within half a cell of it, 0.6 a cell away, nothing behind a wall."""

    def near(physics: Any) -> float:
        away = hypot(physics.data.qpos[0] - x, physics.data.qpos[1] - y)
        return exp(-2 * max(away - 0.5, 0) ** 2)

    return near


def patrol(physics: Any) -> float:
    """A reward of one's own, the README's: go round in the north-east room, clockwise."""
    (x, y), (vx, vy) = physics.data.qpos - (2.5, 2), physics.data.qvel
    return min(max((y * vx - x * vy) / 2, 0), 1) * exp(-(x**2 + y**2) / 4)


PLACES = {"north_west": (-2.5, 2.5), "north_east": (2.5, 2.0), "south_east": (2.5, -3.0)}
"""The middle of each room but that of the start: x and y, in cells from the middle of the maze."""
TASKS = (*(Task(name, reward=reach(*place)) for name, place in PLACES.items()), Task("patrol", reward=patrol))


@dataclass(frozen=True)
class DemoCommand:
    """Explores a maze without reward, with Plan2Explore and at random, then solves four tasks with what each learned.

    For 2 CPU cores, a few minutes. Leaves a figure, a table, a video and a report.
    """

    out: Path = Path("runs/demo")
    """Where everything goes. What is there already is not done again."""
    seed: int = 0
    """Random seed."""
    episodes: int = 5
    """Episodes of each evaluation."""
    only: Literal["plan2explore", "random"] | None = None
    """One of the two explorations alone, without figure, table and report."""


def main(arguments: list[str]) -> int:
    """Both explorations side by side, and what came of them."""
    command = parse(DemoCommand, "demo", arguments)
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
    states = {method: states_of(run) for method, run in runs.items()}
    shares = {method: maze.coverage(WORLD, visited) for method, visited in states.items()}
    console.print(maps_of(states), markup=False, highlight=False)
    console.print(table_of(scores))
    page = command.out / "report.html"
    if not (command.out / "demo.json").exists():  # written last: a second start has nothing to do
        say("Drawing the figure and the video, writing the report")
        draw(command.out / "demo.png", states, scores)
        write_video(command.out / "demo.mp4", side_by_side(command), fps=25, pixels=1024)
        write_report([run.path for run in runs.values()], page)
        content = {"seed": command.seed, "seconds": round(time.monotonic() - start, 1), "machine": machine()}
        plain = {method: {task: each.summary() for task, each in found.items()} for method, found in scores.items()}
        write_json(command.out / "demo.json", content | {"coverage": shares, "scores": plain})
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
    schedule = Schedule(environments=1, evaluate_every=0, snapshot_every=STEPS, seed_episodes=2)
    return ExploreConfig(WorldConfig(WORLD, obs="proprio"), schedule, agent, seed=seed)


def play(command: DemoCommand, method: str, say: Callable[[str], None]) -> dict[str, Scores]:
    """Explores, then adapts to every task and evaluates it. Results that are there are read."""
    say(f"Exploring with {TITLES[method]}: {STEPS:,} env steps, no reward")
    run = explore(WORLD, STEPS, command.out / method, config=demo_config(method, command.seed))
    found = {}
    for task in TASKS:
        say(f"Adapting to {task.name} after {TITLES[method]}, without another step in the maze")
        found[task.name] = scores_of(adapt(run, task, updates=UPDATES, seed=command.seed, evaluate_episodes=0), command)
        say(str(found[task.name]))
    return found


def scores_of(policy: Policy, command: DemoCommand) -> Scores:
    """Plays a policy. Its scores are the adaptation's one evaluation, for reports, tables and the next time."""
    folder = RunFolder.open(policy.path)
    for line in read_evaluations(policy.path):
        if len(line.episodes) == command.episodes and policy.video_file.exists():
            return Scores(policy.task.name, line.episodes)
    scores = policy.evaluate(command.episodes, command.seed, policy.video_file, mode="sample")
    folder.evaluations_file.write_bytes(b"")
    append_line(folder.evaluations_file, scores.summary() | {"evaluation": 0, "updates": UPDATES})
    return scores


def side_by_side(command: DemoCommand) -> np.ndarray:
    """Each policy's first episode, (time, height, width, 3): tasks by columns, explorations by rows, places marked."""
    rows = []
    for method in METHODS:
        files = [command.out / method / "adapt" / task.name / "videos" / f"{task.name}-0.mp4" for task in TASKS]
        videos = [mark(read_video(file), PLACES.get(task.name)) for file, task in zip(files, TASKS, strict=True)]
        rows.append(np.concatenate([video[: min(map(len, videos))] for video in videos], 2))
    return np.concatenate([row[: min(map(len, rows))] for row in rows], 1)


def mark(frames: np.ndarray, place: tuple[float, float] | None) -> np.ndarray:
    """Frames with a white ring around a place of the maze."""
    if place is None:
        return frames
    seen = maze.CAMERA * maze.half_size(WORLD)  # from the middle to the edge of a frame, in cells
    height, width = frames.shape[1:3]
    rows, columns = np.mgrid[:height, :width]
    away = np.hypot((2 * columns / width - 1) * seen - place[0], (1 - 2 * rows / height) * seen - place[1])
    return np.where(np.abs(away - 0.75)[..., None] < 0.12, np.uint8(255), frames)


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
    return np.concatenate([each.state.reshape(-1, each.state.shape[-1]) for each in run.episodes(images=False)])


def visits_of(states: np.ndarray) -> np.ndarray:
    """How often each cell of the maze was visited, with NaN for walls: (rows, columns)."""
    rows = maze.rows_of(WORLD)
    counts = np.array([[np.nan if mark == "#" else 0.0 for mark in row] for row in rows])
    for cell in maze.cell_of(WORLD, states[~np.isnan(states).any(-1)]):
        counts[tuple(cell)] += 1
    return counts


def maps_of(states: dict[str, np.ndarray]) -> str:
    """The maze with visited cells, one exploration beside the other, for the terminal."""
    drawn = []
    for method, visited in states.items():
        coverage = maze.Coverage(WORLD)
        coverage.add(visited)
        lines = str(coverage).splitlines()
        drawn.append([TITLES[method].ljust(len(lines[0])), *lines])
    return "\n" + "\n".join("   ".join(lines) for lines in zip(*drawn, strict=True))


def draw(file: Path, states: dict[str, np.ndarray], scores: dict[str, dict[str, Scores]]) -> None:
    """One figure: visited cells over env steps, and the scores of the tasks."""
    import matplotlib.pyplot as plt

    shares = (0.1, 0.25, 0.5, 1.0)
    widths = [*[1.0] * len(shares), 1.7]
    figure, axes = plt.subplots(len(states), len(widths), figsize=(13, 5.0), width_ratios=widths, layout="constrained")
    colours = plt.get_cmap("viridis").with_extremes(bad="0.25", under="white")
    for row, (method, visited) in zip(axes, states.items(), strict=True):
        for axis, share in zip(row, shares, strict=False):
            seen = visited[: int(share * len(visited))]
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
