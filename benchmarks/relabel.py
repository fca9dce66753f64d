"""Relabelling an episode against stepping and drawing it again, for the paper's 23 tasks.

    python benchmarks/relabel.py [TASK ...]

Times one core against one core, then all cores over many episodes against one process that steps and draws.
"""

import os
import sys
import time

from plan2explore import Task, list_tasks, make, record, relabel
from plan2explore.bench.machine import machine

EPISODES = 400  # for all cores: enough that starting processes does not count


def seconds(function, repeats=3):
    """The shortest of a few runs, and the last result."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        result = function()
        best = min(best, time.perf_counter() - start)
    return best, result


def main(names):
    print(", ".join(f"{key} {value}" for key, value in machine().items()))
    print(f"{'task':24} {'step+draw ms':>12} {'relabel ms':>10} {'1 core':>8} {'all cores':>10}")
    for name in names:
        env = make(name)
        record(env, seed=0)  # compiled, caches filled
        again, episode = seconds(lambda: record(env, seed=1))  # noqa: B023
        task = Task.named(name)
        once, _ = seconds(lambda: relabel(episode, task))  # noqa: B023
        cores = len(os.sched_getaffinity(0))
        many, _ = seconds(lambda: relabel([episode] * EPISODES, task, workers=cores), 1)  # noqa: B023
        row = f"{name:24} {1e3 * again:12.0f} {1e3 * once:10.1f} {again / once:7.1f}x {EPISODES * again / many:9.1f}x"
        print(row, flush=True)
        env.close()


if __name__ == "__main__":
    main(sys.argv[1:] or [*list_tasks("paper"), *list_tasks("extra")])
