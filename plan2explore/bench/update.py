"""`bench update`: how long an update of the agent takes, and where the time goes.

Everything is timed with random data that is already on the device, after compilation, as the best of
several runs: as in training, a block's batches are drawn, and a compiled loop of updates learns from them. The
parts are timed as a ladder: first the drawing alone, then updates that train the world model, then the ensemble
too, then the exploration behaviour, then the task behaviour. A part's time is what its rung adds, so the parts sum
up to the whole.
"""

import json
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.compilation_cache import compilation_cache
from jaxtyping import Array, PRNGKeyArray
from rich.console import Console
from rich.table import Table

from plan2explore.agent.learner import Learner, LearnerState, compiler_options
from plan2explore.agent.optimizer import apply_gradients
from plan2explore.agent.world_model import Observation
from plan2explore.config import PRESETS, AgentConfig, Spaces

EPISODES, FRAMES = 20, 501  # what the stand-in for a replay memory holds
ACTION, PROPRIO = 6, 17  # the cheetah's numbers
ENVIRONMENTS = 16  # that are acted for at once
KEY = 0


@dataclass(frozen=True)
class UpdateBench:
    """Time one update of the agent, part by part, and one step of acting."""

    preset: Literal["paper", "small", "tiny", "modern", "modern-tiny"] = "paper"
    """Sizes and pieces of the agent."""
    obs: Literal["pixels", "proprio"] = "pixels"
    """What the agent observes."""
    precision: Literal["bfloat16", "float32"] | None = None
    """Number format of the products; none: the preset's."""
    gradient: Literal["through", "stopped"] = "through"
    """Whether the disagreement's gradient goes through imagined states."""
    count: int = 10
    """Updates in one compiled loop."""
    repeats: int = 5
    """Runs of the loop, of which the best counts."""
    devices: int = 1
    """Also time the update on 2, 4, ... devices that share its batch, up to so many."""
    json: Path | None = None
    """Also write the results to this file."""


@dataclass
class Report:
    """What was measured. Times are milliseconds for one update unless the name says otherwise."""

    device: str
    jax: str
    preset: str
    obs: str
    precision: str
    whole_ms: float
    step_us: float
    """Microseconds for each replayed step: an update's time over its batch and length."""
    updates_per_s: float
    compile_s: float
    compile_cached_s: float
    tflop: float
    """Of matrix products and convolutions in one update, as they are executed."""
    tflops: float
    product_tflops: float
    """What one large matrix product in the same precision reaches on this device."""
    peak_memory_mb: float
    parts_ms: dict[str, float]
    optimisers_ms: float
    """Clip, Adam and finiteness checks of all parts, timed alone; they are inside the parts' times too."""
    act_ms: float
    """One step for all environments: frames to the device, actions back."""
    devices_ms: dict[int, float]
    """An update by the number of devices that share its batch; empty for one."""


# --- A stand-in for the memory ---


def agent_of(options: UpdateBench) -> tuple[AgentConfig, Spaces]:
    """The configuration and the sizes that are timed."""
    config = PRESETS[options.preset]
    config = replace(config, intrinsic=replace(config.intrinsic, gradient=options.gradient))
    if options.precision is not None:
        config = replace(config, precision=options.precision)
    if options.obs == "proprio":
        return config, Spaces(ACTION, image=None, proprio=PROPRIO)
    return config, Spaces(ACTION, image=32 if options.preset.endswith("tiny") else 64)


def make_memory(spaces: Spaces, key: PRNGKeyArray) -> dict[str, Array]:
    """Episodes of noise, on the device."""
    keys = jax.random.split(key, 4)
    shape = EPISODES, FRAMES
    memory = {
        "action": jax.random.uniform(keys[0], (*shape, spaces.action), minval=-1.0, maxval=1.0),
        "reward": jax.random.uniform(keys[1], (*shape, spaces.tasks)),
        "is_first": jnp.zeros(shape, bool),
        "is_terminal": jnp.zeros(shape, bool),
    }
    if spaces.image is not None:
        memory["image"] = jax.random.bits(keys[2], (*shape, spaces.image, spaces.image, 3), jnp.uint8)
    if spaces.proprio is not None:
        memory["proprio"] = jax.random.normal(keys[3], (*shape, spaces.proprio))
    return memory


