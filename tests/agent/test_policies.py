"""Policies: samples, modes, densities and entropies against SciPy and numerical differentiation."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, stats

from plan2explore.agent.policies import OneHotPolicy, TanhNormal, TanhPolicy, make_policy, tanh_normal_mode
from plan2explore.config import ActorCriticConfig, Spaces, modern

PAPER = make_policy(ActorCriticConfig(), Spaces(action=2))
BOUNDED = make_policy(modern.actor_critic, Spaces(action=2))
DISCRETE = OneHotPolicy((3, 2), unimix=0.03)


def random(*shape, seed=0):
    return jax.random.normal(jax.random.key(seed), shape)


def test_the_action_space_chooses_the_policy():
    assert isinstance(PAPER, TanhPolicy) and PAPER.outputs == 4
    made = make_policy(ActorCriticConfig(unimix=0.03), Spaces(action=5, discrete=(3, 2)))
    assert made == DISCRETE and made.actions == made.outputs == 5


def test_the_papers_actor_starts_wide_and_keeps_its_bounds():
    start = PAPER.dist(jnp.zeros(4))
    np.testing.assert_allclose([start.mean[0], start.std[0]], [0, 5 + 1e-4], rtol=1e-6)
    actor = PAPER.dist(jnp.array([1.7, 400.0, -0.3, -400.0]))
    np.testing.assert_allclose(actor.mean, 5 * np.tanh(np.array([1.7, 400]) / 5), rtol=1e-6)
    first = np.logaddexp(0, -0.3 + np.log(np.exp(5) - 1)) + 1e-4
    np.testing.assert_allclose(actor.std, [first, 1e-4], rtol=1e-5)


def test_a_bounded_actor_starts_where_it_should_and_stays_between_its_bounds():
    start = BOUNDED.dist(jnp.zeros(4))
    np.testing.assert_allclose(start.std, [0.9, 0.9], rtol=1e-5)
    np.testing.assert_allclose(BOUNDED.dist(jnp.array([0.0, 0.0, -400.0, 400.0])).std, [0.1, 1.0], rtol=1e-5)


def test_actor_samples_follow_its_density():
    policy = replace(PAPER, actions=1)
    raw = np.log(np.expm1(0.8 - 1e-4)) - np.log(np.expm1(5.0))
    output = jnp.array([5 * np.arctanh(0.4 / 5), raw], jnp.float32)
    samples = policy.sample(jnp.broadcast_to(output, (5000, 2)), policy.noise(jax.random.key(0), 5000))
    before = np.arctanh(np.asarray(samples[:, 0], np.float64))
    assert stats.kstest(before, stats.norm(0.4, 0.8).cdf).pvalue > 0.01


@pytest.mark.parametrize("std", [0.05, 0.5, 0.7071, 0.75, 1.5, 5.0])
@pytest.mark.parametrize("mean", [0.0, 0.01, -0.5, 2.0, -4.9])
def test_the_mode_maximises_the_density(mean, std):
    def minus_log_density(u):
        return (u - mean) ** 2 / (2 * std**2) - 2 * (u + np.logaddexp(0, -2 * u))

    grid = np.linspace(-60, 60, 4001)
    start = grid[np.argmin(minus_log_density(grid))]
    bracket = (start - 0.03, start, start + 0.03)
    expected = optimize.minimize_scalar(minus_log_density, bracket=bracket, tol=1e-12).x
    mode = tanh_normal_mode(TanhNormal(jnp.array([mean]), jnp.array([std])))
    if mean == 0:  # both sides are as good
        mode, expected = np.abs(mode), np.abs(expected)
    flat = (mean, std) == (0.0, 0.7071)  # a peak of the fourth order
    np.testing.assert_allclose(mode[0], np.tanh(expected), atol=2e-2 if flat else 1e-4)


def test_a_bounded_actor_is_evaluated_at_the_tanh_of_its_mean():
    output = random(3, 4)
    np.testing.assert_allclose(BOUNDED.mode(output), np.tanh(BOUNDED.dist(output).mean), rtol=1e-5)
    np.testing.assert_array_equal(PAPER.mode(output), tanh_normal_mode(PAPER.dist(output)))


@pytest.mark.parametrize("policy", [PAPER, BOUNDED], ids=["paper", "bounded"])
def test_the_log_densitys_gradient_is_that_of_the_action_that_was_drawn(policy):
    """REINFORCE's score function: the action stays where it was drawn, and its density changes."""
    output, noise = random(4), random(2, seed=1)
    drawn = policy.dist(output).mean + policy.dist(output).std * noise

    def log_density(output):
        dist = policy.dist(output)
        return jax.scipy.stats.norm.logpdf(drawn, dist.mean, dist.std).sum() - jnp.log(1 - jnp.tanh(drawn) ** 2).sum()

    got, expected = jax.grad(lambda output: policy.log_prob(output, noise))(output), jax.grad(log_density)(output)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_the_entropys_estimate_is_that_of_the_squashed_gaussian():
    """In the mean over many samples, up to a Gaussian's constant."""
    policy, output = replace(BOUNDED, actions=1), jnp.array([0.3, -0.5])
    dist = policy.dist(output)
    u = np.linspace(-8, 8, 20_001)
    density = stats.norm(float(dist.mean[0]), float(dist.std[0])).pdf(u)
    slope = np.trapezoid(density * np.log(1 - np.tanh(u) ** 2 + 1e-6), u)
    expected = np.log(float(dist.std[0])) + slope
    found = policy.entropy(jnp.broadcast_to(output, (50_000, 2)), policy.noise(jax.random.key(0), 50_000)).mean()
    np.testing.assert_allclose(found, expected, atol=0.02)


