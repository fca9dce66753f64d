"""Heads: the numbers and probabilities that are predicted, and their losses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from plan2explore.agent.heads import BINS, BernoulliHead, ScalarHead, symlog, two_hot, two_hot_bins

KEY = jax.random.key(0)
NUMBERS = np.array([0.0, 0.3, -0.3, 1.0, -7.5, 123.0, -4567.0, 1e6], np.float32)


def test_symlog_is_linear_around_zero_and_odd():
    np.testing.assert_allclose(symlog(jnp.float32(1e-4)), 1e-4, rtol=1e-3)
    np.testing.assert_allclose(symlog(jnp.asarray(NUMBERS)), np.sign(NUMBERS) * np.log1p(np.abs(NUMBERS)), rtol=1e-5)


def test_two_hot_weights_are_two_neighbours_whose_mean_is_the_number():
    weights = np.asarray(two_hot(jnp.asarray(NUMBERS)), np.float64)
    np.testing.assert_allclose(weights @ two_hot_bins(), NUMBERS, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)
    for row in weights:
        (held,) = np.nonzero(row)
        assert len(held) == 1 or held.tolist() == [held[0], held[0] + 1]


def test_numbers_beyond_the_bins_are_the_outermost_bin():
    weights = two_hot(jnp.array([1e12, -1e12]))
    np.testing.assert_allclose(weights[:, [-1, 0]], np.eye(2), atol=1e-6)


def test_a_two_hot_head_starts_at_exactly_zero():
    head = ScalarHead(4, 8, 1, KEY, "two_hot")
    np.testing.assert_array_equal(head(jax.random.normal(KEY, (5, 4))), 0)


@pytest.mark.parametrize("kind", ["mse", "two_hot"])
def test_a_heads_loss_is_least_at_its_target(kind):
    head = ScalarHead(4, 8, 1, KEY, kind)
    target = jnp.asarray(NUMBERS[:5])
    if kind == "mse":
        output = target[:, None]
        np.testing.assert_allclose(head.loss(output + 1, target), 0.5, rtol=1e-5)
        least = 0.0
    else:
        weights = two_hot(target)
        output = jnp.log(weights + 1e-9)
        least = -(weights * jnp.log(weights + 1e-30)).sum(-1)  # its entropy
    np.testing.assert_allclose(head.mean(output), target, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(head.loss(output, target), least, atol=1e-4)
    assert np.all(jnp.abs(jax.grad(lambda output: head.loss(output, target).sum())(output)) < 1e-4)


def test_last_layers_compute_in_float32():
    head = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), ScalarHead(4, 8, 1, KEY, "two_hot"))
    assert head.mlp(jnp.ones((2, 4), jnp.bfloat16)).shape == (2, BINS)
    assert head(jnp.ones((2, 4), jnp.bfloat16)).dtype == jnp.float32


def test_the_continue_heads_loss_is_the_outcomes_negative_log_likelihood():
    head, features = BernoulliHead(4, 8, 1, KEY), jax.random.normal(KEY, (5, 4))
    probability = np.asarray(head(features), np.float64)
    assert np.all((probability > 0) & (probability < 1))
    np.testing.assert_allclose(head.loss(features, jnp.ones(5)), -np.log(probability), rtol=1e-4)
    np.testing.assert_allclose(head.loss(features, jnp.zeros(5)), -np.log(1 - probability), rtol=1e-4)
