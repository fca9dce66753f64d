"""Stochastic states: divergences against numerical integration, samples against their distributions."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import integrate, stats

from plan2explore.agent.latents import CategoricalLatent, GaussianLatent, Normal, normal_kl, one_hot_sample

GAUSSIAN = GaussianLatent(size=2, min_std=0.1)
CATEGORICAL = CategoricalLatent(groups=2, classes=3, unimix=0.03)


def random(*shape, seed=0):
    return jax.random.normal(jax.random.key(seed), shape)


def some_normal(seed, *shape):
    return Normal(random(*shape, seed=seed), jax.nn.softplus(random(*shape, seed=seed + 100)) + 0.1)


def test_kl_against_numerical_integration():
    p, q = some_normal(0, 5, 2), some_normal(1, 5, 2)
    expected = np.zeros((5, 2))
    for index in np.ndindex(5, 2):
        one, other = (stats.norm(float(each.mean[index]), float(each.std[index])) for each in (p, q))
        low, high = one.mean() - 12 * one.std(), one.mean() + 12 * one.std()
        x = np.linspace(low, high, 4001)
        expected[index] = integrate.simpson(one.pdf(x) * (one.logpdf(x) - other.logpdf(x)), x=x)
    np.testing.assert_allclose(normal_kl(p, q), expected.sum(-1), rtol=1e-4)


def test_kl_of_a_distribution_from_itself_is_zero():
    np.testing.assert_array_equal(normal_kl(some_normal(0, 5, 2), some_normal(0, 5, 2)), 0)


def test_gaussian_samples_have_the_distributions_moments():
    normal = Normal(jnp.array([1.0, -2.0]), jnp.array([0.5, 3.0]))
    samples = GAUSSIAN.sample(normal, GAUSSIAN.noise(jax.random.key(0), 20_000))
    np.testing.assert_allclose(samples.mean(0), normal.mean, atol=0.1)
    np.testing.assert_allclose(samples.std(0), normal.std, rtol=0.03)
    np.testing.assert_array_equal(GAUSSIAN.mode(normal), normal.mean)


def test_the_deviation_of_a_gaussian_state_has_a_floor():
    assert GAUSSIAN.dist(jnp.full((1, GAUSSIAN.outputs), -100.0)).std.min() >= 0.1


def test_every_class_has_its_share_of_the_uniform_distribution():
    logits = jnp.array([[100.0, 0.0, 0.0, 0.0, 1.0, 2.0]])
    probs = np.exp(CATEGORICAL.dist(logits).log_probs[0])
    np.testing.assert_allclose(probs[0], [0.97 + 0.01, 0.01, 0.01], rtol=1e-5)
    np.testing.assert_allclose(probs[1], 0.97 * np.exp([0, 1, 2]) / np.exp([0, 1, 2]).sum() + 0.01, rtol=1e-5)


def test_categorical_samples_are_one_hot_with_the_probabilities_of_their_classes():
    dist = CATEGORICAL.dist(random(1, CATEGORICAL.outputs))
    samples = CATEGORICAL.sample(dist, CATEGORICAL.noise(jax.random.key(1), 20_000)).reshape(-1, 2, 3)
    np.testing.assert_allclose(samples.sum(-1), 1, atol=1e-5)
    assert set(np.unique(np.round(samples, 4))) == {0, 1}
    np.testing.assert_allclose(samples.mean(0), np.exp(dist.log_probs[0]), atol=0.015)
    np.testing.assert_array_equal(CATEGORICAL.mode(dist).reshape(2, 3).argmax(-1), dist.log_probs[0].argmax(-1))


def test_a_sample_has_the_gradient_of_its_probabilities():
    """Straight-through: the class that was drawn makes no difference."""
    log_probs, pull = jax.nn.log_softmax(random(4)), random(4, seed=1)
    expected = jax.grad(lambda log_probs: (jnp.exp(log_probs) * pull).sum())(log_probs)
    for noise in (0.01, 0.99):
        drawn = jax.grad(lambda log_probs, noise: (one_hot_sample(log_probs, noise) * pull).sum())
        got = drawn(log_probs, jnp.float32(noise))
        np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_the_largest_noise_draws_the_last_class():
    """Probabilities may add up to a little less than 1."""
    drawn = one_hot_sample(jnp.log(jnp.array([0.5, 0.4999])), jnp.float32(1.0))
    np.testing.assert_allclose(drawn, [0, 1], atol=1e-6)


def test_categorical_divergences_are_summed_over_groups():
    p, q = (CATEGORICAL.dist(random(4, CATEGORICAL.outputs, seed=seed)) for seed in (0, 1))
    expected = stats.entropy(np.exp(p.log_probs), np.exp(q.log_probs), axis=-1).sum(-1)
    np.testing.assert_allclose(CATEGORICAL.kl(p, q), expected, rtol=1e-4)
    np.testing.assert_array_equal(CATEGORICAL.kl(p, p), 0)
