"""Exploration that can be seen: coverage of mazes, and goals named afterwards, after Plan2Explore and after random actions.

    python benchmarks/mazes.py maze_rooms --seeds 0 1 2 3 4 --out runs/mazes

For every seed and method: explore without reward from vectors, adapt zero-shot to every goal, and play five episodes of
each. A goal counts as reached in an episode whose last 100 env steps are on average within a cell of it. Prints a table
and writes one JSON line for every cell to OUT/results.jsonl; cells that are there are not computed again.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro

import plan2explore as p2e
from plan2explore.envs import maze
from plan2explore.runs.files import append_line, read_lines

EPISODES = 5
LAST = 50  # agent steps of two env steps at an episode's end
WITHIN = 1.0  # cells


@dataclass(frozen=True)
class Options:
    """What to compare."""

    domain: tyro.conf.Positional[str] = "maze_rooms"
    """maze_u, maze_rooms or maze_large."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """Random seeds, one exploration each."""
    methods: tuple[str, ...] = ("plan2explore", "random")
    """Exploration objectives."""
    preset: str = "modern-tiny"
    """The agent."""
    steps: int = 24_000
    """Env steps of exploration."""
    updates: int = 6_000
    """Updates for each goal."""
    goals: tuple[str, ...] = ()
    """Goals by name, such as goal_ne; none: all of the maze."""
    mode: Literal["mode", "sample"] = "sample"
    """How the policy acts when it is evaluated."""
    out: Path = Path("runs/mazes")
    """Where runs and results go."""


def coverage(run: p2e.Run, domain: str) -> float:
    """The share of free cells that an exploration has visited."""
    states = [episode.state.reshape(-1, episode.state.shape[-1]) for episode in run.episodes(pictures=False)]
    return maze.coverage(domain, np.concatenate(states))


def play(policy: p2e.Policy, domain: str, goal: str, mode: str) -> tuple[float, int]:
    """The mean score of some episodes, and in how many of them the goal was reached."""
    env: Any = p2e.make(f"{domain}_{goal}", obs="proprio")
    centre, scores, reached = maze.centre_of(domain, maze.goals(domain)[goal]), [], 0
    for episode in range(EPISODES):
        observation, _ = env.reset(seed=1_000_000 + episode)
        policy.reset(seed=episode)
        rewards, distances, over = [], [], False
        while not over:
            observation, reward, terminated, truncated, info = env.step(policy.act(observation, mode))
            rewards.append(reward)
            distances.append(np.linalg.norm(info["state"][-1][maze.QPOS] - centre))
            over = terminated or truncated
        scores.append(sum(rewards))
        reached += bool(np.mean(distances[-LAST:]) < WITHIN)
    env.close()
    return float(np.mean(scores)), reached


def cell(options: Options, method: str, seed: int) -> dict[str, Any]:
    """One exploration and its goals."""
    begin, name = time.monotonic(), f"{options.domain}-{options.preset}-{method}-{seed}-{options.steps}"
    run = p2e.explore(
        options.domain, options.steps, options.out / name, options.preset, method, seed=seed, obs="proprio",
        environments=1, evaluate_every=0, snapshot_every=options.steps, seed_episodes=2,
    )  # fmt: skip
    found: dict[str, Any] = {"domain": options.domain, "preset": options.preset, "method": method, "seed": seed}
    found |= {"env_steps": options.steps, "updates": options.updates, "mode": options.mode}
    found["coverage"] = coverage(run, options.domain)
    found["explore_s"] = round(time.monotonic() - begin)
    for goal in options.goals or maze.goals(options.domain):
        policy = run.adapt(f"{options.domain}_{goal}", updates=options.updates, evaluate_episodes=0)
        score, reached = play(policy, options.domain, goal, options.mode)
        found |= {f"{goal}/score": round(score, 1), f"{goal}/reached": reached}
        print(f"{name} {goal}: score {score:.0f}, reached in {reached} of {EPISODES}", flush=True)
    return found | {"seconds": round(time.monotonic() - begin)}


def main(options: Options) -> None:
    """Fills in the cells that are missing, and prints all."""
    file = options.out / "results.jsonl"
    options.out.mkdir(parents=True, exist_ok=True)
    for seed in options.seeds:
        for method in options.methods:
            key = {"domain": options.domain, "preset": options.preset, "method": method, "seed": seed}
            key |= {"env_steps": options.steps, "updates": options.updates, "mode": options.mode}
            if not any(key.items() <= line.items() for line in read_lines(file)):
                append_line(file, cell(options, method, seed))
    print("| maze | preset | method | seed | coverage | goals reached in 4 of 5 episodes | scores |")
    print("|---|---|---|---|---|---|---|")
    for line in read_lines(file):
        goals = {name.removesuffix("/reached"): count for name, count in line.items() if name.endswith("/reached")}
        solved = sum(count >= EPISODES - 1 for count in goals.values())
        scores = ", ".join(f"{goal} {line[f'{goal}/score']:.0f}" for goal in goals)
        row = [line[name] for name in ("domain", "preset", "method", "seed")]
        print("| " + " | ".join(map(str, [*row, f"{line['coverage']:.0%}", f"{solved} of {len(goals)}", scores])) + " |")
    print(f"results: {file}")


if __name__ == "__main__":
    main(tyro.cli(Options))
