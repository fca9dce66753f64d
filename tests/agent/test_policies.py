"""Policies against numpy and scipy, and bandits whose best arm is known."""

from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from handmade import Fixed
from jax import Array
from scipy import optimize, special, stats

from plan2explore.agent.actor_critic import Noise, Trajectory, actor_loss, init_stats
from plan2explore.agent.latents import Normal
from plan2explore.agent.policies import OneHotPolicy, TanhPolicy, make_policy, tanh_normal_mode
from plan2explore.config import ActorCriticConfig, Spaces

ONE, TWO = OneHotPolicy((4,), unimix=0.01), OneHotPolicy((3, 2), unimix=0.1)
BOUNDED = TanhPolicy(actions=2, mean_scale=3.0, start_std=0.9, min_std=0.1, max_std=1.0)
PAPER = TanhPolicy(actions=2, mean_scale=5.0, start_std=5.0, min_std=1e-4, max_std=None)


def outputs(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, scale, shape).astype(np.float32)


def probabilities(policy: OneHotPolicy, output: np.ndarray) -> list[np.ndarray]:
    groups = np.split(output.astype(np.float64), np.cumsum(policy.choices)[:-1], -1)
    return [(1 - policy.unimix) * special.softmax(group, -1) + policy.unimix / group.shape[-1] for group in groups]


@pytest.mark.parametrize("policy", [ONE, TWO])
def test_discrete_log_probabilities_and_entropies_are_those_of_numpy(policy):
    output = outputs(50, policy.outputs, scale=2.0)
    noise = policy.noise(jax.random.key(0), 50)
    action, probs = np.asarray(policy.sample(output, noise)), probabilities(policy, output)
    chosen = (action * np.concatenate(probs, -1)).reshape(50, -1)
    expected = np.log(np.where(chosen > 0, chosen, 1)).sum(-1)
    np.testing.assert_allclose(policy.log_prob(output, noise), expected, rtol=1e-4)
    np.testing.assert_allclose(policy.entropy(output, noise), sum(stats.entropy(p, axis=-1) for p in probs), rtol=1e-4)
    modes = np.split(np.asarray(policy.mode(output)), np.cumsum(policy.choices)[:-1], -1)
    for mode, group in zip(modes, probs, strict=True):
        np.testing.assert_array_equal(mode, np.eye(group.shape[-1])[group.argmax(-1)])
    share = policy.spread(output)
    assert np.all((share > 0) & (share <= 1)) and float(policy.spread(np.zeros(policy.outputs))) == pytest.approx(1)


@pytest.mark.parametrize("policy", [ONE, TWO])
def test_discrete_samples_are_one_hot_and_follow_the_probabilities(policy):
    count = 40_000
    output = outputs(policy.outputs)
    drawn = np.asarray(policy.sample(np.tile(output, (count, 1)), policy.noise(jax.random.key(1), count)))
    groups = np.split(drawn, np.cumsum(policy.choices)[:-1], -1)
    assert set(np.unique(drawn)) == {0.0, 1.0} and all(np.all(group.sum(-1) == 1) for group in groups)
    np.testing.assert_allclose(drawn.mean(0), np.concatenate(probabilities(policy, output)), atol=5 * 0.5 / np.sqrt(count))
    if len(groups) == 2:  # independent choices
        both = (groups[0][:, :1] * groups[1][:, :1]).mean()
        assert both == pytest.approx(groups[0][:, 0].mean() * groups[1][:, 0].mean(), abs=0.01)


