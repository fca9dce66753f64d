"""Agent steps/s of one process, of VectorEnv and of Gymnasium's AsyncVectorEnv, in one run on one machine.

    python benchmarks/vector.py --tasks cheetah_run walker_walk --each 4

Each way takes many short turns, one after the other; its best turn counts, since other load on the machine
can only slow a turn down. Two more rows tell what limits the others: "separate processes" step an environment
each without exchanging anything, which is all that the cores can give; "one process" with several environments
in turn shows what it costs that they push each other out of the cache. On a busy machine steps/s mean little;
computing time per step, of all processes of a way together, is then the better measure of what a way adds.
"""

import argparse
import contextlib
import functools
import itertools
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

CORES = len(os.sched_getaffinity(0))


def wait_for_quiet(patience: float) -> None:
    """Returns when the machine has been nearly idle for a moment, or patience is at an end."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        before, start = idle_seconds(), time.monotonic()
        time.sleep(0.2)
        if idle_seconds() - before > 0.9 * CORES * (time.monotonic() - start):
            return


def idle_seconds() -> float:
    """Time that all cores together have spent idle."""
    return float(Path("/proc/uptime").read_text().split()[1])


def meter(step: Callable[[Any], Any], shape: tuple[int, ...], environments: int) -> Callable[[float], float]:
    """Agent steps/s of a function that steps `environments` at once, with new random actions each time."""
    actions = itertools.cycle(np.random.default_rng(0).uniform(-1, 1, (256, *shape)).astype(np.float32))

    def measure(seconds: float) -> float:
        calls, start = 0, time.perf_counter()
        while (passed := time.perf_counter() - start) < seconds:
            step(next(actions))
            calls += 1
        return calls * environments / passed

    measure(0.5)  # compile, fill caches
    return measure


@contextlib.contextmanager
def one_process(task: str, environments: int = 1) -> Iterator[Callable[[float], float]]:
    """Environments stepped by hand, in turn."""
    envs = [make(task) for _ in range(environments)]
    ended = set(envs)

    def step(actions: np.ndarray) -> None:
        for env, action in zip(envs, actions, strict=True):
            if env in ended:
                env.reset()
                ended.remove(env)
            else:
                _, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    ended.add(env)

    yield meter(step, (environments, *envs[0].action_space.shape), environments)
    for env in envs:
        env.close()


@contextlib.contextmanager
def separate_processes(task: str) -> Iterator[Callable[[float], float]]:
    """As many processes as cores, each with its own environment, that know nothing of each other."""
    command = [sys.executable, __file__, "--alone", task]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
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


def alone(task: str) -> None:
    """One of the separate processes: reads seconds, answers with steps/s."""
    with one_process(task) as measure:
        for line in sys.stdin:
            print(measure(float(line)), flush=True)


@contextlib.contextmanager
def ours(task: str, environments: int) -> Iterator[Callable[[float], float]]:
    """VectorEnv with a worker per core."""
    with VectorEnv(task, count=environments) as vector:
        vector.reset()
        yield meter(vector.step, (environments, *vector.action_space.shape), environments)


@contextlib.contextmanager
def ours_in_halves(task: str, environments: int) -> Iterator[Callable[[float], float]]:
    """Two VectorEnvs, each with a worker per core and half of the environments: one steps while the other is received."""
    half = environments // 2
    with VectorEnv(task, count=half) as one, VectorEnv(task, count=half, seed=1) as other:
        for vector in (one, other):
            vector.reset()
            vector.send(np.zeros((half, *vector.action_space.shape)))

        def step(actions: np.ndarray) -> None:
            for vector, share in zip((one, other), np.split(actions, 2), strict=True):
                vector.receive()
                vector.send(share)

        yield meter(step, (environments, *one.action_space.shape), environments)
        one.receive(), other.receive()


@contextlib.contextmanager
def gymnasiums(task: str, environments: int) -> Iterator[Callable[[float], float]]:
    """Gymnasium's AsyncVectorEnv: a process per environment, observations in shared memory, not copied."""
    makers = [functools.partial(make, task)] * environments
    vector = gymnasium.vector.AsyncVectorEnv(makers, shared_memory=True, copy=False, context="spawn")
    vector.reset(seed=0)
    yield meter(vector.step, vector.action_space.shape, environments)
    vector.close()


def children() -> set[int]:
    """Processes that this one has started."""
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


def cpu_seconds(pids: set[int]) -> float:
    """Computing time that processes have used so far; waiting, for each other or for a core, does not count."""
    clocks = [clock for pid in pids for clock in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(clock.read_text().split()[0]) for clock in clocks) / 1e9


def compare(task: str, each: int, seconds: float, turns: int, patience: float) -> dict[str, tuple[float, float]]:
    """Best steps/s and median computing seconds per step of each way, with one and `each` environments per core."""
    ways = {
        "one process": one_process(task),
        f"one process, {each} environments": one_process(task, each),
        f"{CORES} separate processes": separate_processes(task),
        f"VectorEnv, {CORES} environments": ours(task, CORES),
        f"VectorEnv, {each * CORES} environments": ours(task, each * CORES),
        f"VectorEnv, {each * CORES} environments in two halves": ours_in_halves(task, each * CORES),
        f"AsyncVectorEnv, {CORES} environments": gymnasiums(task, CORES),
        f"AsyncVectorEnv, {each * CORES} environments": gymnasiums(task, each * CORES),
    }
    crews, measures = {}, {}
    with contextlib.ExitStack() as stack:
        for name, way in ways.items():
            others = children()
            measures[name] = stack.enter_context(way)
            crews[name] = children() - others | {os.getpid()}
        results: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(turns):
            for name, measure in measures.items():
                wait_for_quiet(patience)
                before, start = cpu_seconds(crews[name]), time.perf_counter()
                rate = measure(seconds)
                steps = rate * (time.perf_counter() - start)
                results[name].append((rate, (cpu_seconds(crews[name]) - before) / steps))
    return {name: (max(r for r, _ in turn), float(np.median([c for _, c in turn]))) for name, turn in results.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=["cheetah_run", "walker_walk"])
    parser.add_argument("--each", type=int, default=4, help="environments per core")
    parser.add_argument("--seconds", type=float, default=0.5, help="length of a turn")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--patience", type=float, default=0.0, help="seconds to wait for a quiet machine")
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.alone:
        return alone(arguments.alone)
    print("| task | way | agent steps/s | of cores x one process | CPU µs a step | of one process |")
    print("|---|---|---|---|---|---|")
    gains = []
    for task in arguments.tasks:
        options = (arguments.each, arguments.seconds, arguments.turns, arguments.patience)
        results = compare(task, *options)
        one_rate, one_cpu = results["one process"]
        for name, (rate, cpu) in results.items():
            share, cost = rate / (CORES * one_rate), one_cpu / cpu
            print(f"| {task} | {name} | {rate:,.0f} | {share:.0%} | {cpu * 1e6:,.0f} | {cost:.0%} |", flush=True)
        own, other = (max(r for n, (r, _) in results.items() if n.startswith(way)) for way in ("Vector", "Async"))
        gains.append(own / other)
    choice = "VectorEnv" if min(gains) > 1 else "AsyncVectorEnv, at least for some tasks"
    print(f"\nThe best VectorEnv is {min(gains):.2f}-{max(gains):.2f} times the best AsyncVectorEnv: use {choice}.")
    return None


if __name__ == "__main__":
    main()
