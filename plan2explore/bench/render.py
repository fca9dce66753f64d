"""`plan2explore bench render`: agent steps per second (two env steps and a frame) by renderer and cores."""

import json
import os
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.console import Console
from rich.table import Table

from ..config import Positive, check_numbers
from ..envs import VectorEnv, make
from ..envs.worker import python_command
from ..runs.machine import machine

GL = ("osmesa", "egl")
Backend = Literal["raycast", "osmesa", "egl"]


@dataclass(frozen=True)
class RenderCommand:
    """Agent steps per second (two env steps and a frame): the ray-caster, OSMesa and EGL, with one and all cores."""

    worlds: tuple[str, ...] = ("cheetah", "walker", "quadruped")
    """Names that `make` takes."""
    size: int = 64
    """Side of the images in pixels."""
    seconds: Positive = 3.0
    """How long each number is measured."""
    backends: tuple[Backend, ...] = ("raycast", "osmesa", "egl")
    """What draws; one that does not work here is left out with a line that says so."""
    json: Path | None = None
    """Also write the numbers to this file."""

    def run(self) -> int:
        """Measures every world with every backend."""
        check_numbers(self)
        for world in self.worlds:  # a wrong name or size is said before anything is measured
            make(world, size=self.size).close()
        console, here, rows = Console(), machine(), []
        slow: dict[str, float] = {}
        cores = int(here["cores"])
        console.print(", ".join(f"{key} {value}" for key, value in here.items()), soft_wrap=True)
        table = Table("world", "drawn by", "1 core", f"{cores} cores", "of cores x 1", "against OSMesa")
        for world, backend in product(self.worlds, self.backends):
            with console.status(f"{world}, {backend}: 1 core, then {cores} ..."):
                row = measure_apart(world, backend, self.size, self.seconds)
            if "error" in row:
                console.print(f"{world}, {backend}: left out, {row['error']}", soft_wrap=True)
            else:
                rows.append(row)
                slow |= {world: row["one"]} if backend == "osmesa" else {}
        for world, backend, one, every in (row.values() for row in rows):
            against = f"x {one / slow[world]:.1f}" if world in slow else "-"
            table.add_row(world, backend, f"{one:.0f}", f"{every:.0f}", f"{every / (cores * one):.0%}", against)
        console.print("agent steps/s (two env steps and a frame)", table)
        if self.json:
            self.json.write_text(json.dumps({"machine": here, "size": self.size, "rows": rows}, indent=1) + "\n")
        return 0


def measure_apart(world: str, backend: str, size: int, seconds: float) -> dict[str, Any]:
    """Measures in a process of its own: one process can hold only one kind of GL."""
    environment = os.environ | ({"MUJOCO_GL": backend} if backend in GL else {})
    asked = json.dumps([world, "gl" if backend in GL else backend, size, seconds])
    code = "import json; from plan2explore.bench.render import measure; measure(*json.loads(sys.argv[1]))"
    child = subprocess.run(python_command(code, asked), env=environment, capture_output=True, text=True, check=False)
    lines, reason = child.stdout.splitlines(), child.stderr.strip().splitlines()
    if child.returncode or not lines:
        return {"error": reason[-1] if reason else f"status {child.returncode}"}
    return {"world": world, "backend": backend, **json.loads(lines[-1])}


def measure(world: str, renderer: str, size: int, seconds: float) -> None:
    """Prints, as one line of JSON, the steps/s of one process on one core, and of four environments on each core."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})  # software GL would take all cores for one process
    one = one_process(world, renderer, size, seconds)
    os.sched_setaffinity(0, cores)
    count = 4 * len(cores)
    with VectorEnv(world, count, workers=len(cores), renderer=renderer, size=size) as envs:
        envs.reset()
        everywhere = count * calls_per_second(envs.step, (count, *envs.action_space.shape), seconds)
    print(json.dumps({"one": one, "all": everywhere}))


def one_process(world: str, renderer: str, size: int, seconds: float) -> float:
    """Steps/s of one environment in this process."""
    with closing(make(world, renderer=renderer, size=size)) as env:
        env.reset(seed=0)

        def step(action: np.ndarray) -> None:
            *_, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

        return calls_per_second(step, env.action_space.shape or (), seconds)


def calls_per_second(step: Callable[[np.ndarray], Any], shape: tuple[int, ...], seconds: float) -> float:
    """How often a second it steps, with random actions."""
    actions = np.random.default_rng(0).uniform(-1, 1, (100, *shape)).astype(np.float32)
    step(actions[0])  # compiled, caches filled
    steps, start = 0, time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds:
        step(actions[steps % 100])
        steps += 1
    return steps / spent
