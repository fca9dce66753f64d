"""RSSMs over whole sequences, with little left inside the loop over time: the weights' gradients are taken after it.

`observe_gru` is the paper's RSSM: what does not depend on the state is computed before the loop, and each weight's
gradient is one product after it (`deferred_weight_grads`). `observe_any` takes any core: after the loop all steps are
computed once more side by side, and the weights' gradients are those of this one large step.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
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


def observe_any(
    rssm: "RSSM",
    actions: Float[Array, "time batch action"],
    embeddings: Float[Array, "time batch embedding"],
    keep: Bool[Array, "time batch 1"],
    noise: Float[Array, "time batch noise"],
) -> tuple[Any, Any]:
    """States and posteriors of sequences, as `RSSM.infer` at each step gives them, with deferred weight gradients."""
    weights, rest = eqx.partition(rssm, eqx.is_array)
    start = rssm.initial(actions.shape[1])

    def step_outputs(weights: Any, before: Any, action: Array, embedding: Array) -> tuple[Array, Array]:
        """All that has weights: the recurrent state, and the posterior network's output."""
        net = eqx.combine(weights, rest)
        deter = net.core(*before, action)
        return deter, net.posterior_net(jnp.concatenate([deter, embedding], -1))

    def loop(weights: Any, actions: Array, embeddings: Array, added: Any) -> tuple[Any, Any]:
        """The states and the networks' outputs at all steps; `added` is zero: its gradient is that of the outputs."""

        def step(state: Any, now: Any) -> tuple[Any, Any]:
            action, embedding, keep, noise, added = now
            before = jax.tree.map(lambda part: jnp.where(keep, part, 0), state)
            deter, output = jax.tree.map(jnp.add, step_outputs(weights, before, action, embedding), added)
            state = rssm.state(deter, rssm.latent.dist(output), noise)
            return state, (state, output)

        return lax.scan(step, start, (actions, embeddings, keep, noise, added), unroll=rssm.unroll)[1]

    @jax.custom_vjp
    def run(weights: Any, actions: Array, embeddings: Array) -> Any:
        return loop(weights, actions, embeddings, zeros())

    def zeros() -> Any:
        steps = actions.shape[:2]
        return tuple(jnp.zeros((*steps, size), rssm.dtype) for size in (rssm.deter, rssm.latent.outputs))

    def forward(weights: Any, actions: Array, embeddings: Array) -> tuple[Any, Any]:
        result, pull = jax.vjp(partial(loop, weights), actions, embeddings, zeros())
        return result, (weights, actions, embeddings, result[0], pull)

    def backward(saved: Any, cotangent: Any) -> Any:
        weights, actions, embeddings, states, pull = saved
        by_action, by_embedding, by_outputs = pull(cotangent)
        before = jax.tree.map(lambda first, each: jnp.concatenate([first[None], each[:-1]]), start, states)
        before = jax.tree.map(lambda part: jnp.where(keep, part, 0), before)
        _, pull_weights = jax.vjp(lambda weights: step_outputs(weights, before, actions, embeddings), weights)
        return *pull_weights(by_outputs), by_action, by_embedding

    run.defvjp(forward, backward)
    states, output = run(weights, actions, embeddings)
    return states, rssm.latent.dist(output)
