"""Heads: numbers that bfloat16 could not tell apart, two-hot targets, and what untrained heads say."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from handmade import MODERN, PAPER, change
from scipy import special

from plan2explore.agent.agent import Agent
from plan2explore.agent.heads import BINS, ScalarHead, two_hot, two_hot_bins
from plan2explore.config import AgentConfig, Spaces

NUMBERS = np.array([-3e7, -2701.3, -1.0, -0.013, 0.0, 1e-6, 0.5, 2.0, 199.9, 2701.3, 1e8], np.float32)


def critics(config: AgentConfig) -> ScalarHead:
    """The critics as an update gets them: their parameters in the precision of computation."""
    agent = Agent(config, Spaces(action=2, image=None, proprio=3))
    layout = agent.layouts["critic"]
    return layout.unflatten(layout.init(jax.random.key(0)), agent.dtype)


def test_in_bfloat16_a_critic_tells_values_near_2700_apart():
    config = change(PAPER, precision="bfloat16")
    critic = jax.tree.map(lambda leaf: leaf[0], critics(config))
    assert {layer.weight.dtype.name for layer in critic.mlp.layers[:-1]} == {"bfloat16"}
    assert critic.mlp.layers[-1].weight.dtype == jnp.float32
    features = jnp.ones(config.model.deter + config.model.stoch, jnp.bfloat16)
    for value in (2700.0, 2700.5, 2701.25, 2709.75):
        last = critic.mlp.layers[-1]
        hidden = critic.mlp.hidden(features).astype(jnp.float32)
        told = eqx.tree_at(lambda layer: layer.bias, last, last.bias + value - hidden @ last.weight)
        predicted = eqx.tree_at(lambda head: head.mlp.layers[-1], critic, told)(features)
        assert predicted.dtype == jnp.float32 and float(predicted) == pytest.approx(value, abs=0.01)
    assert float(jnp.bfloat16(2700.0)) - 2700 != 0, "bfloat16 itself cannot"


def test_in_bfloat16_a_two_hot_head_tells_values_near_2700_apart():
    critic = jax.tree.map(lambda leaf: leaf[0], critics(change(MODERN, precision="bfloat16")))
    for value in (2700.0, 2700.5, 2709.75):
        assert float(critic.mean(jnp.log(two_hot(jnp.float32(value)) + 1e-30))) == pytest.approx(value, abs=0.2)


def test_the_mean_of_a_numbers_two_bins_is_the_number():
    weights = np.asarray(two_hot(jnp.asarray(NUMBERS)), np.float64)
    np.testing.assert_allclose(weights @ two_hot_bins(), NUMBERS, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-6)
    assert np.all(weights >= 0) and all(np.ptp(np.flatnonzero(row)) <= 1 for row in weights), "two neighbours"


def test_bins_are_symmetric_and_numbers_beyond_them_are_the_last_one():
    bins = two_hot_bins()
    assert bins.shape == (BINS,) and bins[BINS // 2] == 0 and np.all(np.diff(bins) > 0)
    np.testing.assert_array_equal(bins, -bins[::-1])
    np.testing.assert_allclose(two_hot(jnp.asarray(NUMBERS)), two_hot(-jnp.asarray(NUMBERS))[:, ::-1], atol=1e-5)
    beyond = np.asarray(two_hot(jnp.array([-1e20, 1e20])))
    assert beyond[0, 0] == 1 and beyond[1, -1] == 1


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_untrained_two_hot_heads_predict_exactly_0(precision):
    heads = critics(change(MODERN, precision=precision))
    features = np.random.default_rng(0).normal(0, 10, (100, MODERN.model.deter + 12))
    values = jax.vmap(lambda head: head(jnp.asarray(features, heads.mlp.layers[0].weight.dtype)))(heads)
    assert values.shape == (2, 100) and np.all(np.asarray(values) == 0)


@pytest.mark.parametrize("kind", ["mse", "two_hot"])
@pytest.mark.parametrize("target", [1e12, -1e30, 3e38])
def test_a_two_hot_heads_gradient_stays_finite_and_small_at_huge_targets(kind, target):
    head = ScalarHead(3, 8, 1, jax.random.key(0), kind)
    grads = jax.grad(lambda head: head.loss(head.mlp(jnp.ones(3)), jnp.float32(target)))(head)
    largest = max(np.abs(leaf).max() for leaf in jax.tree.leaves(grads))
    if kind == "two_hot":
        assert largest < 10
    else:
        assert largest > 1e9 * 0.1, "a mean squared error's gradient is as large as its target"


def test_losses_are_half_the_squared_error_and_the_cross_entropy():
    output = np.random.default_rng(1).normal(size=(len(NUMBERS), BINS)).astype(np.float32)
    head = ScalarHead(3, 8, 1, jax.random.key(0), "two_hot")
    expected = -(np.asarray(two_hot(jnp.asarray(NUMBERS))) * special.log_softmax(output, -1)).sum(-1)
    np.testing.assert_allclose(head.loss(output, NUMBERS), expected, rtol=1e-4)
    np.testing.assert_allclose(head.mean(output), special.softmax(output.astype(float), -1) @ two_hot_bins(), rtol=1e-3)
    squared = ScalarHead(3, 8, 1, jax.random.key(0), "mse")
    np.testing.assert_allclose(squared.loss(output[:, :1], NUMBERS[:1]), 0.5 * (output[:, 0] - NUMBERS[0]) ** 2, rtol=1e-5)


def test_a_continue_heads_loss_is_the_outcomes_negative_log_likelihood():
    head = ScalarHead(3, 8, 1, jax.random.key(0), "bernoulli")
    features = np.random.default_rng(2).normal(0, 5, (20, 3)).astype(np.float32)
    probability, logit = np.asarray(head(features), np.float64), head.mlp(features)
    np.testing.assert_allclose(head.loss(logit, jnp.ones(20)), -np.log(probability), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(head.loss(logit, jnp.zeros(20)), -np.log1p(-probability), rtol=1e-3, atol=1e-5)
    sure = jax.grad(lambda head: head.loss(head.mlp(1e4 * features), jnp.zeros(20)).sum())(head)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(sure))
