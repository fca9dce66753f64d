"""Several seeds as one program: k learners under `vmap` against k one after the other, on vectors.

`python benchmarks/seeds.py --preset tiny --seeds 1 2 4 8`: the update alone. On a CPU that others use too, compare the CPU
time, which hardly depends on them.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import tyro

from plan2explore.agent import learner as module
from plan2explore.agent.learner import Learner, compiler_options
from plan2explore.bench.update import Trial, UpdateCommand
from plan2explore.config import Preset


@dataclass(frozen=True)
class SeedsCommand:
    """Times updates of several seeds."""

    preset: Preset = "tiny"
    """Sizes and pieces of the agent."""
    seeds: tuple[int, ...] = (1, 2, 4, 8)
    """Numbers of learners."""
    count: int = 10
    """Updates in one compiled loop."""
    repeats: int = 5
    """Runs of the loop, of which the shortest counts."""


def together(learner: Learner, batches: Any, seeds: int) -> Callable[[], Any]:
    """A loop of updates of all seeds as one program."""
    states = jax.vmap(learner.init.__wrapped__)(jax.random.split(jax.random.key(0), seeds))
    stacked = {name: jnp.stack([array] * seeds) for name, array in batches.items()}
    update = jax.vmap(partial(module._update_block, learner.agent))
    compiled = jax.jit(update, donate_argnums=0, compiler_options=compiler_options())

    def run() -> Any:
        nonlocal states
        states, _ = compiled(states, stacked)
        return states

    return run


def seconds_of(run: Callable[[], Any]) -> tuple[float, float]:
    """Of the clock, and of all cores."""
    began = time.perf_counter(), time.process_time()
    jax.block_until_ready(run())
    return time.perf_counter() - began[0], time.process_time() - began[1]


def main(command: SeedsCommand) -> None:
    """Prints a row for each number of seeds."""
    config, spaces = UpdateCommand(preset=command.preset, obs="proprio").agent()
    trial = Trial(config, spaces, command.count)
    batches = trial.replay.sample(jax.random.key(0), command.count)
    print(f"{command.preset}, vectors, {jax.devices()[0].device_kind}: ms for one update of each seed")
    print("seeds | one after the other: clock, CPU | one program: clock, CPU")
    for seeds in command.seeds:
        programs = [trial.block, together(trial.learner, batches, seeds)]
        for program in programs:
            seconds_of(program)  # compiles
        times = [[seconds_of(program) for program in programs] for _ in range(command.repeats)]
        best = [[min(row[i][kind] for row in times) * 1000 / command.count for kind in (0, 1)] for i in (0, 1)]
        alone = " ".join(f"{seeds * ms:8.1f}" for ms in best[0])
        print(f"{seeds:5} | {alone} | " + " ".join(f"{ms:8.1f}" for ms in best[1]), flush=True)


if __name__ == "__main__":
    main(tyro.cli(SeedsCommand))
