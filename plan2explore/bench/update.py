"""`plan2explore bench update`: how long an update of the agent takes, its compilation, and a step of acting.

As in training, a block's batches are drawn from replay, here random data on the device, and one compiled loop of updates
learns from them. `benchmarks/update_parts.py` tells where the time goes.
"""

import json
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from ..agent.learner import Learner
from ..agent.world_model import Observation
from ..config import PRESETS, AgentConfig, Preset, Spaces, check_numbers
from ..replay.buffer import Replay, columns_of

EPISODE, STEPS = 501, 20 * 501  # of replay
ACTION, PROPRIO = 6, 17  # sizes of the cheetah
ENVIRONMENTS = 16  # acted in at once
ROWS = {
    "whole_ms": "an update, ms", "step_us": "for each replayed step, us", "updates_per_s": "updates per second",
    "compile_s": "compilation, s", "act_ms": f"a step of acting in {ENVIRONMENTS} environments, ms",
    "peak_memory_mb": "peak memory, MB",
}  # fmt: skip


@dataclass(frozen=True)
class UpdateCommand:
    """Times one update of the agent, its compilation, and one step of acting."""

    preset: Preset = "paper"
    """Sizes and pieces of the agent."""
    obs: Literal["pixels", "proprio"] = "pixels"
    """What the agent observes."""
    precision: Literal["bfloat16", "float32"] | None = None
    """Number format inside the networks; none: the preset's."""
    gradient: Literal["through", "stopped"] = "through"
    """Whether the intrinsic reward's gradient goes through imagined states."""
    count: int = 10
    """Updates in one compiled loop."""
    repeats: int = 5
    """Runs of the loop, of which the shortest counts."""
    devices: int = 1
    """Also time the update on 2, 4, ... devices that share its batch, up to so many."""
    json: Path | None = None
    """Also write the numbers to this file."""

    def agent(self) -> tuple[AgentConfig, Spaces]:
        """The agent that is timed, and what it observes."""
        config = PRESETS[self.preset]
        intrinsic = replace(config.intrinsic, gradient=self.gradient)
        config = replace(config, intrinsic=intrinsic, precision=self.precision or config.precision)
        size = 32 if self.preset.endswith("tiny") else 64
        return config, Spaces(ACTION, size) if self.obs == "pixels" else Spaces(ACTION, None, PROPRIO)

    def run(self) -> int:
        """Measures, prints a table, and writes the file if there is one to write."""
        check_numbers(self)
        config, spaces = self.agent()
        print(f"Compiling and timing the update ({self.preset}): up to a few minutes ...", flush=True)
        trial = Trial(config, spaces, self.count)
        ms, compile_s = trial.measure(self.repeats)
        others = sorted({self.devices, *(2**power for power in range(1, self.devices.bit_length()))} - {1})
        devices_ms = {devices: Trial(config, spaces, self.count, devices).measure(self.repeats)[0] for devices in others}
        # The device's own count; a CPU has none, so there that of the process.
        memory = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
        report = {
            "device": jax.devices()[0].device_kind, "jax": jax.__version__, "preset": self.preset, "obs": self.obs,
            "precision": config.precision, "whole_ms": ms, "step_us": 1000 * ms / (config.batch * config.length),
            "updates_per_s": 1000 / ms, "compile_s": compile_s, "act_ms": trial.act_ms(), "devices_ms": devices_ms,
            "peak_memory_mb": (memory or 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) / 1e6,
        }  # fmt: skip
        title = "One update, preset {preset}, {obs}, {precision}, {device}".format(**report)
        table = Table("", "", title=title, show_header=False)
        for name, text in ROWS.items():
            table.add_row(text, f"{report[name]:.2f}")
        for devices, shared in devices_ms.items():
            table.add_row(f"an update on {devices} devices, ms", f"{shared:.2f} ({ms / shared:.2f} x)")
        Console().print(table)
        if self.json:
            self.json.write_text(json.dumps(report, indent=1) + "\n")
        return 0


class Trial:
    """A learner with replay to learn from."""

    def __init__(self, config: AgentConfig, spaces: Spaces, count: int, devices: int = 1) -> None:
        self.learner, self.count = Learner(config, spaces, devices), count
        self.rows: dict[str, Any] = {}
        rng = np.random.default_rng(0)
        for name, (shape, dtype) in columns_of(spaces).items():
            self.rows[name] = rng.uniform(0, 256 if dtype == np.uint8 else 1, (STEPS, *shape)).astype(dtype)
        self.rows |= {"is_first": np.arange(STEPS) % EPISODE == 0, "is_terminal": np.zeros(STEPS, bool)}
        self.replay = Replay("device", STEPS, 1, spaces, config.batch, config.length)
        self.replay.append(0, self.rows)
        self.state = jax.block_until_ready(self.learner.init(jax.random.key(0)))

    def block(self) -> Any:
        """A block of updates. The state's buffers are given away, so it is kept here."""
        batches = self.replay.sample(jax.random.key(0), self.count)
        self.state, _ = self.learner.update_block(self.state, batches)
        return self.state

    def measure(self, repeats: int) -> tuple[float, float]:
        """Milliseconds of an update, and seconds of its compilation."""
        first, *others = times_ms(self.block, 1 + repeats)
        return min(others) / self.count, (first - min(others)) / 1000

    def act_ms(self) -> float:
        """Median milliseconds of a step of the policy: observations from the host, actions back to it."""
        seen = {name: self.rows[name][:ENVIRONMENTS] for name in ("image", "proprio") if name in self.rows}
        observation = Observation(**seen)
        carried, first, key = self.learner.carry(ENVIRONMENTS), np.zeros(ENVIRONMENTS, bool), jax.random.key(0)

        def act() -> None:
            nonlocal carried
            action, carried = self.learner.act(self.state, carried, observation, first, key)
            np.asarray(action)

        return float(np.median(times_ms(act, 60)[10:]))


def times_ms(run: Callable[[], Any], repeats: int) -> list[float]:
    """Milliseconds of several runs, each until its result is there."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        jax.block_until_ready(run())
        times.append(1000 * (time.perf_counter() - begin))
    return times
