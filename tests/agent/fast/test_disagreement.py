"""The variance of an ensemble's predictions in the form for GPUs is the plain one, values and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from plan2explore.agent.fast import linear
from plan2explore.agent.intrinsic.ensemble import Ensemble, disagreement, ensemble_disagreement
from plan2explore.config import IntrinsicConfig

INPUTS, OUTPUTS = 6, 2
CONFIG = IntrinsicConfig(members=3, width=32, depth=2)


@pytest.mark.parametrize("shape", [(8,), (3, 5)])
@pytest.mark.parametrize(("dtype", "share"), [(jnp.float32, 1e-5), (jnp.bfloat16, 0.05)])
def test_the_form_for_gpus_is_the_disagreement_of_the_predictions(shape, dtype, share, monkeypatch):
    """Values, and gradients with respect to the inputs and to every parameter of the members."""
    ensemble = jax.tree.map(lambda leaf: leaf.astype(dtype), Ensemble(CONFIG, INPUTS, OUTPUTS, jax.random.key(3)))
    keys = jax.random.split(jax.random.key(4), 2)
    inputs = jax.random.normal(keys[0], (*shape, INPUTS), dtype)
    pull = jax.random.normal(keys[1], shape)

    def computed():
        def total(ensemble, inputs):
            made = ensemble_disagreement(ensemble, inputs)
            return (made * pull).sum(), made

        (_, made), gradients = jax.value_and_grad(total, argnums=(0, 1), has_aux=True)(ensemble, inputs)
        return made, gradients

    plain = computed()
    np.testing.assert_allclose(plain[0], disagreement(ensemble(inputs)), rtol=1e-6)
    monkeypatch.setattr(linear, "on_gpu", lambda: True)
    wide = computed()
    assert jax.tree.structure(wide) == jax.tree.structure(plain)
    for ours, theirs in zip(jax.tree.leaves(wide), jax.tree.leaves(plain), strict=True):
        assert ours.dtype == theirs.dtype
        ours, theirs = np.asarray(ours, np.float32), np.asarray(theirs, np.float32)
        assert np.linalg.norm(ours - theirs) <= share * np.linalg.norm(theirs) + 1e-7
