"""The optimiser: networks as rows of parameters, and each row's own Adam."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from plan2explore.agent.networks import MLP
from plan2explore.agent.optimizer import Adam, Layout, apply_gradients, init_train_state

ADAM = Adam(learning_rate=1e-2, clip=1.0, epsilon=1e-4)
START = jnp.zeros((), jnp.int32)


def mlp(key):
    return MLP(3, 2, 4, 1, key=key)


def test_a_network_survives_the_way_into_a_row_and_back():
    layout, network = Layout(mlp), mlp(jax.random.key(1))
    assert eqx.tree_equal(network, layout.unflatten(layout.flatten(network), jnp.float32))
    assert layout.size == 3 * 4 + 4 + 4 * 2 + 2


def test_stacked_networks_survive_the_way_into_rows_and_back():
    layout = Layout(mlp, rows=3, stacked=True)
    networks = jax.vmap(mlp)(jax.random.split(jax.random.key(1), 3))
    rows = layout.flatten(networks)
    assert rows.shape == (3, layout.size)
    assert eqx.tree_equal(networks, layout.unflatten(rows, jnp.float32))
    one = jax.tree.map(lambda leaf: leaf[1], networks)
    assert eqx.tree_equal(one, layout.network(rows[1], jnp.float32))


def test_rows_start_different():
    layout = Layout(mlp, rows=3, stacked=True)
    rows = layout.init(jax.random.key(0))
    assert rows.shape == (3, layout.size) and rows.dtype == jnp.float32
    assert not np.allclose(rows[0], rows[1]) and not np.allclose(rows[1], rows[2])


def test_only_last_layers_of_heads_stay_float32():
    layout = Layout(lambda key: MLP(3, 1, 4, 1, key=key, head=True))
    network = layout.unflatten(layout.init(jax.random.key(0)), jnp.bfloat16)
    assert [layer.weight.dtype for layer in network.layers] == [jnp.bfloat16, jnp.float32]
    assert [layer.bias.dtype for layer in network.layers] == [jnp.bfloat16, jnp.float32]


def test_adam_is_adam_with_a_clip():
    rng = np.random.default_rng(0)
    start = jnp.asarray(rng.normal(size=(1, 7)), jnp.float32)
    state, reference = init_train_state(start), start[0]
    optimiser = optax.chain(optax.clip_by_global_norm(ADAM.clip), optax.adam(ADAM.learning_rate, eps=ADAM.epsilon))
    opt_state = optimiser.init(reference)
    for scale in (0.1, 10.0, 1.0, 0.0, 3.0):
        gradient = jnp.asarray(scale * rng.normal(size=(1, 7)), jnp.float32)
        state, norm, finite = apply_gradients(state, gradient, jnp.zeros(1), START, ADAM)
        steps, opt_state = optimiser.update(gradient[0], opt_state)
        reference = reference + steps
        assert finite.all()
        np.testing.assert_allclose(norm[0], np.linalg.norm(gradient), rtol=1e-6)
        np.testing.assert_allclose(state.params[0], reference, rtol=1e-5, atol=1e-7)


def test_each_row_is_clipped_on_its_own():
    gradient = jnp.asarray([[100.0, 0.0], [0.0, 0.5]])
    together, _, _ = apply_gradients(init_train_state(jnp.zeros((2, 2))), gradient, jnp.zeros(2), START, ADAM)
    alone, _, _ = apply_gradients(init_train_state(jnp.zeros((1, 2))), gradient[1:], jnp.zeros(1), START, ADAM)
    np.testing.assert_array_equal(together.params[1:], alone.params)
    momentum, momentum_alone = (optax.tree_utils.tree_get(state.opt_state, "mu") for state in (together, alone))
    np.testing.assert_array_equal(momentum[1:], momentum_alone)
    np.testing.assert_allclose(momentum[0], [0.1, 0], rtol=1e-6)  # clipped to norm 1


@pytest.mark.parametrize("where", ["gradient", "loss"])
@pytest.mark.parametrize("value", [jnp.nan, jnp.inf])
def test_a_row_that_is_not_finite_keeps_all_it_had(where, value):
    gradient, loss = jnp.ones((2, 3)), jnp.zeros(2)
    state, _, _ = apply_gradients(init_train_state(jnp.ones((2, 3))), gradient, loss, START, ADAM)
    if where == "gradient":
        gradient = gradient.at[0, 1].set(value)
    else:
        loss = loss.at[0].set(value)
    after, _, finite = apply_gradients(state, gradient, loss, START, ADAM)
    assert finite.tolist() == [False, True]
    for old, new in zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True):
        np.testing.assert_array_equal(old[0], new[0])
        assert not np.array_equal(old[1], new[1])


def test_learning_rates_rise_over_the_warm_up():
    gradient, steps = jnp.ones((1, 2)), []
    for update in (0, 1, 3, 9):
        adam = ADAM._replace(warmup=4)
        state, _, _ = apply_gradients(init_train_state(jnp.zeros((1, 2))), gradient, jnp.zeros(1), jnp.int32(update), adam)
        steps.append(-float(state.params[0, 0]))
    np.testing.assert_allclose(np.divide(steps, steps[-1]), [0.25, 0.5, 1, 1], rtol=1e-6)