def sample(
    key: PRNGKeyArray, memory: dict[str, Array], count: int, batch: int, length: int
) -> dict[str, Array]:
    """Draws batches of sequences: any episode, any offset."""
    episode_key, offset_key = jax.random.split(key)
    episodes = jax.random.randint(episode_key, (count, batch, 1), 0, EPISODES)
    offsets = jax.random.randint(offset_key, (count, batch, 1), 0, FRAMES - length + 1)
    steps = offsets + jnp.arange(length)
    return {name: stored[episodes, steps] for name, stored in memory.items()}


# --- Measuring ---


def best_ms(run: Callable[[], Any], repeats: int) -> float:
    """The shortest of several runs, each until its result is there."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        jax.block_until_ready(run())
        times.append(time.perf_counter() - begin)
    return 1000 * min(times)


@contextmanager
def fresh_compilation_cache() -> Iterator[None]:
    """An empty compilation cache that remembers everything, for as long as the context lasts."""
    settings = {
        "jax_compilation_cache_dir": None,
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    with tempfile.TemporaryDirectory() as folder:
        try:
            for name, value in (settings | {"jax_compilation_cache_dir": folder}).items():
                jax.config.update(name, value)
            compilation_cache.reset_cache()
            yield
        finally:
            for name, value in before.items():
                jax.config.update(name, value)
            compilation_cache.reset_cache()


class Trial:
    """A learner with something to learn from, which updates as training does."""

    def __init__(self, options: UpdateBench, config: AgentConfig, spaces: Spaces, devices: int = 1) -> None:
        self.learner, self.count = Learner(config, spaces, devices), options.count
        self.sample = partial(sample, count=options.count, batch=config.batch, length=config.length)
        self._draw = jax.jit(self.sample)
        self.memory = make_memory(spaces, jax.random.key(KEY))
        self.state = self.learner.init(jax.random.key(KEY))

    def run(self) -> LearnerState:
        """One block of updates. The state's buffers are given away, so it is kept here."""
        batches = self._draw(jax.random.key(KEY), self.memory)
        self.state, _ = self.learner.update_block(self.state, batches)
        return self.state

    def first_s(self) -> float:
        """Seconds of the first block, compilation included."""
        jax.block_until_ready((self.state, self.memory))
        return best_ms(self.run, 1) / 1000


def time_whole(options: UpdateBench, config: AgentConfig, spaces: Spaces) -> tuple[Trial, dict[str, Any]]:
    """The whole update: its time, and its compilation from nothing and with a cache."""
    with fresh_compilation_cache():
        whole = Trial(options, config, spaces)
        first = whole.first_s()
        block_ms = best_ms(whole.run, options.repeats)
        jax.clear_caches()
        cached = Trial(options, config, spaces).first_s()
    whole_ms = block_ms / options.count
    step_us = 1000 * whole_ms / (config.batch * config.length)
    told = {"whole_ms": whole_ms, "step_us": step_us, "updates_per_s": 1000 / whole_ms}
    return whole, told | {"compile_s": first - block_ms / 1000, "compile_cached_s": cached - block_ms / 1000}


def time_devices(
    options: UpdateBench, config: AgentConfig, spaces: Spaces, whole_ms: float, say: Callable[[str], None]
) -> dict[int, float]:
    """The whole update on twice as many devices each time."""
    times = {1: whole_ms} if options.devices > 1 else {}
    for devices in sorted({options.devices, *(2**power for power in range(1, options.devices.bit_length()))} - {1}):
        trial = Trial(options, config, spaces, devices)
        trial.first_s()
        times[devices] = best_ms(trial.run, options.repeats) / options.count
        say(f"update on {devices} devices: {times[devices]:.2f} ms")
    return times


def make_rung(
    trial: Trial, trained: tuple[str, ...] | None
) -> Callable[[LearnerState, dict[str, Array]], Any]:
    """Updates that train all parts, or only some, or (no names) only the drawing of their batches.

    The loop carries the named parts alone; the compiler drops whatever they do not need.
    """
    names = tuple(trial.state.networks) if trained is None else trained
    update = trial.learner.update.__wrapped__  # compiled with the loop around it, not for itself

    def rung(start: LearnerState, memory: dict[str, Array]) -> Any:
        def step(parts: dict[str, Any], now: tuple[PRNGKeyArray, dict[str, Array]]) -> tuple[dict[str, Any], None]:
            key, batch = now
            after = update(start._replace(networks=start.networks | parts, key=key), batch)[0]
            return {name: after.networks[name] for name in names}, None

        keys, batches = jax.random.split(start.key, trial.count), trial.sample(start.key, memory)
        if not names:
            return batches
        return lax.scan(step, {name: start.networks[name] for name in names}, (keys, batches))[0]

    return rung


