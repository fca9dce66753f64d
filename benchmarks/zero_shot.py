"""Small worlds from vectors: tasks named afterwards, after Plan2Explore and after random actions.

    python benchmarks/zero_shot.py maze_large --steps 60000 --updates 6000
    python benchmarks/zero_shot.py cartpole --tasks swingup --mode mode

For every seed and method: explore without reward, adapt zero-shot to every task, and play episodes of each. In a maze, a
goal counts as reached in an episode whose last 100 env steps are on average within a cell of it, and as solved if that
happens in four of five episodes. Writes one JSON line for each seed and method to OUT/results.jsonl, skips those that are
there, and prints tables.
"""

import time
from collections import deque
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro
from scipy import stats

import plan2explore as p2e
from plan2explore.envs import maze
from plan2explore.runs.files import append_line, read_lines
from plan2explore.runs.machine import machine

LAST = 50  # agent steps of two env steps at an episode's end
WITHIN = 1.0  # cells
SOLVED = 0.8  # of the episodes
GOALS = 5


@dataclass(frozen=True)
class Options:
    """What to compare."""

    domain: tyro.conf.Positional[str] = "maze_rooms"
    """A bare domain: maze_u, maze_rooms, maze_large, cartpole, pendulum, ..."""
    tasks: tuple[str, ...] = ()
    """Tasks of the domain by name, such as goal_ne or swingup; none: the five goals of a maze farthest from the start."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """Random seeds, one exploration each."""
    methods: tuple[str, ...] = ("plan2explore", "random")
    """Exploration objectives."""
    preset: str = "modern-tiny"
    """The agent."""
    steps: int = 36_000
    """Env steps of exploration."""
    updates: int = 4_000
    """Updates for each task."""
    episodes: int = 5
    """Episodes of each evaluation."""
    mode: Literal["mode", "sample"] = "sample"
    """How the policy acts when it is evaluated."""
    out: Path = Path("runs/zero_shot")
    """Where runs and results go."""


def farthest_goals(domain: str) -> list[str]:
    """Goals of a maze by the length of the shortest way from the start, farthest first."""
    free, start = set(maze.free_cells(domain)), maze.start_cell(domain)
    steps, waiting = {start: 0}, deque([start])
    while waiting:
        i, j = waiting.popleft()
        for cell in {(i + 1, j), (i - 1, j), (i, j + 1), (i, j - 1)} & free - set(steps):
            steps[cell] = steps[i, j] + 1
            waiting.append(cell)
    goals = maze.goals(domain)
    return sorted(goals, key=lambda goal: -steps[goals[goal]])[:GOALS]


def coverage(run: p2e.Run, domain: str) -> float:
    """The share of free cells that an exploration has visited."""
    states = [episode.state.reshape(-1, episode.state.shape[-1]) for episode in run.episodes(images=False)]
    return maze.coverage(domain, np.concatenate(states))


def play(policy: p2e.Policy, options: Options, task: str) -> tuple[list[float], int]:
    """The score of every episode, and in how many of them a maze's goal was reached."""
    env: Any = p2e.make(f"{options.domain}_{task}", obs="proprio")
    goal = maze.centre_of(options.domain, maze.goals(options.domain)[task]) if options.domain in maze.LAYOUTS else None
    scores, reached = [], 0
    for episode in range(options.episodes):
        observation, _ = env.reset(seed=1_000_000 + episode)
        policy.reset(seed=episode)
        rewards, distances, over = [], [], False
        while not over:
            observation, reward, terminated, truncated, info = env.step(policy.act(observation, options.mode))
            rewards.append(reward)
            if goal is not None:
                distances.append(np.linalg.norm(info["state"][-1][maze.QPOS] - goal))
            over = terminated or truncated
        scores.append(round(float(sum(rewards)), 1))
        reached += goal is not None and bool(np.mean(distances[-LAST:]) < WITHIN)
    env.close()
    return scores, reached


def cell(options: Options, method: str, seed: int) -> dict[str, Any]:
    """One exploration and its tasks."""
    begin, name = time.monotonic(), f"{options.domain}-{options.preset}-{method}-{seed}-{options.steps}"
    run = p2e.explore(
        options.domain, options.steps, options.out / name, options.preset, method, seed=seed, obs="proprio",
        environments=1, evaluate_every=0, snapshot_every=options.steps, seed_episodes=2,
    )  # fmt: skip
    found: dict[str, Any] = {"explore_s": round(time.monotonic() - begin), "tasks": {}}
    if options.domain in maze.LAYOUTS:
        found["coverage"] = round(coverage(run, options.domain), 3)
    for task in options.tasks or farthest_goals(options.domain):
        policy = run.adapt(f"{options.domain}_{task}", updates=options.updates, seed=seed, evaluate_episodes=0)
        scores, reached = play(policy, options, task)
        found["tasks"][task] = {"scores": scores} | ({"reached": reached} if "coverage" in found else {})
        print(f"{name} {task}: {found['tasks'][task]}", flush=True)
    return found | {"seconds": round(time.monotonic() - begin), "machine": machine()}


def interval(means: list[float]) -> str:
    """A mean over seeds and its 95 % interval (Student's t)."""
    if len(means) < 3 or np.ptp(means) == 0:
        return f"{np.mean(means):.0f}"
    low, high = stats.t.interval(0.95, len(means) - 1, np.mean(means), stats.sem(means))
    return f"{np.mean(means):.0f} ({low:.0f} to {high:.0f})"


def tables(lines: list[dict[str, Any]], options: Options) -> str:
    """Each exploration in a row; then each method's mean over seeds."""
    rows = ["| domain | steps, updates | method | seed | visited | solved | mean scores |", "|---|---|---|---|---|---|---|"]
    means = [
        "| domain | steps, updates | method | task | mean over seeds (95 % interval) | seeds |",
        "|---|---|---|---|---|---|",
    ]

    def setting(line: dict[str, Any]) -> list[str]:
        return [line["domain"], f"{line['env_steps']}, {line['updates']}", line["method"]]

    for line in lines:
        found = {task: float(np.mean(each["scores"])) for task, each in line["tasks"].items()}
        solved = [each["reached"] >= SOLVED * len(each["scores"]) for each in line["tasks"].values() if "reached" in each]
        visited = f"{line['coverage']:.0%}" if "coverage" in line else ""
        count = f"{sum(solved)} of {len(solved)}" if solved else ""
        scores = ", ".join(f"{task} {mean:.0f}" for task, mean in found.items())
        rows.append("| " + " | ".join([*setting(line), str(line["seed"]), visited, count, scores]) + " |")
    for key, group in groupby(sorted(lines, key=setting), setting):
        seeds = list(group)
        for task in seeds[0]["tasks"]:
            scores = [float(np.mean(line["tasks"][task]["scores"])) for line in seeds if task in line["tasks"]]
            means.append("| " + " | ".join([*key, task, interval(scores), str(len(scores))]) + " |")
    return "\n".join([*rows, "", *means])


def main(options: Options) -> None:
    """Fills in the cells that are missing, and prints all."""
    file = options.out / "results.jsonl"
    options.out.mkdir(parents=True, exist_ok=True)
    for seed in options.seeds:
        for method in options.methods:
            key = {"domain": options.domain, "preset": options.preset, "method": method, "seed": seed}
            key |= {"env_steps": options.steps, "updates": options.updates, "mode": options.mode}
            if not any(key.items() <= line.items() for line in read_lines(file)):
                append_line(file, key | cell(options, method, seed))
    print(tables(list(read_lines(file)), options))
    print(f"results: {file}")


if __name__ == "__main__":
    main(tyro.cli(Options))
