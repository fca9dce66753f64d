"""What is computed before and after the loop over time, instead of inside it, changes no value and no gradient."""

import jax
import jax.numpy as jnp
import numpy as np

from plan2explore.agent.latents import draw_normal
from plan2explore.agent.world_model import RSSM

TIME, BATCH, ACTION, EMBEDDING = 5, 3, 2, 6


def test_observing_has_the_gradients_of_inferring_step_by_step(nano):
    rssm = RSSM(nano.model, EMBEDDING, ACTION, jax.random.key(0))
    key, keys = jax.random.key(2), jax.random.split(jax.random.key(1))
    actions, embeddings = (draw_normal(one, TIME, BATCH, size) for one, size in zip(keys, (ACTION, EMBEDDING), strict=True))
    is_first = jnp.zeros((TIME, BATCH), bool).at[2, 1].set(True)
    noise, kl = rssm.latent.noise(key, TIME, BATCH), rssm.latent.kl

    def step_by_step(rssm, actions, embeddings):
        state, total = rssm.initial(BATCH), 0.0
        for t in range(TIME):
            state, action = jax.tree.map(lambda part, t=t: jnp.where(is_first[t, :, None], 0, part), (state, actions[t]))
            state, posterior = rssm.infer(state, action, embeddings[t], noise[t])
            total += jnp.sin(state.features).sum() + kl(posterior, rssm.prior(state.deter)).sum()
        return total

    def at_once(rssm, actions, embeddings):
        output = rssm.observe(actions, embeddings, is_first, key)
        return jnp.sin(output.states.features).sum() + kl(output.posterior, output.prior).sum()

    expected, got = (
        jax.jit(jax.value_and_grad(function, (0, 1, 2)))(rssm, actions, embeddings) for function in (step_by_step, at_once)
    )
    for one, other in zip(jax.tree.leaves(expected), jax.tree.leaves(got), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
