"""The divergence of Gaussian predictions, against numerical integration and plain loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
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


MEMBERS, DIMENSIONS = 5, 1024


def members_apart(distance: Array) -> Array:
    """Means of members that are so far apart, in each dimension by a random share."""
    drawn = np.random.default_rng(0).normal(size=(MEMBERS, 1, DIMENSIONS)).astype(np.float32)
    return drawn * jnp.asarray(distance)[:, None]


def divergence(distance: Array, reduce: str) -> Array:
    return jensen_renyi(members_apart(distance), jnp.full((MEMBERS, len(distance), DIMENSIONS), 0.1), reduce)


DISTANCES = jnp.array([0.1, 0.2, 0.3, 0.4, 0.5])


def test_summed_over_many_dimensions_the_divergence_is_the_same_everywhere_without_a_gradient():
    np.testing.assert_allclose(divergence(DISTANCES, "sum"), np.log(MEMBERS), rtol=1e-3)
    grads = jax.grad(lambda distance: divergence(distance, "sum").sum())(DISTANCES)
    np.testing.assert_allclose(grads, 0, atol=1e-4)


def test_averaged_over_dimensions_the_divergence_ranks_states_by_how_far_members_are_apart():
    values = np.asarray(divergence(DISTANCES, "mean"))
    assert np.all(np.diff(values) > 0.02) and values[-1] < np.log(MEMBERS)
    grads = np.asarray(jax.grad(lambda distance: divergence(distance, "mean").sum())(DISTANCES))
    assert np.all(grads > 0.02)
    assert float(divergence(jnp.zeros(1), "mean")[0]) == pytest.approx(0, abs=1e-5), "members that agree"


def test_in_one_dimension_both_are_the_same():
    mean, variance = np.random.default_rng(1).random((2, 3, 7, 1)).astype(np.float32)
    np.testing.assert_allclose(*(jensen_renyi(mean, variance + 0.1, reduce) for reduce in ("sum", "mean")), rtol=1e-4)
