"""Distributions and returns against SciPy, numerical integration and plain loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, optimize, stats

from plan2explore.agent import distributions as dist


def random(*shape, seed=0):
    return jax.random.normal(jax.random.key(seed), shape)


def some_normal(seed, *shape):
    return dist.Normal(random(*shape, seed=seed), jax.nn.softplus(random(*shape, seed=seed + 100)) + 0.1)


def test_kl_against_numerical_integration():
    p, q = some_normal(0, 5, 2), some_normal(1, 5, 2)
    expected = np.zeros((5, 2))
    for index in np.ndindex(5, 2):
        one, other = (stats.norm(float(each.mean[index]), float(each.std[index])) for each in (p, q))
        low, high = one.mean() - 12 * one.std(), one.mean() + 12 * one.std()
        x = np.linspace(low, high, 4001)
        expected[index] = integrate.simpson(one.pdf(x) * (one.logpdf(x) - other.logpdf(x)), x=x)
    np.testing.assert_allclose(dist.normal_kl(p, q), expected.sum(-1), rtol=1e-4)


def test_kl_of_a_distribution_from_itself_is_zero():
    np.testing.assert_array_equal(dist.normal_kl(some_normal(0, 5, 2), some_normal(0, 5, 2)), 0)


def test_samples_have_the_distributions_moments():
    normal = dist.Normal(jnp.array([1.0, -2.0]), jnp.array([0.5, 3.0]))
    samples = dist.normal_sample(normal, random(20_000, 2))
    np.testing.assert_allclose(samples.mean(0), normal.mean, atol=0.1)
    np.testing.assert_allclose(samples.std(0), normal.std, rtol=0.03)


def test_actor_head_starts_wide_and_keeps_its_bounds():
    start = dist.tanh_normal(jnp.zeros(2))
    np.testing.assert_allclose([start.mean[0], start.std[0]], [0, 5 + 1e-4], rtol=1e-6)
    output = jnp.array([1.7, 400.0, -0.3, -400.0])
    actor = dist.tanh_normal(output)
    np.testing.assert_allclose(actor.mean, 5 * np.tanh(np.array([1.7, 400]) / 5), rtol=1e-6)
    first = np.logaddexp(0, -0.3 + np.log(np.exp(5) - 1)) + 1e-4
    np.testing.assert_allclose(actor.std, [first, 1e-4], rtol=1e-5)


def test_actor_samples_follow_its_density():
    actor = dist.TanhNormal(jnp.array([0.4]), jnp.array([0.8]))
    samples = dist.tanh_normal_sample(actor, random(5000, 1))
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
    mode = dist.tanh_normal_mode(dist.TanhNormal(jnp.array([mean]), jnp.array([std])))
    if mean == 0:  # both sides are as good
        mode, expected = np.abs(mode), np.abs(expected)
    flat = (mean, std) == (0.0, 0.7071)  # a peak of the fourth order
    np.testing.assert_allclose(mode[0], np.tanh(expected), atol=2e-2 if flat else 1e-4)


def test_lambda_returns_against_a_plain_loop():
    reward, value = random(6, 3), random(6, 3, seed=1)
    discount, lambda_ = 0.9, 0.8
    expected, later = np.zeros((6, 3)), np.asarray(value[-1], np.float64)
    for t in reversed(range(6)):
        later = reward[t] + discount * ((1 - lambda_) * value[t] + lambda_ * later)
        expected[t] = later
    got = dist.lambda_returns(reward, value, discount, lambda_)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_lambda_returns_at_both_ends_of_lambda():
    reward, value = random(4), random(4, seed=1)
    one_step = dist.lambda_returns(reward, value, 0.9, 0.0)
    np.testing.assert_allclose(one_step, reward + 0.9 * value, rtol=1e-5)
    whole = dist.lambda_returns(reward, value, 0.9, 1.0)
    expected = sum(0.9**t * reward[t] for t in range(4)) + 0.9**4 * value[-1]
    np.testing.assert_allclose(whole[0], expected, rtol=1e-5)


def test_jensen_renyi_against_numerical_integration():
    mean, variance = np.array([-1.0, 0.5, 2.0]), np.array([0.3, 1.0, 0.6])
    members = [stats.norm(m, np.sqrt(v)) for m, v in zip(mean, variance, strict=True)]

    def entropy(pdf):
        return -np.log(integrate.quad(lambda x: pdf(x) ** 2, -12, 12, limit=200)[0])

    expected = entropy(lambda x: np.mean([member.pdf(x) for member in members]))
    expected -= np.mean([entropy(member.pdf) for member in members])
    got = dist.jensen_renyi(jnp.float32(mean[:, None]), jnp.float32(variance[:, None]))
    assert float(got) == pytest.approx(expected, rel=1e-4)


def test_jensen_renyi_against_loops_over_all_pairs_and_dimensions():
    mean = np.asarray(random(4, 2, 3), np.float64)
    variance = np.exp(np.asarray(random(4, 2, 3, seed=1), np.float64))
    got = dist.jensen_renyi(jnp.float32(mean), jnp.float32(variance))
    for batch in range(2):
        m, v = mean[:, batch], variance[:, batch]
        terms = [(m[i] - m[j]) ** 2 / (v[i] + v[j]) + np.log(v[i] + v[j]) for i in range(4) for j in range(4)]
        mixture = -np.log(np.mean([np.exp(-0.5 * term.sum()) for term in terms]))
        expected = mixture - np.mean(0.5 * np.log(v).sum(-1)) - 1.5 * np.log(2)
        assert float(got[batch]) == pytest.approx(expected, rel=1e-4)


def test_jensen_renyi_of_equal_members_is_zero_even_in_many_dimensions():
    mean, variance = jnp.ones((5, 1000)), jnp.full((5, 1000), 0.01)
    assert abs(float(dist.jensen_renyi(mean, variance))) < 1e-2
