"""`plan2explore demo`: the whole journey on a laptop. Explore without reward, then solve tasks named only afterwards."""

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from .bench.machine import machine
from .config import ExploreConfig, Schedule, WorldConfig, tiny
from .envs import Task
from .phases.adapt import adapt
from .phases.evaluate import FEWEST, Scores
from .phases.explore import explore
from .phases.policy import Policy
from .phases.progress import duration
from .phases.world import make_for_tasks
from .report.page import write_report
from .runs.files import append_line, keep_lines, read_json, read_lines
from .runs.folder import RunFolder

WORLD = "pendulum"
METHODS = ("plan2explore", "random")
STEPS = 16_000
UPDATES = 5_000


def spin(physics: Any) -> float:
    """Turn fast, either way."""
    return min(1.0, abs(float(physics.named.data.qvel[0])) / 8)


def turn_left(physics: Any) -> float:
    """Turn fast, one way only."""
    return min(1.0, max(0.0, float(physics.named.data.qvel[0]) / 8))


def top(physics: Any) -> float:
    """A reward of one's own, the README's: be above the hinge, the higher the better."""
    return max(0.0, float(physics.named.data.xmat["pole", "zz"]))


TASKS = (Task("spin", reward=spin), Task("turn_left", reward=turn_left), Task("top", reward=top))
ROWS = ("random policy", "zero-shot after random exploration", "zero-shot after Plan2Explore")


@dataclass(frozen=True)
class DemoCommand:
    """Explores a world without reward, with Plan2Explore and at random, then solves three tasks with what each learned.

    For 2 CPU cores: about seven minutes. Leaves a table, a plot, videos and a report.
    """

    out: Path = Path("runs/demo")
    """Where everything goes. What is there already is not done again."""
    seed: int = 0
    """Random seed."""
    episodes: int = 20
    """Episodes of each evaluation."""


def main(arguments: list[str]) -> int:
    """Runs the journey and says where its results are."""
    command = tyro.cli(DemoCommand, prog="plan2explore demo", args=arguments)
    console, start = Console(soft_wrap=True), time.monotonic()

    def say(text: str) -> None:
        console.print(f"\n[{duration(time.monotonic() - start)}] {text}", markup=False)

    say(f"The journey: explore {WORLD} without any reward, then solve {len(TASKS)} tasks with what was learned")
    scores = journey(command, say)
    console.print(table_of(scores))
    write_results(command, scores, time.monotonic() - start)
    say("Writing the report")
    page = write_report([command.out / method for method in METHODS], command.out / "report.html")
    console.print(f"{command.episodes} episodes each; {duration(time.monotonic() - start)} in all.")
    console.print("A pendulum is so simple that random exploration can be as good: see docs/demo.md.")
    console.print(f"Videos and scores: {command.out}; report: {page}")
    return 0


def demo_config(method: str, seed: int) -> ExploreConfig:
    """The preset for CPUs, which observes vectors, with fewer updates: what two cores can train in minutes."""
    agent = replace(tiny, intrinsic=replace(tiny.intrinsic, objective=method))
    schedule = Schedule(updates_per_episode=130, environments=2, evaluate_every=0, snapshot_every=STEPS)
    return ExploreConfig(WorldConfig(WORLD, obs="proprio"), schedule, agent, seed=seed)


def journey(command: DemoCommand, say: Callable[[str], None]) -> dict[str, dict[str, Scores]]:
    """Scores of every task: of random actions, and after both explorations."""
    scores: dict[str, dict[str, Scores]] = {task.name: {} for task in TASKS}
    for method, row in zip(METHODS, reversed(ROWS[1:]), strict=True):
        say(f"Exploring with {method}: {STEPS:,} env steps, no reward")
        run = explore(WORLD, STEPS, command.out / method, config=demo_config(method, command.seed))
        for task in TASKS:
            say(f"Adapting to {task.name} after {method}, without a single new step in the world")
            policy = adapt(run, task, updates=UPDATES, seed=command.seed, evaluate_episodes=0)
            scores[task.name][row] = found = scores_of(policy, command)
            if method == "plan2explore":
                shutil.copy(policy.film, command.out / f"{task.name}.mp4")
            say(str(found))
    for task in TASKS:
        scores[task.name][ROWS[0]] = random_scores(task, command)
    return scores