def time_rung(trial: Trial, trained: tuple[str, ...] | None, repeats: int) -> float:
    """Milliseconds of one update of a rung."""
    loop = jax.jit(make_rung(trial, trained), compiler_options=compiler_options())
    jax.block_until_ready(loop(trial.state, trial.memory))
    return best_ms(lambda: loop(trial.state, trial.memory), repeats) / trial.count


def time_parts(
    options: UpdateBench, config: AgentConfig, spaces: Spaces, whole_ms: float, say: Callable[[str], None]
) -> dict[str, float]:
    """What each part adds to an update of those before it."""
    trial = Trial(options, config, replace(spaces, tasks=0))
    rungs: dict[str, tuple[str, ...] | None] = {
        "sampling": (),
        "world model": ("model",),
        "ensemble": ("model", "intrinsic"),
        "exploration behaviour": None,
    }
    times = {}
    for name, trained in rungs.items():
        times[name] = time_rung(trial, trained, options.repeats)
        say(f"update up to {name}: {times[name]:.2f} ms")
    times["task behaviour and reward head"] = whole_ms
    return dict(zip(times, np.diff([0.0, *times.values()]).tolist(), strict=True))


def time_optimisers(options: UpdateBench, learner: Learner, state: LearnerState) -> float:
    """Clip, Adam and checks of all parts, with gradients that are there already."""

    @jax.jit
    def loop(parts: Any) -> Any:
        def step(parts: Any, _: None) -> tuple[Any, None]:
            trained = {
                name: apply_gradients(part, 0.01 * part.params, part.params[:, 0], state.update, learner.agent.adam(name))[0]
                for name, part in parts.items()
                if part.params.size
            }
            return parts | trained, None

        return lax.scan(step, parts, None, length=options.count)[0]

    jax.block_until_ready(loop(state.networks))
    return best_ms(lambda: loop(state.networks), options.repeats) / options.count


def time_acting(learner: Learner, state: LearnerState, spaces: Spaces) -> float:
    """Median milliseconds of a step of the policy: observations from the host, actions back to it."""
    generator = np.random.default_rng(KEY)

    def observe() -> Observation:
        image: Any = None
        proprio: Any = None
        if spaces.image is not None:
            image = generator.integers(0, 255, (ENVIRONMENTS, spaces.image, spaces.image, 3), np.uint8)
        if spaces.proprio is not None:
            proprio = generator.normal(size=(ENVIRONMENTS, spaces.proprio)).astype(np.float32)
        return Observation(image, proprio)

    carried, first, times = learner.carry(ENVIRONMENTS), jnp.zeros(ENVIRONMENTS, bool), []
    for key in list(jax.random.split(jax.random.key(KEY), 60)):
        observation = observe()
        begin = time.perf_counter()
        action, carried = learner.act(state, carried, observation, first, key)
        np.asarray(action)
        times.append(time.perf_counter() - begin)
    return 1000 * float(np.median(times[10:]))


# --- The machine ---


def measure_product(precision: str) -> float:
    """TFLOP/s of one large matrix product."""
    side = 8192 if jax.default_backend() == "gpu" else 1024
    x = jax.random.normal(jax.random.key(KEY), (side, side), jnp.dtype(precision))

    @jax.jit
    def loop(x: Array) -> Array:
        return lax.fori_loop(0, 10, lambda _, y: (x @ y) * (1 / side), x)

    jax.block_until_ready(loop(x))
    return 10 * 2 * side**3 / best_ms(lambda: loop(x), 5) / 1e9


def peak_memory_mb() -> float:
    """The most memory ever used: the device's own count, or that of the process where there is none."""
    stats = jax.devices()[0].memory_stats() or {}
    used = stats.get("peak_bytes_in_use")
    return (used if used is not None else 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) / 1e6


def count_flop(function: Callable, *arguments: Any) -> float:
    """Floating-point operations in a function's matrix products and convolutions, loops included."""
    return _count(jax.make_jaxpr(function)(*arguments).jaxpr)


