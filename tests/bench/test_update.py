"""The benchmark counts, times and reports what it says."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from plan2explore import config as configs
from plan2explore.bench import update as bench
from plan2explore.config import ActorCriticConfig, IntrinsicConfig, ModelConfig

SMALLEST = replace(
    configs.tiny,
    model=ModelConfig(deter=4, stoch=2, hidden=4, proprio_width=4, proprio_depth=1, reward_width=4, unroll=1),
    intrinsic=IntrinsicConfig(width=4, depth=1, members=2),
    actor_critic=ActorCriticConfig(
        horizon=2, actor_width=4, actor_depth=1, critic_width=4, critic_depth=1, unroll=1
    ),
    batch=2,
    length=3,
)


FAST_TO_COMPILE = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


@pytest.fixture
def options(monkeypatch):
    monkeypatch.setitem(configs.PRESETS, "tiny", SMALLEST)
    monkeypatch.setattr(bench, "measure_product", lambda precision: 2.0)
    return bench.UpdateBench(preset="tiny", obs="proprio", count=2, repeats=1)


def test_products_and_convolutions_are_counted_through_loops_and_calls():
    def function(x, images, kernel):
        step = jax.jit(lambda y, _: (y @ x, None))
        product = jax.lax.scan(step, x, None, length=3)[0]
        layout = ("NHWC", "HWIO", "NHWC")
        return product, jax.lax.conv_general_dilated(
            images, kernel, (2, 2), "VALID", dimension_numbers=layout
        )

    counted = bench.count_flop(function, jnp.ones((5, 5)), jnp.ones((2, 8, 8, 3)), jnp.ones((4, 4, 3, 7)))
    assert counted == 3 * 2 * 5**3 + 2 * (2 * 3 * 3 * 7) * (4 * 4 * 3)


def test_batched_products_are_counted():
    counted = bench.count_flop(
        lambda x, y: jnp.einsum("bij,bjk->bik", x, y), jnp.ones((2, 3, 4)), jnp.ones((2, 4, 5))
    )
    assert counted == 2 * 2 * 3 * 4 * 5


def test_batches_are_sequences_of_the_memory():
    steps = jnp.broadcast_to(jnp.arange(bench.FRAMES), (bench.EPISODES, bench.FRAMES))
    memory = {"step": steps, "episode": jnp.broadcast_to(jnp.arange(bench.EPISODES)[:, None], steps.shape)}
    batches = bench.sample(jax.random.key(0), memory, count=2, batch=32, length=30)
    assert batches["step"].shape == (2, 32, 30)
    np.testing.assert_array_equal(np.diff(batches["step"], axis=2), 1)
    np.testing.assert_array_equal(np.diff(batches["episode"], axis=2), 0)
    assert len(np.unique(batches["episode"])) > 10
    assert len(np.unique(batches["step"][..., 0])) > 30


def test_the_best_run_counts(monkeypatch):
    clock = iter([0.0, 3.0, 10.0, 11.0, 20.0, 22.0])
    monkeypatch.setattr(bench.time, "perf_counter", lambda: next(clock))
    assert bench.best_ms(lambda: None, 3) == 1000.0


def test_the_compilation_cache_is_as_before_afterwards():
    before = jax.config.jax_compilation_cache_dir
    with bench.fresh_compilation_cache():
        inside = jax.config.jax_compilation_cache_dir
    assert inside not in (None, before)
    assert jax.config.jax_compilation_cache_dir == before


def test_parts_are_what_each_rung_adds(options, monkeypatch):
    times = {(): 1.0, ("model",): 5.0, ("model", "intrinsic"): 6.5, None: 10.0}
    monkeypatch.setattr(bench, "Trial", lambda *_: None)
    monkeypatch.setattr(bench, "time_rung", lambda trial, trained, repeats: times[trained])
    parts = bench.time_parts(options, *bench.agent_of(options), whole_ms=14.0, say=print)
    assert list(parts.values()) == [1.0, 4.0, 1.5, 3.5, 4.0]


@pytest.mark.slow
def test_a_rung_drops_what_it_does_not_train(options):
    trial, operations = bench.Trial(options, *bench.agent_of(options)), []
    for trained in ((), ("model",), None):
        lowered = jax.jit(bench.make_rung(trial, trained)).lower(trial.state, trial.memory)
        compiled = lowered.compile(FAST_TO_COMPILE)
        operations.append(compiled.cost_analysis()["flops"])
    assert operations[0] < 0.5 * operations[1]
    assert operations[1] < 0.7 * operations[2]


@pytest.mark.slow
def test_the_whole_report(options, tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "time_parts", lambda *_: {"all": 1.0})
    path = tmp_path / "update.json"
    bench.main(replace(options, json=path))
    told = json.loads(path.read_text())
    assert told["preset"] == "tiny"
    assert told["whole_ms"] > 0
    assert told["updates_per_s"] == pytest.approx(1000 / told["whole_ms"])
    assert told["tflops"] == pytest.approx(told["tflop"] * told["updates_per_s"])
    assert told["compile_s"] > told["compile_cached_s"]
    assert told["parts_ms"] == {"all": 1.0}
    assert min(told[name] for name in ("act_ms", "optimisers_ms", "peak_memory_mb")) > 0


def test_the_table_names_every_part():
    report = bench.Report(
        device="a chip",
        jax="1",
        preset="paper",
        obs="64x64 pixels",
        precision="bfloat16",
        whole_ms=10.0,
        step_us=4.0,
        updates_per_s=100.0,
        compile_s=20.0,
        compile_cached_s=2.0,
        tflop=3.8,
        tflops=380.0,
        product_tflops=760.0,
        peak_memory_mb=1000.0,
        parts_ms={"world model": 4.0},
        optimisers_ms=0.1,
        act_ms=1.2,
        devices_ms={1: 10.0, 4: 2.5},
    )
    console = Console(width=120, record=True)
    console.print(bench.show(report))
    text = console.export_text()
    parts = "10.00 ms", "4.00 us", "world model", "4.00 ms", "2.50 ms (4.00 x)"
    for expected in (*parts, "380 of 760", "50%", "16 environments", "1.20 ms"):
        assert expected in text


def test_what_is_timed_follows_the_options():
    config, spaces = bench.agent_of(bench.UpdateBench())
    assert (spaces.image, spaces.proprio, config.batch) == (64, None, configs.paper.batch)
    chosen = bench.UpdateBench(preset="tiny", precision="bfloat16", gradient="stopped")
    config, spaces = bench.agent_of(chosen)
    assert (spaces.image, config.precision, config.intrinsic.gradient) == (32, "bfloat16", "stopped")