def test_the_straight_through_gradient_is_that_of_the_probabilities():
    output, weights = outputs(6, 5), outputs(6, 5, seed=1)
    noise = TWO.noise(jax.random.key(4), 6)
    through = jax.grad(lambda out: (weights * TWO.sample(out, noise)).sum())(output)
    expected = jax.grad(lambda out: (weights * jnp.exp(jnp.concatenate(TWO.log_probs(out), -1))).sum())(output)
    np.testing.assert_allclose(through, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("policy", [PAPER, BOUNDED], ids=["paper", "bounded"])
def test_continuous_log_probabilities_are_those_of_scipy_but_for_what_the_network_cannot_change(policy):
    noise = np.asarray(policy.noise(jax.random.key(5), 30))
    output = outputs(30, 4)
    mean, std = (np.asarray(part, np.float64) for part in policy.dist(output))
    drawn = mean + std * noise
    gaussian = stats.norm.logpdf(drawn, mean, std).sum(-1)
    np.testing.assert_allclose(policy.log_prob(output, noise), gaussian + np.log(2 * np.pi), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(policy.sample(output, noise), np.tanh(drawn), rtol=1e-4, atol=1e-5)
    # Its gradient is that of the drawn action's density, tanh included.

    def density(out: Array) -> Array:
        mean, std = policy.dist(out)
        squash = jnp.log(1 - jnp.tanh(drawn) ** 2)
        return (jax.scipy.stats.norm.logpdf(drawn, mean, std) - squash).sum()

    grads = jax.grad(lambda out: policy.log_prob(out, noise).sum())(output)
    np.testing.assert_allclose(grads, jax.grad(density)(output), rtol=1e-3, atol=1e-3)


def test_continuous_entropy_is_that_of_the_squashed_gaussian_on_average():
    one = TanhPolicy(actions=1, mean_scale=3.0, start_std=0.9, min_std=0.1, max_std=1.0)
    output = np.array([0.4, -0.3], np.float32)
    mean, std = (float(part[0]) for part in one.dist(output))
    u = np.linspace(mean - 8 * std, mean + 8 * std, 20_001)
    density = stats.norm.pdf(u, mean, std)
    log_density = stats.norm.logpdf(u, mean, std) - np.log1p(-(np.tanh(u) ** 2))  # of the squashed action
    exact = -np.trapezoid(density * log_density, u)
    noise = one.noise(jax.random.key(6), 100_000)
    estimate = np.asarray(one.entropy(np.tile(output, (100_000, 1)), noise)).mean() + 0.5 * np.log(2 * np.pi * np.e)
    assert estimate == pytest.approx(exact, abs=0.02)


def test_a_bounded_actors_std_and_mean_stay_within_their_bounds_whatever_the_network_says():
    dist = BOUNDED.dist(outputs(1000, 4, scale=1000.0))
    assert float(dist.std.min()) >= 0.1 and float(dist.std.max()) <= 1.0 and np.abs(dist.mean).max() <= 3.0
    np.testing.assert_allclose(BOUNDED.dist(np.zeros(4, np.float32)).std, 0.9, rtol=1e-5)
    np.testing.assert_allclose(PAPER.dist(np.zeros(4, np.float32)).std, 5.0, rtol=1e-4)
    assert float(PAPER.dist(np.full(4, -1000.0, np.float32)).std.min()) == pytest.approx(1e-4)
    assert float(BOUNDED.spread(np.full(4, -1000.0, np.float32))) == pytest.approx(0.1)


def test_a_start_std_outside_the_actors_bounds_is_refused():
    spaces = Spaces(action=2, image=None, proprio=1)
    with pytest.raises(ValueError, match=r"start_std .* between min_std .* and max_std"):
        make_policy(ActorCriticConfig(start_std=5.0, min_std=0.1, max_std=1.0), spaces)


def test_the_action_space_chooses_the_policy():
    assert isinstance(PAPER, TanhPolicy) and PAPER.outputs == 4
    made = make_policy(ActorCriticConfig(unimix=0.1), Spaces(action=5, discrete=(3, 2)))
    assert made == TWO and made.actions == made.outputs == 5


def test_the_papers_actor_starts_wide_and_keeps_its_bounds():
    start = PAPER.dist(jnp.zeros(4))
    np.testing.assert_allclose([start.mean[0], start.std[0]], [0, 5 + 1e-4], rtol=1e-6)
    actor = PAPER.dist(jnp.array([1.7, 400.0, -0.3, -400.0]))
    np.testing.assert_allclose(actor.mean, 5 * np.tanh(np.array([1.7, 400]) / 5), rtol=1e-6)
    first = np.logaddexp(0, -0.3 + np.log(np.exp(5) - 1)) + 1e-4
    np.testing.assert_allclose(actor.std, [first, 1e-4], rtol=1e-5)


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
    mode = tanh_normal_mode(Normal(jnp.array([mean]), jnp.array([std])))
    if mean == 0:  # both sides are as good
        mode, expected = np.abs(mode), np.abs(expected)
    flat = (mean, std) == (0.0, 0.7071)  # a peak of the fourth order
    np.testing.assert_allclose(mode[0], np.tanh(expected), atol=2e-2 if flat else 1e-4)


def test_a_bounded_actor_is_evaluated_at_the_tanh_of_its_mean():
    output = outputs(3, 4)
    np.testing.assert_allclose(BOUNDED.mode(output), np.tanh(BOUNDED.dist(output).mean), rtol=1e-5)
    np.testing.assert_array_equal(PAPER.mode(output), tanh_normal_mode(PAPER.dist(output)))


def test_exploration_noise_keeps_actions_valid():
    action = jnp.full((1000, 2), 0.9)
    noisy = PAPER.explore(action, 0.3, jax.random.key(0))
    assert np.abs(noisy).max() <= 1 and np.all(noisy.std(0) > 0.1)
    np.testing.assert_allclose(PAPER.explore(action, 0.0, jax.random.key(0)), action)
    choice = jnp.tile(jnp.array([1.0, 0, 0, 1, 0]), (3000, 1))
    replaced = TWO.explore(choice, 0.3, jax.random.key(0))
    np.testing.assert_allclose(replaced[:, :3].sum(-1), 1, atol=1e-5)
    # Three in ten are replaced, and a sixth of these by the same choices.
    np.testing.assert_allclose(np.any(replaced != choice, -1).mean(), 0.3 * 5 / 6, atol=0.04)


@pytest.mark.parametrize("policy", [PAPER, TWO], ids=["continuous", "discrete"])
def test_uniform_actions_are_uniform(policy):
    drawn = policy.uniform(jax.random.key(0), 6000)
    if policy is PAPER:
        np.testing.assert_allclose(drawn.mean(0), 0, atol=0.04)
        np.testing.assert_allclose(drawn.std(0), 1 / np.sqrt(3), atol=0.02)
    else:
        np.testing.assert_allclose(drawn.mean(0), [1 / 3] * 3 + [1 / 2] * 2, atol=0.03)


# --- Bandits: one imagined step, whose reward is known ---


def learned_direction(
    policy: OneHotPolicy | TanhPolicy, output: np.ndarray, payoff: Callable[[Array], Array], gradient: str
) -> np.ndarray:
    """Where the actor's loss moves its output, estimated from many imagined steps."""
    shape = (1, 1, 100_000)
    noise = Noise(policy.noise(jax.random.key(8), *shape), jnp.zeros((*shape, 1)))
    action = policy.sample(jnp.broadcast_to(output, (*shape, output.size)), noise.action)
    action_grads = jax.grad(lambda action: payoff(action).mean())(action) if gradient == "through" else None
    reward, baseline = payoff(action), jnp.full(shape, payoff(action).mean())
    trajectory = Trajectory(jnp.zeros((*shape, 1)), action, reward, reward, reward, jnp.ones((1, 1)))
    config = ActorCriticConfig(actor_gradient=gradient)

    def loss(output: Array) -> Array:
        actors = Fixed(output[None])
        return actor_loss(policy, actors, trajectory, noise, action_grads, baseline, init_stats(1), config)[0]

    return -np.asarray(jax.grad(loss)(jnp.asarray(output)))


@pytest.mark.parametrize("gradient", ["reinforce", "through"])
def test_a_discrete_bandits_gradient_is_that_of_the_expected_payoff(gradient):
    arms, output = np.array([0.0, 1.0, -1.0, 0.5, 2.0], np.float32), outputs(5)
    expected = jax.grad(lambda out: jnp.exp(jnp.concatenate(TWO.log_probs(out), -1)) @ arms)(output)
    found = learned_direction(TWO, output, lambda action: action @ arms, gradient)
    np.testing.assert_allclose(found, expected, atol=0.02)
    assert np.abs(expected).max() > 0.1 and expected[1] > 0 > expected[2] and expected[4] > 0 > expected[3]


@pytest.mark.parametrize("gradient", ["reinforce", "through"])
def test_a_continuous_bandits_gradient_is_that_of_the_expected_payoff(gradient):
    output, best = np.array([0.1, -0.2, 0.0, 0.3], np.float32), np.array([0.8, -0.5], np.float32)

    def payoff(action: Array) -> Array:
        return -jnp.square(action - best).sum(-1)

    noise = BOUNDED.noise(jax.random.key(9), 100_000)
    expected = jax.grad(lambda out: payoff(BOUNDED.sample(jnp.broadcast_to(out, (100_000, 4)), noise)).mean())(output)
    found = learned_direction(BOUNDED, output, payoff, gradient)
    np.testing.assert_allclose(found, expected, atol=0.03)
    assert expected[0] > 0.1 and expected[1] < -0.05 and np.all(expected[2:] < 0), "towards the best action, and narrower"
