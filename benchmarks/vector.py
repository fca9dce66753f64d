"""Agent steps/s of one process, of separate processes and of VectorEnv, in one run on one machine.

    python benchmarks/vector.py [--tasks cheetah_run walker_walk] [--others] [--json FILE]

Each way takes several short turns, one after the other; its best turn counts, since other load on the machine can only slow
a turn down. "Separate processes" step their environments without exchanging anything, which is all that the cores can give.
`--others` adds two VectorEnvs that take turns and Gymnasium's AsyncVectorEnv.
"""

import argparse
import contextlib
import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from plan2explore.envs import VectorEnv, make
from plan2explore.envs.vector import ONE_THREAD
from plan2explore.runs.machine import machine

CORES = len(os.sched_getaffinity(0))
EACH = (1, 4, 8)  # environments of each worker of VectorEnv, of which there is one for each core
STEPS = 50  # after each reset

Measure = Callable[[float], float]


def meter(reset: Callable[[], Any], step: Callable[[Any], Any], shape: tuple[int, ...], environments: int) -> Measure:
    """Agent steps/s of functions that reset and step `environments` at once, with new random actions each time.

    Always the same first steps of an episode: later ones can be quicker or slower, as when a walker has fallen.
    """
    actions = np.random.default_rng(0).uniform(-1, 1, (STEPS, *shape)).astype(np.float32)

    def measure(seconds: float) -> float:
        rounds, start = 0, time.perf_counter()
        while (passed := time.perf_counter() - start) < seconds:
            reset()
            for action in actions:
                step(action)
            rounds += 1
        return rounds * STEPS * environments / passed

    measure(0.1)  # compile, fill caches
    return measure


@contextlib.contextmanager
def one_process(task: str) -> Iterator[Measure]:
    """One environment stepped by hand."""
    with make(task) as env:
        yield meter(lambda: env.reset(seed=0), env.step, env.action_space.shape, 1)


@contextlib.contextmanager
def separate_processes(task: str) -> Iterator[Measure]:
    """As many processes as cores, each with an environment of its own, that know nothing of each other."""
    command = [sys.executable, __file__, "--alone", "--tasks", task]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    crew = [subprocess.Popen(command, env={**os.environ, **ONE_THREAD}, **pipes) for _ in range(CORES)]

    def measure(seconds: float) -> float:
        for process in crew:
            print(seconds, file=process.stdin, flush=True)
        return sum(float(process.stdout.readline()) for process in crew)

    measure(0.1)  # all have started
    yield measure
    for process in crew:
        process.stdin.close()
        process.wait()


@contextlib.contextmanager
def ours(task: str, environments: int) -> Iterator[Measure]:
    """VectorEnv with a worker for each core."""
    with VectorEnv(task, count=environments) as vector:
        yield meter(vector.reset, vector.step, (environments, *vector.action_space.shape), environments)


@contextlib.contextmanager
def ours_in_halves(task: str, environments: int) -> Iterator[Measure]:
    """Two VectorEnvs, each with a worker per core and half of the environments: one steps while the other is received."""
    half = environments // 2
    with VectorEnv(task, count=half) as one, VectorEnv(task, count=half, seed=1) as other:
        under_way: list[VectorEnv] = []

        def reset() -> None:
            for vector in under_way:
                vector.receive()
            under_way.clear()
            one.reset(), other.reset()

        def step(actions: np.ndarray) -> None:
            for vector, share in zip((one, other), np.split(actions, 2), strict=True):
                if vector in under_way:
                    vector.receive()
                else:
                    under_way.append(vector)
                vector.send(share)

        yield meter(reset, step, (environments, *one.action_space.shape), environments)


@contextlib.contextmanager
def gymnasiums(task: str, environments: int) -> Iterator[Measure]:
    """Gymnasium's AsyncVectorEnv: a process per environment, observations in shared memory, not copied."""
    makers = [functools.partial(make, task)] * environments
    vector = gymnasium.vector.AsyncVectorEnv(makers, shared_memory=True, copy=False, context="spawn")
    yield meter(lambda: vector.reset(seed=0), vector.step, vector.action_space.shape, environments)
    vector.close()


def compare(task: str, others: bool, turns: int, seconds: float) -> list[dict[str, Any]]:
    """Each way's best steps/s."""
    ways = {"one process": one_process(task), f"{CORES} separate processes": separate_processes(task)}
    ways |= {f"VectorEnv, {CORES} x {each} environments": ours(task, CORES * each) for each in EACH}
    if others:
        ways[f"VectorEnv, {CORES} x 4 environments in two halves"] = ours_in_halves(task, CORES * 4)
        ways |= {f"AsyncVectorEnv, {CORES} x {each} environments": gymnasiums(task, CORES * each) for each in (1, 4)}
    with contextlib.ExitStack() as stack:
        measures = {name: stack.enter_context(way) for name, way in ways.items()}
        rounds = [{name: measure(seconds) for name, measure in measures.items()} for _ in range(turns)]
    best = {name: max(each[name] for each in rounds) for name in ways}
    cores = {name: 1 if name == "one process" else CORES for name in ways}
    return [
        {"task": task, "way": name, "steps_per_second": rate, "of_cores_times_one": rate / cores[name] / best["one process"]}
        for name, rate in best.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=["cheetah_run", "walker_walk"])
    parser.add_argument("--seconds", type=float, default=0.4, help="length of a turn")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--others", action="store_true", help="measure the alternatives too")
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.alone:  # one of the separate processes: reads seconds, answers with steps/s
        with one_process(arguments.tasks[0]) as measure:
            for line in sys.stdin:
                print(measure(float(line)), flush=True)
        return
    here, rows = machine(), []
    print(", ".join(f"{key} {value}" for key, value in here.items()))
    print("| task | way | agent steps/s | of cores x one process |\n|---|---|---|---|")
    for task in arguments.tasks:
        for row in compare(task, arguments.others, arguments.turns, arguments.seconds):
            rows.append(row)
            print("| {task} | {way} | {steps_per_second:,.0f} | {of_cores_times_one:.0%} |".format(**row), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": here, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