def scores_of(policy: Policy, command: DemoCommand) -> Scores:
    """Plays and films a policy. Its scores are the adaptation's one evaluation, for reports, tables and the next time."""
    folder, name = RunFolder.open(policy.path), policy.task.name
    for line in read_lines(folder.evaluations_file):
        if len(line.get("episodes", [])) == command.episodes and policy.film.exists():
            return Scores(name, tuple(line["episodes"]))
    scores = policy.evaluate(command.episodes, command.seed, policy.film)
    keep_lines(folder.evaluations_file, [])
    append_line(folder.evaluations_file, scores.summary() | {"evaluation": 0, "updates": UPDATES})
    return scores


def random_scores(task: Task, command: DemoCommand) -> Scores:
    """What uniform random actions score."""
    draw, config = np.random.default_rng(command.seed), demo_config("random", command.seed).world
    with make_for_tasks(config, [task], command.episodes, command.seed) as worlds:
        worlds.reset()
        shape, total = (worlds.count, *worlds.action_space.shape), np.zeros(worlds.count)
        running = np.ones(worlds.count, bool)
        while running.any():
            batch = worlds.step(draw.uniform(-1, 1, shape))
            total += np.where(running, batch.reward, 0.0)
            running &= ~(batch.terminated | batch.truncated)
    return Scores(task.name, tuple(total.tolist()))


def table_of(scores: dict[str, dict[str, Scores]]) -> Table:
    """Tasks by rows, means with their 95 % intervals where the episodes are enough for one."""
    enough = all(len(each.episodes) >= FEWEST for rows in scores.values() for each in rows.values())
    table = Table("", *scores, title="Mean score of an episode" + " (95 % interval)" * enough)
    for row in ROWS:
        table.add_row(row, *(cell(scores[task][row]) for task in scores))
    return table


def cell(scores: Scores) -> str:
    """A mean with its interval, if the episodes are enough for one."""
    if len(scores.episodes) < FEWEST:
        return f"{scores.mean:.0f}"
    low, high = scores.interval
    return f"{scores.mean:.0f} ({low:.0f} to {high:.0f})"


def write_results(command: DemoCommand, scores: dict[str, dict[str, Scores]], seconds: float) -> None:
    """The scores as JSON and as a picture."""
    file = command.out / "demo.json"
    if file.exists():  # nothing was done again: the time is that of the journey itself
        seconds = read_json(file).get("seconds", seconds)
    plain = {task: {row: each.summary() for row, each in rows.items()} for task, rows in scores.items()}
    content = {"seed": command.seed, "seconds": round(seconds, 1), "machine": machine(), "scores": plain}
    file.write_text(json.dumps(content, indent=1) + "\n")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(scores), figsize=(4 * len(scores), 3.2), layout="constrained")
    for axis, (task, rows) in zip(axes, scores.items(), strict=True):
        means = np.array([rows[row].mean for row in ROWS])
        ends = np.array([rows[row].interval for row in ROWS])
        enough = min(len(rows[row].episodes) for row in ROWS) >= FEWEST
        errors = np.abs(ends.T - means) if enough else None
        axis.bar(range(3), means, yerr=errors, color=["0.7", "tab:blue", "tab:red"], capsize=4)
        axis.set_xticks(range(3), ["random\npolicy", "after random\nexploration", "after\nPlan2Explore"])
        axis.set_title(task)
    axes[0].set_ylabel("score of an episode")
    figure.savefig(command.out / "scores.png", dpi=150)
    plt.close(figure)
