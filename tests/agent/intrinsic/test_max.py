"""The divergence of Gaussian predictions, against numerical integration and plain loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from plan2explore.agent.intrinsic.max import jensen_renyi


def random(*shape, seed=0):
    return jax.random.normal(jax.random.key(seed), shape)


def test_jensen_renyi_against_numerical_integration():
    mean, variance = np.array([-1.0, 0.5, 2.0]), np.array([0.3, 1.0, 0.6])
    members = [stats.norm(m, np.sqrt(v)) for m, v in zip(mean, variance, strict=True)]

    def entropy(pdf):
        return -np.log(integrate.quad(lambda x: pdf(x) ** 2, -12, 12, limit=200)[0])

    expected = entropy(lambda x: np.mean([member.pdf(x) for member in members]))
    expected -= np.mean([entropy(member.pdf) for member in members])
    got = jensen_renyi(jnp.float32(mean[:, None]), jnp.float32(variance[:, None]))
    assert float(got) == pytest.approx(expected, rel=1e-4)


def test_jensen_renyi_against_loops_over_all_pairs_and_dimensions():
    mean = np.asarray(random(4, 2, 3), np.float64)
    variance = np.exp(np.asarray(random(4, 2, 3, seed=1), np.float64))
    got = jensen_renyi(jnp.float32(mean), jnp.float32(variance))
    for batch in range(2):
        m, v = mean[:, batch], variance[:, batch]
        terms = [(m[i] - m[j]) ** 2 / (v[i] + v[j]) + np.log(v[i] + v[j]) for i in range(4) for j in range(4)]
        mixture = -np.log(np.mean([np.exp(-0.5 * term.sum()) for term in terms]))
        expected = mixture - np.mean(0.5 * np.log(v).sum(-1)) - 1.5 * np.log(2)
        assert float(got[batch]) == pytest.approx(expected, rel=1e-4)


def test_jensen_renyi_of_equal_members_is_zero_even_in_many_dimensions():
    mean, variance = jnp.ones((5, 1000)), jnp.full((5, 1000), 0.01)
    assert abs(float(jensen_renyi(mean, variance))) < 1e-2


def test_means_over_dimensions_keep_the_divergence_from_its_limit():
    """In many dimensions sums are at ln K everywhere, without a gradient; in one, both are the same."""
    mean, variance = random(3, 1000), jnp.full((3, 1000), 0.1)
    summed, averaged = (jensen_renyi(mean, variance, reduce) for reduce in ("sum", "mean"))
    assert float(summed) == pytest.approx(np.log(3), rel=1e-3)
    assert 0 < float(averaged) < 0.99 * np.log(3)
    assert np.abs(jax.grad(lambda mean: jensen_renyi(mean, variance, "mean"))(mean)).max() > 0
    one, other = (jensen_renyi(mean[:, :1], variance[:, :1], reduce) for reduce in ("sum", "mean"))
    np.testing.assert_allclose(one, other, rtol=1e-6)
