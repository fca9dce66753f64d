"""Relabelling an episode against stepping and drawing it again, for the paper's 23 tasks.

    python benchmarks/relabel.py [TASK ...] [--episodes 200] [--json FILE]

One core against one core, then all cores over many episodes against one process that steps and draws: by the clock,
and by computing time (of all processes, starting them included, divided by the cores), which is the better measure
on a machine that does other work too.
"""

import argparse
import json
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from plan2explore import Task, list_tasks, make, record, relabel
from plan2explore.runs.machine import machine

CORES = len(os.sched_getaffinity(0))


def computing() -> float:
    """Seconds that this process and its ended children have computed."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def cost(function: Callable[[], Any]) -> tuple[np.ndarray, Any]:
    """Seconds by the clock and of computing, and the result."""
    start, before = time.perf_counter(), computing()
    result = function()
    return np.array([time.perf_counter() - start, computing() - before]), result


def compare(name: str, episodes: int, rounds: int) -> dict[str, Any]:
    """One row of the table: the median of a few rounds, in which the two sides take turns to share what disturbs them."""
    env, task = make(name), Task.named(name)
    episode = record(env, seed=1)
    relabel(episode, task)  # compiled, caches filled
    again, once, many = [], [], []
    for _ in range(rounds):
        before = np.mean([cost(lambda: record(env, seed=1))[0] for _ in range(3)], axis=0)
        once.append(np.mean([cost(lambda: relabel(episode, task))[0] for _ in range(9)], axis=0))
        many.append(cost(lambda: relabel([episode] * episodes, task, workers=CORES))[0])
        after = np.mean([cost(lambda: record(env, seed=1))[0] for _ in range(3)], axis=0)
        again.append((before + after) / 2)
    env.close()
    all_cores = np.median(episodes * np.array(again) / (np.array(many) / [1, CORES]), axis=0)
    return {
        "task": name,
        "step_and_draw_ms": 1e3 * float(np.median(again, axis=0)[1]),
        "relabel_ms": 1e3 * float(np.median(once, axis=0)[1]),
        "one_core": float(np.median(np.array(again) / np.array(once), axis=0)[1]),
        "all_cores_clock": float(all_cores[0]),
        "all_cores_computing": float(all_cores[1]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="*", default=[*list_tasks("paper"), *list_tasks("extra")])
    parser.add_argument("--episodes", type=int, default=200, help="for all cores")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    arguments = parser.parse_args()
    here = machine()
    print(", ".join(f"{key} {value}" for key, value in here.items()))
    print("| task | step and draw, ms | relabel, ms | one core | all cores, clock | all cores, computing |")
    print("|---|---|---|---|---|---|")
    rows = []
    for name in arguments.tasks:
        rows.append(row := compare(name, arguments.episodes, arguments.rounds))
        numbers = " | ".join(f"{value:.1f}" for key, value in row.items() if key != "task")
        print(f"| {name} | {numbers} |", flush=True)
    if arguments.json:
        result = {"machine": here, "episodes": arguments.episodes, "rows": rows}
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
