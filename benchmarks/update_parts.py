"""Where the time of an update goes, and how much of it is arithmetic.

    python benchmarks/update_parts.py [--preset paper] [--obs proprio] [--json FILE]

First the drawing of batches, then updates that train the world model alone, then the ensemble too, then the explorer, then
the task: what each adds is its part, so that the parts sum up to the whole. The compiler drops what is not trained.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from math import prod
from typing import Any

import jax
import numpy as np
import tyro
from jax import lax

from plan2explore.agent.learner import compiler_options
from plan2explore.agent.optimizer import apply_gradients
from plan2explore.bench.update import Trial, UpdateCommand, times_ms

RUNGS = {"world model": ("model",), "ensemble": ("model", "intrinsic"), "exploration behaviour": None}


@dataclass(frozen=True)
class Command(UpdateCommand):
    """Times the parts of an update, and counts its floating-point operations."""

    def run(self) -> int:
        config, spaces = self.agent()
        whole, alone = Trial(config, spaces, self.count), Trial(config, replace(spaces, tasks=0), self.count)
        whole_ms, _ = whole.measure(self.repeats)
        times = {"sampling": best_ms(lambda: whole.replay.sample(jax.random.key(0), self.count), self.repeats) / self.count}
        for name, trained in RUNGS.items():
            times[name] = times["sampling"] + time_rung(alone, trained, self.repeats)
        times["task behaviour and reward head"] = whole_ms
        parts = dict(zip(times, np.diff([0.0, *times.values()]).tolist(), strict=True))
        update = whole.learner.update_block.__wrapped__
        tflop = count_flop(update, whole.state, whole.replay.batches(self.count)) / self.count / 1e12
        report = {
            "device": jax.devices()[0].device_kind, **asdict(self), "json": None, "whole_ms": whole_ms, "parts_ms": parts,
            "optimisers_ms": time_optimisers(whole, self.repeats), "tflop": tflop, "tflops": 1000 * tflop / whole_ms,
            "product_tflops": time_product(config.precision),
        }  # fmt: skip
        print(text := json.dumps(report, indent=1))
        if self.json:
            self.json.write_text(text + "\n")
        return 0


def best_ms(run: Callable[[], Any], repeats: int) -> float:
    """The shortest of several runs, after one that compiles."""
    return min(times_ms(run, 1 + repeats)[1:])


def make_rung(trial: Trial, trained: tuple[str, ...] | None) -> Callable[[Any, Any], Any]:
    """Updates that train all networks, or only some: the loop carries those alone."""
    update = trial.learner.update.__wrapped__  # compiled with the loop around it, not for itself

    def rung(start: Any, batches: Any) -> Any:
        def step(networks: dict[str, Any], now: Any) -> tuple[dict[str, Any], None]:
            key, batch = now
            after = update(start._replace(networks=start.networks | networks, key=key), batch)[0]
            return {name: after.networks[name] for name in networks}, None

        networks = {name: start.networks[name] for name in trained or start.networks}
        return lax.scan(step, networks, (jax.random.split(start.key, trial.count), batches))[0]

    return rung


def time_rung(trial: Trial, trained: tuple[str, ...] | None, repeats: int) -> float:
    """Milliseconds of one update of a rung."""
    loop = jax.jit(make_rung(trial, trained), compiler_options=compiler_options())
    batches = trial.replay.sample(jax.random.key(0), trial.count)
    return best_ms(lambda: loop(trial.state, batches), repeats) / trial.count


def time_optimisers(trial: Trial, repeats: int) -> float:
    """Milliseconds of clip, Adam and checks of all networks, with gradients that are there already."""
    adam, updates = trial.learner.agent.adam, trial.state.update

    @jax.jit
    def loop(networks: Any) -> Any:
        def step(networks: Any, _: None) -> tuple[Any, None]:
            trained = {name: part for name, part in networks.items() if part.params.size}
            return networks | {
                name: apply_gradients(part, 0.01 * part.params, part.params[:, 0], updates, adam(name))[0]
                for name, part in trained.items()
            }, None

        return lax.scan(step, networks, None, length=trial.count)[0]

    return best_ms(lambda: loop(trial.state.networks), repeats) / trial.count


def time_product(precision: str) -> float:
    """TFLOP/s of one large matrix product."""
    side = 8192 if jax.default_backend() == "gpu" else 1024
    x = jax.random.normal(jax.random.key(0), (side, side), precision)
    loop = jax.jit(lambda x: lax.fori_loop(0, 10, lambda _, y: (x @ y) * (1 / side), x))
    return 10 * 2 * side**3 / best_ms(lambda: loop(x), 5) / 1e9


def count_flop(function: Callable, *arguments: Any) -> float:
    """Floating-point operations in a function's matrix products and convolutions, loops included."""
    return _count(jax.make_jaxpr(function)(*arguments).jaxpr)


def _count(jaxpr: Any) -> float:
    total = 0.0
    for equation in jaxpr.eqns:
        values = jax.tree.leaves(list(equation.params.values()), is_leaf=lambda value: hasattr(value, "jaxpr"))
        inner = [getattr(value, "jaxpr", value) for value in values]
        times = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        total += times * sum(_count(each) for each in inner if hasattr(each, "eqns"))
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            total += 2 * prod(equation.outvars[0].aval.shape) * prod(shape[axis] for axis in contracted)
        elif equation.primitive.name == "conv_general_dilated":
            outputs = equation.params["dimension_numbers"].rhs_spec[0]
            kernel = equation.invars[1].aval.shape
            total += 2 * prod(equation.outvars[0].aval.shape) * prod(kernel) / kernel[outputs]
    return total


if __name__ == "__main__":
    tyro.cli(Command).run()
