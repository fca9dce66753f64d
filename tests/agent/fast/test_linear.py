"""The forms for GPUs compute what the plain ones do, values and gradients."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from handmade import MODERN, PAPER
from jax import lax
from optax.tree_utils import tree_get

from plan2explore.agent.actor_critic import init_stats
from plan2explore.agent.agent import Agent
from plan2explore.agent.fast import linear
from plan2explore.agent.fast.linear import affine, deferred_weight_grads, with_padded_rows
from plan2explore.agent.learner import Learner, behavior_gradients, intrinsic_gradients, model_gradients, open_batch
from plan2explore.config import Spaces, modern_tiny, tiny


def close(one, other):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), one, other)


def in_both_forms(monkeypatch, compute):
    """What is computed in the form for GPUs, and in the other."""
    found = []
    for gpu in (True, False):
        monkeypatch.setattr(linear, "on_gpu", lambda gpu=gpu: gpu)
        found.append(compute())
    return found


@pytest.mark.parametrize("shape", [(5, 7), (3, 4, 8), (2, 6, 13), (2, 3, 4, 10)])
@pytest.mark.parametrize("long", [1, 10_000])
def test_wide_products_are_plain_ones(monkeypatch, shape, long):
    monkeypatch.setattr(linear, "LONG", long)
    keys = jax.random.split(jax.random.key(0), 4)
    x = jax.random.normal(keys[0], shape)
    weight, bias = jax.random.normal(keys[1], (shape[-1], 6)), jax.random.normal(keys[2], (6,))
    pull = jax.random.normal(keys[3], (*shape[:-1], 6))

    def loss(x, weight, bias):
        return (with_padded_rows(lambda rows: affine(rows, weight, bias), x) * pull).sum()

    close(*in_both_forms(monkeypatch, lambda: jax.value_and_grad(loss, argnums=(0, 1, 2))(x, weight, bias)))


def test_wide_products_work_under_vmap(monkeypatch):
    x, weight = jnp.arange(24.0).reshape(2, 3, 4), jnp.arange(40.0).reshape(2, 4, 5)
    bias = jnp.arange(10.0).reshape(2, 5)

    def loss(x, weight, bias):
        return (with_padded_rows(lambda rows: affine(rows, weight, bias), x) ** 2).sum()

    close(*in_both_forms(monkeypatch, lambda: jax.vmap(jax.grad(loss, argnums=(0, 1, 2)))(x, weight, bias)))


def test_deferred_weight_gradients_are_the_plain_gradients_of_a_loop():
    steps, batch, size = 6, 3, 4
    keys = jax.random.split(jax.random.key(1), 3)
    weights = tuple(0.5 * jax.random.normal(key, (size, size)) for key in keys[:2])
    bias = jax.random.normal(keys[2], (size,))

    def loop(weights, added):
        def step(state, now):
            first = jnp.tanh(state @ weights[0] + now[0])
            after = jnp.tanh(first @ weights[1] + now[1])
            return after, (after, (state, first))

        return lax.scan(step, jnp.ones((batch, size)), added)[1]

    def loss(run, weights, bias):
        spread = jnp.broadcast_to(bias, (steps, batch, size))
        return (run(weights, (spread, 2 * spread)) ** 2).sum()

    apart = jax.value_and_grad(lambda *a: loss(lambda w, b: deferred_weight_grads(loop, w, b), *a), argnums=(0, 1))
    plain = jax.value_and_grad(lambda *a: loss(lambda w, b: loop(w, b)[0], *a), argnums=(0, 1))
    close(apart(weights, bias), plain(weights, bias))


def random_batch(spaces: Spaces, shape: tuple[int, int]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    sizes = {"action": spaces.action, "proprio": spaces.proprio, "reward": spaces.tasks}
    batch = {name: rng.uniform(-1, 1, (*shape, size)).astype(np.float32) for name, size in sizes.items()}
    return batch | {name: rng.random(shape) < 0.1 for name in ("is_first", "is_terminal")}


@pytest.mark.parametrize("config", [PAPER, MODERN], ids=["paper", "modern"])
def test_an_updates_gradients_are_the_same_in_both_forms(monkeypatch, state_of, config):
    """With every product in the form for GPUs, and rows that must be padded, against the plain form."""
    spaces = Spaces(action=3, image=None, proprio=9, tasks=1, terminates=True)
    batch = random_batch(spaces, (5, 7))

    def gradients():
        """After a first update, Adam's mean is a tenth of the clipped gradient."""
        learner = Learner(config, spaces)
        state, _ = learner.update(state_of(learner), batch)
        return {name: np.asarray(tree_get(each.opt_state, "mu")) for name, each in state.networks.items()}

    plain = gradients()
    monkeypatch.setattr(linear, "on_gpu", lambda: True)
    monkeypatch.setattr(linear, "LONG", 32)  # so that sums are taken in parts here too
    wide = gradients()
    for name, rows in plain.items():
        scale = np.abs(rows).max(-1, keepdims=True)
        assert np.all(scale > 0)
        np.testing.assert_allclose(wide[name] / scale, rows / scale, rtol=0, atol=1e-5, err_msg=name)