def test_discrete_actions_are_one_hot_with_their_probabilities():
    output = random(5)
    samples = DISCRETE.sample(jnp.broadcast_to(output, (20_000, 5)), DISCRETE.noise(jax.random.key(0), 20_000))
    probs = np.exp(np.concatenate(DISCRETE.log_probs(output)))
    np.testing.assert_allclose(samples.mean(0), probs, atol=0.015)
    np.testing.assert_allclose(samples[:, :3].sum(-1), 1, atol=1e-5)
    assert probs.min() >= 0.01 - 1e-6  # the uniform distribution's share
    mode = DISCRETE.mode(output)
    assert (mode[:3].argmax(), mode[3:].argmax()) == (probs[:3].argmax(), probs[3:].argmax()) and mode.sum() == 2


def test_discrete_log_probabilities_and_entropy_are_those_of_independent_choices():
    output, noise = random(5), jnp.array([0.2, 0.9])
    first, second = (np.exp(group) for group in DISCRETE.log_probs(output))
    drawn = DISCRETE.sample(output, noise)
    expected = np.log(first[drawn[:3].argmax()]) + np.log(second[drawn[3:].argmax()])
    np.testing.assert_allclose(DISCRETE.log_prob(output, noise), expected, rtol=1e-5)
    np.testing.assert_allclose(DISCRETE.entropy(output, noise), stats.entropy(first) + stats.entropy(second), rtol=1e-5)
    np.testing.assert_allclose(DISCRETE.spread(jnp.zeros((1, 5))), 1, rtol=1e-5)


def test_exploration_noise_keeps_actions_valid():
    action = jnp.full((1000, 2), 0.9)
    noisy = PAPER.explore(action, 0.3, jax.random.key(0))
    assert np.abs(noisy).max() <= 1 and np.all(noisy.std(0) > 0.1)
    np.testing.assert_allclose(PAPER.explore(action, 0.0, jax.random.key(0)), action)
    choice = jnp.tile(jnp.array([1.0, 0, 0, 1, 0]), (3000, 1))
    replaced = DISCRETE.explore(choice, 0.3, jax.random.key(0))
    np.testing.assert_allclose(replaced[:, :3].sum(-1), 1, atol=1e-5)
    # Three in ten are replaced, and a sixth of these by the same choices.
    np.testing.assert_allclose(np.any(replaced != choice, -1).mean(), 0.3 * 5 / 6, atol=0.04)


@pytest.mark.parametrize("policy", [PAPER, DISCRETE], ids=["continuous", "discrete"])
def test_uniform_actions_are_uniform(policy):
    drawn = policy.uniform(jax.random.key(0), 6000)
    if policy is PAPER:
        np.testing.assert_allclose(drawn.mean(0), 0, atol=0.04)
        np.testing.assert_allclose(drawn.std(0), 1 / np.sqrt(3), atol=0.02)
    else:
        np.testing.assert_allclose(drawn.mean(0), [1 / 3] * 3 + [1 / 2] * 2, atol=0.03)
