"""Behaviours learned in imagination, as in Dreamer: an actor seeks what its critic values (equation 2).

Exploration and every task probe are the same loop with another reward, so they run side by side: a *row* is one
behaviour, and rows share nothing but the world model that they imagine with.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from plan2explore.agent.distributions import TanhNormal, lambda_returns, tanh_normal, tanh_normal_sample
from plan2explore.agent.experience import Transition
from plan2explore.agent.networks import MLP
from plan2explore.agent.world_model import RSSM, State
from plan2explore.config import BehaviorConfig

Rewards = Callable[[Transition], Float[Array, "horizon rows starts"]]


class Actor(eqx.Module):
    """The policy: a squashed Gaussian over actions."""

    mlp: MLP

    def __init__(self, features: int, action: int, config: BehaviorConfig, key: PRNGKeyArray) -> None:
        self.mlp = MLP(features, 2 * action, config.actor_width, config.actor_depth, key=key)

    def __call__(self, features: Float[Array, "*batch features"]) -> TanhNormal:
        return tanh_normal(self.mlp(features))


class Scalar(eqx.Module):
    """A number for each state: a critic's value, or a predicted reward."""

    mlp: MLP

    def __init__(self, features: int, width: int, depth: int, key: PRNGKeyArray) -> None:
        self.mlp = MLP(features, 1, width, depth, key=key)

    def __call__(self, features: Float[Array, "*batch features"]) -> Float[Array, "*batch"]:
        return self.mlp(features)[..., 0].astype(jnp.float32)


class Noise(NamedTuple):
    """The chance in imagination, drawn beforehand."""

    action: Float[Array, "horizon rows starts action"]
    state: Float[Array, "horizon rows starts stoch"]


class Dream(NamedTuple):
    """What the rows imagined and what it was worth."""

    states: State
    """The H + 1 states s_0 ... s_H."""
    actions: Float[Array, "horizon rows starts action"]
    rewards: Float[Array, "horizon rows starts"]
    """Number t is for the action taken from s_t."""
    returns: Float[Array, "horizon rows starts"]
    weights: Float[Array, " horizon"]
    """The discount at which each step counts."""

    @property
    def sources(self) -> Float[Array, "horizon rows starts features"]:
        """Features of the states that actions were taken from, s_0 ... s_(H-1)."""
        return self.states.features[:-1]


def draw_noise(key: PRNGKeyArray, horizon: int, rows: int, starts: int, action: int, stoch: int) -> Noise:
    """All the noise of an imagination."""
    action_key, state_key = jax.random.split(key)
    shape = horizon, rows, starts
    return Noise(jax.random.normal(action_key, (*shape, action)), jax.random.normal(state_key, (*shape, stoch)))


def imagine(
    rssm: RSSM, actors: Actor, start: State, noise: Noise, nudges: Float[Array, "horizon rows starts action"], unroll: int
) -> tuple[State, Float[Array, "horizon rows starts action"]]:
    """Lets each row's actor act in the latent world. Returns the H + 1 states and the H actions between them.

    Actions are constants plus a nudge of zero: the gradient with respect to the nudges is what each action did for the
    future, and `actor_loss` teaches it to the actor in one product over all steps, instead of a small one at each.
    """

    def step(state: State, now: tuple[Noise, Array]) -> tuple[State, tuple[State, Array]]:
        noise, nudge = now
        policy = jax.vmap(lambda actor, features: actor(features))(actors, lax.stop_gradient(state.features))
        action = lax.stop_gradient(tanh_normal_sample(policy, noise.action)) + nudge
        after = rssm.imagine(state, action.astype(state.deter.dtype), noise.state)
        return after, (after, action)

    _, (after, actions) = lax.scan(step, start, (noise, nudges), unroll=unroll)
    states = jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), start, after)
    return states, actions


def dream(
    rssm: RSSM,
    actors: Actor,
    critics: Scalar,
    rewards: Rewards,
    start: State,
    noise: Noise,
    config: BehaviorConfig,
    bootstrapped: bool = True,
) -> tuple[Dream, Float[Array, "horizon rows starts action"]]:
    """Imagines from the start states; also returns the gradient of each row's objective with respect to its actions.

    A row's objective is the mean of its returns, discounted by how far in the future they are. Rewards and values are
    computed for all imagined states at once, after the loop.
    """
    horizon = noise.action.shape[0]
    weights = config.discount ** jnp.arange(horizon, dtype=jnp.float32)

    def objective(nudges: Float[Array, "horizon rows starts action"]) -> tuple[Float[Array, ""], Dream]:
        with jax.named_scope("imagine"):
            states, actions = imagine(rssm, actors, start, noise, nudges, config.unroll)
        before, after = State(*(part[:-1] for part in states)), State(*(part[1:] for part in states))
        with jax.named_scope("rewards"):
            gained = rewards(Transition(before, actions, after))
        with jax.named_scope("values"):
            values = per_row(critics, states.features) if bootstrapped else jnp.zeros((horizon + 1, *gained.shape[1:]))
        returns = lambda_returns(gained, values[:-1], values[-1], config.discount, config.trace)
        mean = (weights[:, None] * returns.mean(-1)).mean(0)
        return mean.sum(), Dream(states, actions, gained, returns, weights)

    (_, dreamt), gradient = jax.value_and_grad(objective, has_aux=True)(jnp.zeros_like(noise.action))
    return lax.stop_gradient(dreamt), gradient


def per_row(networks: Scalar, features: Float[Array, "horizon rows starts features"]) -> Float[Array, "horizon rows starts"]:
    """Each row's network on that row's features."""
    return jax.vmap(lambda network, each: network(each), in_axes=(0, 1), out_axes=1)(networks, features)


def actor_loss(
    actors: Actor, dreamt: Dream, noise: Noise, gradient: Float[Array, "horizon rows starts action"]
) -> Float[Array, " rows"]:
    """A loss whose gradient is that of minus the objective: moves each action the way its nudge should have gone."""

    def row(actor: Actor, features: Array, noise: Array, gradient: Array) -> Float[Array, ""]:
        return -(gradient * tanh_normal_sample(actor(features), noise)).sum()

    return jax.vmap(row, in_axes=(0, 1, 1, 1))(actors, dreamt.sources, noise.action, gradient)


def critic_loss(critics: Scalar, dreamt: Dream) -> Float[Array, " rows"]:
    """Squared error of the values against the returns, discounted like them."""
    misses = 0.5 * jnp.square(per_row(critics, dreamt.sources) - dreamt.returns)
    return (dreamt.weights[:, None] * misses.mean(-1)).mean(0)
