"""Parts: networks in rows, and each row's own Adam."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from plan2explore.agent.networks import MLP
from plan2explore.agent.parts import Adam, Layout, init_part, train_part

ADAM = Adam(rate=1e-2, clip=1.0, epsilon=1e-4)


@pytest.fixture(scope="module")
def layout():
    return Layout(lambda key: MLP(3, 2, 4, 1, key=key))


def test_a_network_survives_the_way_into_a_row_and_back(layout):
    network = MLP(3, 2, 4, 1, key=jax.random.key(1))
    again = layout.read(layout.write(network))
    assert eqx.tree_equal(network, again)
    assert layout.size == 3 * 4 + 4 + 4 * 2 + 2


def test_rows_start_different(layout):
    rows = layout.init(jax.random.key(0), 3)
    assert rows.shape == (3, layout.size) and rows.dtype == jnp.float32
    assert not np.allclose(rows[0], rows[1]) and not np.allclose(rows[1], rows[2])


def test_the_gradient_of_a_row_is_the_gradient_of_its_network(layout):
    network, x = MLP(3, 2, 4, 1, key=jax.random.key(1)), jnp.ones((5, 3))
    by_row = jax.grad(lambda row: layout.read(row)(x).sum())(layout.write(network))
    by_network = layout.write(eqx.filter_grad(lambda network: network(x).sum())(network))
    np.testing.assert_allclose(by_row, by_network, rtol=1e-6)


def test_adam_is_adam_with_a_clip():
    rng = np.random.default_rng(0)
    start = jnp.asarray(rng.normal(size=(1, 7)), jnp.float32)
    part, reference = init_part(start), start[0]
    optimiser = optax.chain(optax.clip_by_global_norm(ADAM.clip), optax.adam(ADAM.rate, eps=ADAM.epsilon))
    memory = optimiser.init(reference)
    for scale in (0.1, 10.0, 1.0, 0.0, 3.0):
        gradient = jnp.asarray(scale * rng.normal(size=(1, 7)), jnp.float32)
        part, norm, finite = train_part(part, gradient, jnp.zeros(1), ADAM)
        steps, memory = optimiser.update(gradient[0], memory)
        reference = reference + steps
        assert finite.all()
        np.testing.assert_allclose(norm[0], np.linalg.norm(gradient), rtol=1e-6)
        np.testing.assert_allclose(part.rows[0], reference, rtol=1e-5, atol=1e-7)


def test_each_row_is_clipped_on_its_own():
    gradient = jnp.asarray([[100.0, 0.0], [0.0, 0.5]])
    together, _, _ = train_part(init_part(jnp.zeros((2, 2))), gradient, jnp.zeros(2), ADAM)
    alone, _, _ = train_part(init_part(jnp.zeros((1, 2))), gradient[1:], jnp.zeros(1), ADAM)
    np.testing.assert_array_equal(together.rows[1:], alone.rows)
    momentum, momentum_alone = (optax.tree_utils.tree_get(part.memory, "mu") for part in (together, alone))
    np.testing.assert_array_equal(momentum[1:], momentum_alone)
    np.testing.assert_allclose(momentum[0], [0.1, 0], rtol=1e-6)  # clipped to norm 1


@pytest.mark.parametrize("where", ["gradient", "loss"])
@pytest.mark.parametrize("value", [jnp.nan, jnp.inf])
def test_a_row_that_is_not_finite_keeps_all_it_had(where, value):
    gradient, loss = jnp.ones((2, 3)), jnp.zeros(2)
    part, _, _ = train_part(init_part(jnp.ones((2, 3))), gradient, loss, ADAM)
    if where == "gradient":
        gradient = gradient.at[0, 1].set(value)
    else:
        loss = loss.at[0].set(value)
    after, _, finite = train_part(part, gradient, loss, ADAM)
    assert finite.tolist() == [False, True]
    for old, new in zip(jax.tree.leaves(part), jax.tree.leaves(after), strict=True):
        np.testing.assert_array_equal(old[0], new[0])
        assert not np.array_equal(old[1], new[1])