def _count(jaxpr: Any) -> float:
    total = 0.0
    for equation in jaxpr.eqns:
        inner = [sub for value in equation.params.values() for sub in _jaxprs(value)]
        times = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        total += times * sum(map(_count, inner))
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            total += 2 * prod(equation.outvars[0].aval.shape) * prod(shape[axis] for axis in contracted)
        elif equation.primitive.name == "conv_general_dilated":
            outputs = equation.params["dimension_numbers"].rhs_spec[0]
            kernel = equation.invars[1].aval.shape
            total += 2 * prod(equation.outvars[0].aval.shape) * prod(kernel) / kernel[outputs]
    return total


def _jaxprs(value: Any) -> list[Any]:
    """The programs inside one parameter of an instruction."""
    found = [getattr(each, "jaxpr", each) for each in (value if isinstance(value, tuple | list) else [value])]
    return [each for each in found if hasattr(each, "eqns")]


# --- The command ---


def run(options: UpdateBench) -> Report:
    """Measures everything, and says on standard error how far it is."""
    say = Console(stderr=True).print
    config, spaces = agent_of(options)
    say(f"Compiling and timing the update ({options.preset}), then its parts: a few minutes ...")
    whole, times = time_whole(options, config, spaces)
    say(f"whole update: {times['whole_ms']:.2f} ms (compiled in {times['compile_s']:.0f} s)")
    batches = jax.eval_shape(whole.sample, jax.random.key(KEY), whole.memory)
    tflop = count_flop(whole.learner.update_block.__wrapped__, whole.state, batches) / options.count / 1e12
    act_ms = time_acting(whole.learner, whole.state, spaces)
    say(f"acting for {ENVIRONMENTS} environments: {act_ms:.2f} ms a step")
    return Report(
        device=jax.devices()[0].device_kind,
        jax=jax.__version__,
        preset=options.preset,
        obs=f"{spaces.image}x{spaces.image} pixels" if spaces.image else f"{spaces.proprio} numbers",
        precision=config.precision,
        tflop=tflop,
        tflops=tflop * times["updates_per_s"],
        product_tflops=measure_product(config.precision),
        peak_memory_mb=peak_memory_mb(),
        act_ms=act_ms,
        optimisers_ms=time_optimisers(options, whole.learner, whole.state),
        parts_ms=time_parts(options, config, spaces, times["whole_ms"], say),
        devices_ms=time_devices(options, config, spaces, times["whole_ms"], say),
        **times,
    )


def show(report: Report) -> Table:
    """The report as a table."""
    title = f"One update, preset {report.preset}, {report.obs}, {report.precision}, {report.device}"
    table = Table("", "", title=title, show_header=False)
    table.add_row("whole update", f"{report.whole_ms:.2f} ms")
    for name, ms in report.parts_ms.items():
        table.add_row(f"  {name}", f"{ms:.2f} ms")
    table.add_row("  of all this, optimisers", f"{report.optimisers_ms:.2f} ms")
    for devices, ms in report.devices_ms.items():
        table.add_row(f"on {devices} device{'s' * (devices > 1)}", f"{ms:.2f} ms ({report.whole_ms / ms:.2f} x)")
    table.add_row("for each replayed step", f"{report.step_us:.2f} us")
    table.add_row("updates per second", f"{report.updates_per_s:.1f}")
    share = f"{report.tflops:.3g} of {report.product_tflops:.3g} in one large product"
    table.add_row("TFLOP/s", f"{share} ({report.tflops / report.product_tflops:.0%})")
    table.add_row("TFLOP in an update", f"{report.tflop:.3g}")
    table.add_row("peak memory", f"{report.peak_memory_mb:.0f} MB")
    table.add_row("compilation", f"{report.compile_s:.1f} s")
    table.add_row("compilation with a cache", f"{report.compile_cached_s:.1f} s")
    table.add_row(f"acting for {ENVIRONMENTS} environments", f"{report.act_ms:.2f} ms a step")
    return table


def main(options: UpdateBench) -> None:
    """Measures, prints a table, and writes the file if there is one to write."""
    report = run(options)
    Console().print(show(report))
    if options.json is not None:
        options.json.write_text(json.dumps(asdict(report), indent=1))
