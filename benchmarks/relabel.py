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

from plan2explore import Task, list_tasks, make, record, relabel
from plan2explore.bench.machine import machine

CORES = len(os.sched_getaffinity(0))


def computing() -> float:
    """Seconds that this process and its ended children have computed."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def cost(function: Callable[[], Any], repeats: int) -> tuple[float, float, Any]:
    """Seconds by the clock and of computing, the least of a few runs; and the last result."""
    clock, computed = [], []
    for _ in range(repeats):
        start, before = time.perf_counter(), computing()
        result = function()
        clock.append(time.perf_counter() - start)
        computed.append(computing() - before)
    return min(clock), min(computed), result


def compare(name: str, episodes: int) -> dict[str, Any]:
    """One row of the table."""
    env, task = make(name), Task.named(name)
    record(env, seed=0)  # compiled, caches filled
    again, again_cpu, episode = cost(lambda: record(env, seed=1), 5)
    env.close()
    _, once, _ = cost(lambda: relabel(episode, task), 5)
    many, many_cpu, _ = cost(lambda: relabel([episode] * episodes, task, workers=CORES), 3)
    return {
        "task": name,
        "step_and_draw_ms": 1e3 * again_cpu,
        "relabel_ms": 1e3 * once,
        "one_core": again_cpu / once,
        "all_cores_clock": episodes * again / many,
        "all_cores_computing": episodes * again_cpu / (many_cpu / CORES),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="*", default=[*list_tasks("paper"), *list_tasks("extra")])
    parser.add_argument("--episodes", type=int, default=200, help="for all cores")
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    arguments = parser.parse_args()
    here = machine()
    print(", ".join(f"{key} {value}" for key, value in here.items()))
    print("| task | step and draw, ms | relabel, ms | one core | all cores, clock | all cores, computing |")
    print("|---|---|---|---|---|---|")
    rows = []
    for name in arguments.tasks:
        rows.append(row := compare(name, arguments.episodes))
        numbers = " | ".join(f"{value:.1f}" for key, value in row.items() if key != "task")
        print(f"| {name} | {numbers} |", flush=True)
    if arguments.json:
        result = {"machine": here, "episodes": arguments.episodes, "rows": rows}
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
