"""Agent steps/s of one process, of separate processes and of VectorEnv, in one run on one machine.

    python benchmarks/vector.py [--tasks cheetah_run walker_walk] [--others] [--json FILE]

Each way takes several short turns, one after the other; its best turn counts, since other load on the machine
can only slow a turn down. "Separate processes" step their environments without exchanging anything, which is all
that the cores can give; "one process" with several environments in turn shows what it costs that they push each other
out of the cache. What VectorEnv loses against (cores x one process) has two parts, which the table tells apart: cores
that wait ("busy": computing time of all processes by the cores' time), and steps that take longer to compute because
cores share caches and memory ("CPU µs a step"). On a busy machine only the latter means anything. `--others` adds
two VectorEnvs that take turns and Gymnasium's AsyncVectorEnv.
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
SEVERAL = 4  # environments in a process for the ways beside it

STEPS = 50  # after each reset

Measure = Callable[[float], float]


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
def one_process(task: str, environments: int = 1) -> Iterator[Measure]:
    """Environments stepped by hand, in turn."""
    envs = [make(task) for _ in range(environments)]

    def reset() -> None:
        for seed, env in enumerate(envs):
            env.reset(seed=seed)

    def step(actions: np.ndarray) -> None:
        for env, action in zip(envs, actions, strict=True):
            env.step(action)

    yield meter(reset, step, (environments, *envs[0].action_space.shape), environments)
    for env in envs:
        env.close()


@contextlib.contextmanager
def separate_processes(task: str, environments: int) -> Iterator[Measure]:
    """As many processes as cores, each with environments of its own, that know nothing of each other."""
    command = [sys.executable, __file__, "--alone", str(environments), "--tasks", task]
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


def alone(task: str, environments: int) -> None:
    """One of the separate processes: reads seconds, answers with steps/s."""
    with one_process(task, environments) as measure:
        for line in sys.stdin:
            print(measure(float(line)), flush=True)


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


def children() -> set[int]:
    """Processes that this one has started."""
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


def cpu_seconds(pids: set[int]) -> float:
    """Computing time that processes have used so far; waiting, for each other or for a core, does not count."""
    clocks = [clock for pid in pids for clock in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(clock.read_text().split()[0]) for clock in clocks) / 1e9


def ways(task: str, others: bool) -> dict[str, Any]:
    """Everything that is compared."""
    chosen = {
        "one process": one_process(task),
        f"one process, {SEVERAL} environments": one_process(task, SEVERAL),
        f"{CORES} separate processes": separate_processes(task, 1),
        f"{CORES} separate processes, {SEVERAL} environments each": separate_processes(task, SEVERAL),
    }
    for each in EACH:
        chosen[f"VectorEnv, {CORES} x {each} environments"] = ours(task, CORES * each)
    if others:
        chosen[f"VectorEnv, {CORES} x {SEVERAL} environments in two halves"] = ours_in_halves(task, CORES * SEVERAL)
        for each in (1, SEVERAL):
            chosen[f"AsyncVectorEnv, {CORES} x {each} environments"] = gymnasiums(task, CORES * each)
    return chosen


def compare(task: str, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Each way's best steps/s, with the computing time per step and the part of the cores' time that was used in it."""
    crews, measures = {}, {}
    with contextlib.ExitStack() as stack:
        for name, way in ways(task, arguments.others).items():
            before = children()
            measures[name] = stack.enter_context(way)
            crews[name] = children() - before | {os.getpid()}
        turns: dict[str, list[tuple[float, float]]] = {name: [] for name in measures}
        for _ in range(arguments.turns):
            for name, measure in measures.items():
                wait_for_quiet(arguments.patience)
                computed, start = cpu_seconds(crews[name]), time.perf_counter()
                rate = measure(arguments.seconds)
                steps = rate * (time.perf_counter() - start)
                turns[name].append((rate, (cpu_seconds(crews[name]) - computed) / steps))
    one = max(turns["one process"])[0]
    rows = []
    for name, results in turns.items():
        rate, cpu = max(results)
        cores = 1 if name.startswith("one process") else CORES
        row = {"task": task, "way": name, "steps_per_second": rate, "of_cores_times_one": rate / (cores * one)}
        rows.append({**row, "cpu_us_per_step": 1e6 * cpu, "busy": rate * cpu / cores})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=["cheetah_run", "walker_walk"])
    parser.add_argument("--seconds", type=float, default=0.4, help="length of a turn")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--patience", type=float, default=0.0, help="seconds to wait for a quiet machine")
    parser.add_argument("--others", action="store_true", help="measure the alternatives too")
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    parser.add_argument("--alone", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.alone:
        return alone(arguments.tasks[0], arguments.alone)
    here = machine()
    print(", ".join(f"{key} {value}" for key, value in here.items()))
    print("| task | way | agent steps/s | of cores x one process | CPU µs a step | busy |")
    print("|---|---|---|---|---|---|")
    rows = []
    for task in arguments.tasks:
        for row in compare(task, arguments):
            rows.append(row)
            name, way, rate, share, cpu, busy = row.values()
            print(f"| {name} | {way} | {rate:,.0f} | {share:.0%} | {cpu:,.0f} | {busy:.0%} |", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": here, "rows": rows}, indent=1) + "\n")
    return None


if __name__ == "__main__":
    main()
