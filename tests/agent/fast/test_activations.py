"""Activations whose slopes are told by their outputs are the ones that everybody knows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from plan2explore.agent.fast.activations import elu, relu

POINTS = np.concatenate([np.linspace(-12, 12, 481), [0.0, -0.0, 1e-3, -1e-3, 1e-6, -1e-6, -60.0, 60.0]])


@pytest.mark.parametrize(("ours", "known"), [(elu, jax.nn.elu), (relu, jax.nn.relu)])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_values_and_slopes(ours, known, dtype):
    x, pull = jnp.asarray(POINTS, dtype), jnp.linspace(-2, 2, len(POINTS)).astype(dtype)

    def told(function):
        values, backward = jax.vjp(function, x)
        return values, backward(pull)[0]

    rounding = 2**-8 if dtype == jnp.bfloat16 else 0.0
    # Near zero the exponential is one of float32, good to 6e-8. An output near -1 tells a slope to half a rounding, and the
    # slope is multiplied by up to 2; JAX takes it from the input since 0.12.
    for ours_is, known_is, atol in zip(told(ours), told(known), (1e-7, 1e-7 + rounding), strict=True):
        assert ours_is.dtype == dtype
        rtol = 2 * rounding or 1e-6
        np.testing.assert_allclose(ours_is.astype(np.float32), known_is.astype(np.float32), rtol=rtol, atol=atol)


@pytest.mark.parametrize("activation", [elu, relu])
def test_only_the_output_is_kept(activation):
    """And not the input beside it."""
    x = jnp.linspace(-1, 1, 7)
    _, backward = jax.vjp(activation, x)
    kept = [leaf for leaf in jax.tree.leaves(backward) if hasattr(leaf, "shape") and leaf.shape == x.shape]
    assert len(kept) == 1
    np.testing.assert_array_equal(kept[0], activation(x))
