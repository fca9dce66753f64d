"""The paper's RSSM over whole sequences, with little left inside the loop over time.

What does not depend on the state is computed for all steps at once: the actions' and the embeddings' shares of their
layers before the loop, the weights' gradients after it (`deferred_weight_grads`).
"""

from functools import partial
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from plan2explore.agent.fast.activations import elu
from plan2explore.agent.fast.linear import add_bias, deferred_weight_grads

if TYPE_CHECKING:
    from plan2explore.agent.world_model import RSSM


def observe_gru(
    rssm: "RSSM",
    actions: Float[Array, "time batch action"],
    embeddings: Float[Array, "time batch embedding"],
    keep: Bool[Array, "time batch 1"],
    noise: Float[Array, "time batch stoch"],
) -> tuple[Any, Any]:
    """States and posteriors of sequences, as `RSSM.infer` at each step gives them; `keep` is false at an episode's start."""
    core: Any = rssm.core
    dtype = rssm.dtype
    hidden_layer, out_layer = rssm.posterior_net.layers

    def spread(bias: Float[Array, " size"]) -> Float[Array, "time batch size"]:
        return add_bias(jnp.zeros((*actions.shape[:2], bias.size), dtype), bias)

    enter, enter_action = jnp.split(core.enter.weight, [rssm.latent.size])
    hidden, hidden_embedding = jnp.split(hidden_layer.weight, [rssm.deter])
    # One product of the recurrent state serves this step's posterior and the next step's cell, whose bias comes
    # in later: as that of a product with nothing.
    both = jnp.concatenate([hidden, core.cell.state_weight], 1)
    nothing = jnp.zeros((0, core.cell.bias.size), dtype)
    weights = enter, core.cell.input_weight, both, out_layer.weight, nothing
    to_hidden = add_bias(embeddings @ hidden_embedding, hidden_layer.bias)
    biases = (
        add_bias(actions @ enter_action, core.enter.bias),
        spread(core.cell.bias),
        jnp.concatenate([to_hidden, spread(jnp.zeros_like(core.cell.bias))], -1),
        spread(out_layer.bias),
        spread(core.cell.state_bias),
    )
    return deferred_weight_grads(partial(_loop, rssm, keep.astype(dtype), noise), weights, biases)


def _loop(
    rssm: "RSSM",
    keep: Float[Array, "time batch 1"],
    noise: Float[Array, "time batch stoch"],
    weights: tuple[Array, ...],
    biases: tuple[Array, ...],
) -> tuple[tuple[Any, Any], tuple[Array, ...]]:
    """The states and posteriors of all steps, and what each weight was multiplied with."""
    enter, gates, both, out, _ = weights
    core: Any = rssm.core
    State = type(start := rssm.initial(noise.shape[1]))

    def step(carried: tuple[Any, Array], now: tuple[Array, Array, tuple[Array, ...]]) -> tuple[tuple[Any, Array], Any]:
        (state, recurrent), (keep, noise, (to_enter, to_gates, to_both, to_out, to_state)) = carried, now
        entered = elu((state.stoch * keep) @ enter + to_enter)
        deter = core.cell.gate(entered @ gates + to_gates, recurrent * keep + to_state, state.deter * keep)
        to_hidden, recurrent = jnp.split(deter @ both + to_both, [enter.shape[-1]], -1)
        hidden = elu(to_hidden)
        posterior = rssm.latent.dist(hidden @ out + to_out)
        after = State(deter, rssm.latent.sample(posterior, noise).astype(deter.dtype))
        return (after, recurrent), (after, posterior, entered, hidden)

    carried = start, jnp.zeros_like(biases[-1][0])
    states, posterior, entered, hidden = lax.scan(step, carried, (keep, noise, biases), unroll=rssm.unroll)[1]
    before = jnp.concatenate([start.stoch[None], states.stoch[:-1]]) * keep
    return (states, posterior), (before, entered, states.deter, hidden, states.deter[..., :0])
