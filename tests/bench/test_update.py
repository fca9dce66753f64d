"""The benchmarks of an update time, count and report what they say."""

import json
import runpy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from plan2explore import config as configs
from plan2explore.bench import update as bench
from plan2explore.bench.update import STEPS, Trial, UpdateCommand
from plan2explore.config import ActorCriticConfig, IntrinsicConfig, ModelConfig

PARTS = SimpleNamespace(**runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "update_parts.py")))
SMALLEST = replace(
    configs.tiny,
    model=ModelConfig(deter=4, stoch=2, hidden=4, proprio_width=4, proprio_depth=1, reward_width=4, unroll=1),
    intrinsic=IntrinsicConfig(width=4, depth=1, members=2),
    actor_critic=ActorCriticConfig(horizon=2, actor_width=4, actor_depth=1, critic_width=4, critic_depth=1, unroll=1),
    batch=2,
    length=3,
)


@pytest.fixture
def options(monkeypatch):
    monkeypatch.setitem(configs.PRESETS, "tiny", SMALLEST)
    return UpdateCommand(preset="tiny", obs="proprio", count=2, repeats=1)


def test_products_and_convolutions_are_counted_through_loops_and_calls():
    def function(x, images, kernel):
        step = jax.jit(lambda y, _: (y @ x, None))
        product = jax.lax.scan(step, x, None, length=3)[0]
        layout = ("NHWC", "HWIO", "NHWC")
        return product, jax.lax.conv_general_dilated(images, kernel, (2, 2), "VALID", dimension_numbers=layout)

    counted = PARTS.count_flop(function, jnp.ones((5, 5)), jnp.ones((2, 8, 8, 3)), jnp.ones((4, 4, 3, 7)))
    assert counted == 3 * 2 * 5**3 + 2 * (2 * 3 * 3 * 7) * (4 * 4 * 3)


def test_batched_products_are_counted():
    counted = PARTS.count_flop(lambda x, y: jnp.einsum("bij,bjk->bik", x, y), jnp.ones((2, 3, 4)), jnp.ones((2, 4, 5)))
    assert counted == 2 * 2 * 3 * 4 * 5


def test_replay_is_full_of_noise(options):
    trial = Trial(*options.agent(), options.count)
    batches = trial.replay.sample(jax.random.key(0), 2)
    assert trial.replay.steps == STEPS and trial.replay.episodes == 20
    assert all(np.std(batches[name]) > 0 for name in ("proprio", "action", "reward"))


def test_every_run_is_timed(monkeypatch):
    clock = iter([0.0, 3.0, 10.0, 11.0, 20.0, 22.0])
    monkeypatch.setattr(bench.time, "perf_counter", lambda: next(clock))
    assert bench.times_ms(lambda: None, 3) == [3000.0, 1000.0, 2000.0]


def test_an_update_is_the_shortest_and_its_compilation_what_the_first_took_more(monkeypatch):
    trial = SimpleNamespace(count=2, block=None)
    monkeypatch.setattr(bench, "times_ms", lambda run, repeats: [5004.0, 6.0, 4.0])
    assert Trial.measure(trial, 2) == (2.0, 5.0)


@pytest.mark.slow
def test_a_rung_drops_what_it_does_not_train(options):
    trial, operations = Trial(*options.agent(), options.count), []
    for trained in (("model",), None):
        lowered = jax.jit(PARTS.make_rung(trial, trained)).lower(trial.state, trial.replay.batches(options.count))
        operations.append(lowered.compile().cost_analysis()["flops"])
    assert operations[0] < 0.7 * operations[1]


@pytest.mark.slow
def test_the_whole_report(options, tmp_path, capsys):
    path = tmp_path / "update.json"
    assert replace(options, json=path).run() == 0
    told = json.loads(path.read_text())
    assert (told["preset"], told["obs"], told["precision"]) == ("tiny", "proprio", "float32")
    assert told["updates_per_s"] == pytest.approx(1000 / told["whole_ms"])
    assert told["step_us"] == pytest.approx(1000 * told["whole_ms"] / 6)
    assert min(told[name] for name in bench.ROWS) > 0 and told["devices_ms"] == {}
    printed = capsys.readouterr().out
    assert all(text in printed for text in bench.ROWS.values())


def test_what_is_timed_follows_the_options():
    config, spaces = UpdateCommand().agent()
    assert (spaces.image, spaces.proprio, config.batch) == (64, None, configs.paper.batch)
    config, spaces = UpdateCommand(preset="tiny", precision="bfloat16", gradient="stopped").agent()
    assert (spaces.image, config.precision, config.intrinsic.gradient) == (32, "bfloat16", "stopped")