def test_long_sums_are_taken_in_as_many_parts_as_there_can_be():
    counts = {2500: 1, 37_500: 1, 37_504: 16, 37_560: 15, 8 * 8192: 16, 8 * 8209: 1}
    assert {rows: linear.parts_of(rows) for rows in counts} == counts


@pytest.mark.parametrize(("rows", "full"), [(2500, 2504), (37_500, 37_504), (37_560, 37_560), (8 * 8209, 65_792)])
def test_rows_are_filled_up_as_far_as_needed(monkeypatch, rows, full):
    monkeypatch.setattr(linear, "on_gpu", lambda: True)
    seen = []
    with_padded_rows(lambda flat: seen.append(flat.shape[0]) or flat, jnp.zeros((rows, 1)))
    assert seen == [full]


@pytest.mark.parametrize("form", ["plain", "wide"])
@pytest.mark.parametrize("config", [tiny, modern_tiny], ids=["tiny", "modern-tiny"])
def test_no_long_sum_in_an_update_is_taken_in_bfloat16(monkeypatch, form, config):
    """Every sum over the batch, wherever it comes from, is one of float32."""
    monkeypatch.setattr(linear, "on_gpu", lambda: form == "wide")
    spaces = Spaces(action=2, image=16, proprio=3, tasks=1, terminates=True)
    agent, shape = Agent(replace(config, precision="bfloat16"), spaces), (tiny.batch, tiny.length)
    batch = random_batch(spaces, shape) | {"image": np.zeros((*shape, 16, 16, 3), np.uint8)}

    def gradients(params, batch, key):
        nets, sequences, stats = agent.networks(params), open_batch(agent, batch), init_stats(len(agent.behaviors))
        model, experience = model_gradients(agent, nets, sequences, key)
        intrinsic, alive = intrinsic_gradients(agent, nets, experience, key), ~sequences.is_terminal
        behavior, _ = behavior_gradients(agent, nets, nets.critic, experience.states, alive, stats, jnp.zeros((), int), key)
        return model.grads, intrinsic.grads, behavior.grads

    params = {name: each.params for name, each in jax.eval_shape(agent.init, jax.random.key(0)).items()}
    equations = list(all_equations(jax.make_jaxpr(gradients)(params, batch, jax.random.key(0)).jaxpr))
    sums = [(each.invars[0].aval, each.outvars[0].aval) for each in equations if each.primitive.name == "reduce_sum"]
    assert sums
    # Sixteen copies of a bias that serves the pixels of a block may well be added up.
    assert [(x, y) for x, y in sums if x.dtype == jnp.bfloat16 and x.size > 16 * y.size] == []


def all_equations(jaxpr):
    """Those of a program and of all programs inside it."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda leaf: hasattr(leaf, "eqns")):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                yield from all_equations(inner)
