"""Stochastic states against numpy: divergences, samples, gradients, and symlog there and back."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from handmade import MODERN, PAPER
from scipy import integrate, special, stats

from plan2explore.agent.heads import symlog
from plan2explore.agent.latents import CategoricalLatent, GaussianLatent, Normal, one_hot_sample, unimix_log_probs
from plan2explore.agent.world_model import WorldModel
from plan2explore.config import Spaces

LATENT = CategoricalLatent(groups=3, classes=5, unimix=0.01)
GAUSSIAN = GaussianLatent(size=2, min_std=0.1)


def outputs(*shape: int, seed: int = 0, scale: float = 3.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, scale, shape).astype(np.float32)


def mixed(logits: np.ndarray, unimix: float) -> np.ndarray:
    return (1 - unimix) * special.softmax(logits.astype(np.float64), -1) + unimix / logits.shape[-1]


def test_categorical_probabilities_are_a_softmax_mixed_with_the_uniform_one():
    output = outputs(4, 15)
    expected = mixed(output.reshape(4, 3, 5), 0.01)
    np.testing.assert_allclose(np.exp(LATENT.dist(output)), expected, rtol=1e-5)


def test_no_class_is_less_likely_than_its_share_of_the_uniform_distribution():
    probs = np.exp(LATENT.dist(outputs(1000, 15, scale=100.0)))
    assert probs.min() == pytest.approx(0.01 / 5, rel=1e-4)
    np.testing.assert_allclose(probs.sum(-1), 1, rtol=1e-5)


def test_without_unimix_the_unlikeliest_classes_still_have_finite_logarithms_and_gradients():
    logits = jnp.array([0.0, -200.0, 300.0])
    np.testing.assert_allclose(unimix_log_probs(logits, 0.0), [-300, -500, 0], atol=1e-3)
    latent = CategoricalLatent(groups=1, classes=3, unimix=0.0)
    grads = jax.grad(lambda out: latent.kl(latent.dist(out), latent.dist(-out)))(logits)
    assert np.all(np.isfinite(grads))


def test_categorical_divergence_is_that_of_scipy_summed_over_groups():
    p, q = outputs(7, 15, seed=1), outputs(7, 15, seed=2)
    expected = special.rel_entr(*(mixed(each.reshape(7, 3, 5), 0.01) for each in (p, q))).sum((-2, -1))
    np.testing.assert_allclose(LATENT.kl(LATENT.dist(p), LATENT.dist(q)), expected, rtol=1e-4)
    np.testing.assert_allclose(LATENT.kl(LATENT.dist(p), LATENT.dist(p)), 0, atol=1e-6)


def test_gaussian_divergence_against_numerical_integration():
    p, q = (GAUSSIAN.dist(outputs(5, 4, seed=seed, scale=1.0)) for seed in (3, 4))
    one, other = (stats.norm(np.float64(each.mean), np.float64(each.std)) for each in (p, q))
    x = np.linspace(one.mean() - 12 * one.std(), one.mean() + 12 * one.std(), 4001)
    expected = integrate.simpson(one.pdf(x) * (one.logpdf(x) - other.logpdf(x)), x=x, axis=0).sum(-1)
    np.testing.assert_allclose(GAUSSIAN.kl(p, q), expected, rtol=1e-4)
    np.testing.assert_array_equal(GAUSSIAN.kl(p, p), 0)


def test_gaussian_samples_have_the_distributions_moments_and_their_deviation_has_a_floor():
    normal = Normal(jnp.array([1.0, -2.0]), jnp.array([0.5, 3.0]))
    samples = GAUSSIAN.sample(normal, GAUSSIAN.noise(jax.random.key(0), 20_000))
    np.testing.assert_allclose(samples.mean(0), normal.mean, atol=0.1)
    np.testing.assert_allclose(samples.std(0), normal.std, rtol=0.03)
    assert GAUSSIAN.dist(jnp.full(4, -100.0)).std.min() >= 0.1


def test_categorical_samples_are_exactly_one_hot_and_as_frequent_as_they_are_likely():
    count = 40_000
    output = np.broadcast_to(outputs(15, scale=1.0), (count, 15))
    dist = LATENT.dist(output)
    drawn = np.asarray(LATENT.sample(dist, LATENT.noise(jax.random.key(0), count))).reshape(count, 3, 5)
    assert set(np.unique(drawn)) == {0.0, 1.0} and np.all(drawn.sum(-1) == 1)
    probs = np.exp(dist[0])
    np.testing.assert_allclose(drawn.mean(0), probs, atol=5 * np.sqrt(0.25 / count))


def test_uniform_noise_stands_for_the_class_whose_stretch_of_the_cumulated_probabilities_it_falls_into():
    latent = CategoricalLatent(groups=1, classes=3, unimix=0.0)
    dist = latent.dist(jnp.log(jnp.array([0.2, 0.5, 0.3])))
    for noise, expected in ((0.0, 0), (0.19, 0), (0.21, 1), (0.69, 1), (0.71, 2), (0.9999999, 2)):
        assert int(latent.sample(dist, jnp.array([noise])).argmax()) == expected, noise


def test_a_class_of_probability_0_is_not_drawn_by_noise_of_0():
    latent = CategoricalLatent(groups=1, classes=3, unimix=0.0)
    dist = latent.dist(jnp.array([-200.0, 0.0, 0.0]))
    assert int(latent.sample(dist, jnp.array([0.0])).argmax()) == 1


def test_the_largest_noise_draws_the_last_class():
    """Probabilities may add up to a little less than 1."""
    drawn = one_hot_sample(jnp.log(jnp.array([0.5, 0.4999])), jnp.float32(1.0))
    np.testing.assert_allclose(drawn, [0, 1], atol=1e-6)


def test_the_gradient_of_a_categorical_sample_is_that_of_its_probabilities():
    output, weights = outputs(2, 15), outputs(2, 15, seed=6)
    noise = LATENT.noise(jax.random.key(1), 2)
    through = jax.grad(lambda out: (weights * LATENT.sample(LATENT.dist(out), noise)).sum())(output)
    probs = jax.grad(lambda out: (weights * jnp.exp(LATENT.dist(out)).reshape(2, 15)).sum())(output)
    np.testing.assert_allclose(through, probs, rtol=1e-5, atol=1e-7)
    assert np.abs(through).max() > 0.01


def test_modes_are_the_likeliest_states():
    output = outputs(6, 15)
    mode = np.asarray(LATENT.mode(LATENT.dist(output))).reshape(6, 3, 5)
    np.testing.assert_array_equal(mode.argmax(-1), output.reshape(6, 3, 5).argmax(-1))
    np.testing.assert_array_equal(GAUSSIAN.mode(GAUSSIAN.dist(output[:, :4])), output[:, :2])


VECTOR = np.array([-1e6, -3.0, -1e-3, 0.0, 0.5, 2e4], np.float32)


@pytest.mark.parametrize(("config", "expected"), [(MODERN, np.sign(VECTOR) * np.log1p(np.abs(VECTOR))), (PAPER, VECTOR)])
def test_vectors_are_decoded_on_the_scale_of_the_environment(config, expected):
    model = WorldModel(config.model, Spaces(action=1, image=None, proprio=6), jax.random.key(0))
    np.testing.assert_allclose(model.transform(VECTOR), expected, rtol=1e-6)
    # A decoder that predicts the transformed vector exactly decodes to the vector itself, and its loss is 0.
    last = model.proprio_decoder.layers[-1]
    told = eqx.tree_at(lambda net: (net.weight, net.bias), last, (0 * last.weight, jnp.asarray(expected)))
    model = eqx.tree_at(lambda model: model.proprio_decoder.layers[-1], model, told)
    features = jnp.ones(config.model.deter + model.rssm.latent.size)
    np.testing.assert_allclose(model.decode(features).proprio, VECTOR, rtol=1e-5)


def test_symlog_is_linear_around_zero_and_odd():
    np.testing.assert_allclose(symlog(VECTOR), -np.asarray(symlog(-VECTOR)))
    assert float(symlog(jnp.float32(1e-4))) == pytest.approx(1e-4, rel=1e-3)
