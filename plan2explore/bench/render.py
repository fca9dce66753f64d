"""`plan2explore bench render`: agent steps per second (two env steps and a frame) by renderer and cores."""

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from .machine import machine

GL = ("osmesa", "egl")
BACKENDS = ("raycast", *GL)


def bench(worlds: tuple[str, ...], size: int, seconds: float, backends: tuple[str, ...], out: Path | None) -> int:
    """Measures every world with every backend, prints a table, and writes it as JSON where asked."""
    unknown = set(backends) - set(BACKENDS)
    if unknown:
        raise ValueError(f"A backend is one of {', '.join(BACKENDS)}; got {', '.join(sorted(unknown))}")
    if not 0 < seconds < math.inf:
        raise ValueError(f"Each measurement needs some seconds; got {seconds}")
    from ..envs import make

    for world in worlds:  # a wrong name or size is said before anything is measured
        make(world, size=size).close()
    console = Console()
    here = machine()
    console.print(", ".join(f"{key} {value}" for key, value in here.items()), soft_wrap=True)
    rows = []
    for world in worlds:
        for backend in backends:
            with console.status(f"{world}, {backend}: 1 core, then {here['cores']} ..."):
                row = _measure_apart(world, backend, size, seconds)
            if "error" in row:
                console.print(f"{world}, {backend}: left out, {row['error']}", soft_wrap=True)
            else:
                rows.append(row)
    _print(console, rows, int(here["cores"]))
    if out:
        out.write_text(json.dumps({"machine": here, "size": size, "rows": rows}, indent=1) + "\n")
        console.print(f"written: {out}")
    return 0


def _measure_apart(world: str, backend: str, size: int, seconds: float) -> dict[str, Any]:
    """Measures in a process of its own: one process can hold only one kind of GL."""
    environment = os.environ | ({"MUJOCO_GL": backend} if backend in GL else {})
    renderer = "gl" if backend in GL else backend
    code = f"from plan2explore.bench.render import measure; measure({world!r}, {renderer!r}, {size}, {seconds})"
    child = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    lines = child.stdout.splitlines()
    if child.returncode or not lines:
        reason = child.stderr.strip().splitlines()
        return {"error": reason[-1] if reason else f"status {child.returncode}"}
    return {"world": world, "backend": backend, **json.loads(lines[-1])}


def measure(world: str, renderer: str, size: int, seconds: float) -> None:
    """Prints, as one line of JSON, the steps/s of one process on one core, and of all cores."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})  # software GL would take all cores for one process
    one = one_process(world, renderer, size, seconds)
    os.sched_setaffinity(0, cores)
    print(json.dumps({"one": one, "all": all_cores(world, renderer, size, seconds, len(cores))}))


def one_process(world: str, renderer: str, size: int, seconds: float) -> float:
    """Steps/s of one environment in this process."""
    from ..envs import make

    env = make(world, renderer=renderer, size=size)
    actions = np.random.default_rng(0).uniform(-1, 1, (1000, *(env.action_space.shape or ()))).astype(np.float32)
    env.reset(seed=0)
    env.step(actions[0])  # compiled, caches filled
    env.reset(seed=0)
    steps, start = 0, time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds:
        *_, terminated, truncated, _ = env.step(actions[steps % 1000])
        steps += 1
        if terminated or truncated:
            env.reset()
    env.close()
    return steps / spent


def all_cores(world: str, renderer: str, size: int, seconds: float, cores: int) -> float:
    """Steps/s of four environments a core, with a worker process on each."""
    from ..envs import VectorEnv

    with VectorEnv(world, 4 * cores, workers=cores, renderer=renderer, size=size) as envs:
        shape = (100, 4 * cores, *envs.action_space.shape)
        actions = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
        envs.reset()
        envs.step(actions[0])
        steps, start = 0, time.perf_counter()
        while (spent := time.perf_counter() - start) < seconds:
            envs.step(actions[steps % 100])
            steps += 1
    return 4 * cores * steps / spent


def _print(console: Console, rows: list[dict[str, Any]], cores: int) -> None:
    table = Table(title="agent steps/s (two env steps and a frame)")
    for column in ("world", "drawn by", "1 core", f"{cores} cores", "of cores x 1", "against OSMesa"):
        table.add_column(column, justify="left" if column in ("world", "drawn by") else "right")
    slow = {row["world"]: row["one"] for row in rows if row["backend"] == "osmesa"}
    for row in rows:
        against = f"x {row['one'] / slow[row['world']]:.1f}" if row["world"] in slow else "-"
        share = f"{100 * row['all'] / (cores * row['one']):.0f} %"
        table.add_row(row["world"], row["backend"], f"{row['one']:.0f}", f"{row['all']:.0f}", share, against)
    console.print(table)
