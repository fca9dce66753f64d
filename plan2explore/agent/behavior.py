"""Behaviours learned in imagination, as in Dreamer: an actor seeks what its critic values (equation 2).

Exploration and every task probe are the same loop with another reward, so they run side by side: a *row* is
one behaviour, and rows share nothing but the world model that they imagine with.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from plan2explore.agent.distributions import TanhNormal, lambda_returns, tanh_normal, tanh_normal_sample
from plan2explore.agent.experience import Transition
from plan2explore.agent.networks import MLP
from plan2explore.agent.world_model import RSSM, State, draw_normal
from plan2explore.config import BehaviorConfig

Rewards = Callable[[Transition], Float[Array, "rows horizon starts"]]


class Actor(eqx.Module):
    """The policy: a squashed Gaussian over actions."""

    mlp: MLP
    start_std: float = eqx.field(static=True)

    def __init__(self, features: int, action: int, config: BehaviorConfig, key: PRNGKeyArray) -> None:
        self.mlp = MLP(features, 2 * action, config.actor_width, config.actor_depth, key=key)
        self.start_std = config.actor_start_std

    def __call__(self, features: Float[Array, "*batch features"]) -> TanhNormal:
        return tanh_normal(self.mlp(features), self.start_std)


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

    sources: Float[Array, "rows horizon starts features"]
    """Features of the states that actions were taken from, s_0 ... s_(H-1). Behind the real starts may be more, which
    fill up the array: nothing else here has them."""
    actions: Float[Array, "rows horizon starts action"]
    rewards: Float[Array, "rows horizon starts"]
    """Number t is for the action taken from s_t."""
    returns: Float[Array, "rows horizon starts"]
    weights: Float[Array, "horizon 1"]
    """The discount at which each step counts."""


def draw_noise(key: PRNGKeyArray, shape: tuple[int, ...], action: int, stoch: int) -> Noise:
    """All the noise of an imagination: for each step, row and start."""
    action_key, state_key = jax.random.split(key)
    return Noise(draw_normal(action_key, *shape, action), draw_normal(state_key, *shape, stoch))


def imagine(
    rssm: RSSM,
    actors: Actor,
    start: State,
    noise: Noise,
    nudges: Float[Array, "horizon rows starts action"],
    unroll: int,
) -> Transition:
    """Lets each row's actor act in the latent world, and returns its H steps: (rows, horizon, starts, ...).

    Actions are constants plus a nudge of zero: the gradient with respect to the nudges is what each action
    did for the future, and `actor_loss` teaches it to the actor in one product over all steps, instead of a
    small one at each.
    """

    def step(state: State, now: tuple[Noise, Array]) -> tuple[State, tuple[State, Array]]:
        noise, nudge = now
        policy = per_row(actors, lax.stop_gradient(state.features))
        action = lax.stop_gradient(tanh_normal_sample(policy, noise.action)) + nudge
        after = rssm.imagine(state, action.astype(state.deter.dtype), noise.state)
        return after, (after, action)

    _, steps = lax.scan(step, start, (noise, nudges), unroll=unroll)
    after, actions = jax.tree.map(rows_first, steps)
    before = jax.tree.map(
        lambda first, rest: jnp.concatenate([first[:, None], rest[:, :-1]], 1), start, after
    )
    return Transition(before, actions, after)


def dream(
    rssm: RSSM,
    actors: Actor,
    critics: Scalar,
    rewards: Rewards,
    start: State,
    noise: Noise,
    config: BehaviorConfig,
    bootstrapped: bool = True,
    count: int | None = None,
) -> tuple[Dream, Float[Array, "horizon rows starts action"]]:
    """Imagines from the start states; also returns the gradient of each row's objective at its actions.

    A row's objective is the mean of its returns, discounted by how far in the future they are. Rewards and
    values are computed for all imagined states at once, after the loop. With a `count`, only so many starts are
    real: the others fill up arrays, and nothing is learned from them.
    """
    weights = config.discount ** jnp.arange(noise.action.shape[0], dtype=jnp.float32)[:, None]

    def objective(nudges: Float[Array, "horizon rows starts action"]) -> tuple[Float[Array, ""], Dream]:
        with jax.named_scope("imagine"):
            steps = imagine(rssm, actors, start, noise, nudges, config.unroll)
        with jax.named_scope("rewards"):
            gained = rewards(steps)[..., :count]
        with jax.named_scope("values"):
            values = (
                per_row(critics, steps.after.features)[..., :count] if bootstrapped else jnp.zeros_like(gained)
            )
        returns = discounted_returns(gained, values, config)
        dreamt = Dream(steps.before.features, steps.action[:, :, :count], gained, returns, weights)
        return row_means(dreamt, returns).sum(), dreamt

    (_, dreamt), gradient = jax.value_and_grad(objective, has_aux=True)(jnp.zeros_like(noise.action))
    return lax.stop_gradient(dreamt), gradient


def discounted_returns(
    rewards: Float[Array, "rows horizon starts"],
    values: Float[Array, "rows horizon starts"],
    config: BehaviorConfig,
) -> Float[Array, "rows horizon starts"]:
    """Lambda-returns of s_0 ... s_(H-1), from the rewards after them and the values of s_1 ... s_H."""
    rewards, values = rows_first(rewards), rows_first(values)  # back to horizon first
    return rows_first(lambda_returns(rewards, values, config.discount, config.trace))


def rows_first(array: Array) -> Array:
    """Swaps the axes of horizon and rows: a network per row works on one contiguous block per row."""
    return jnp.swapaxes(array, 0, 1)


def per_row(networks: Any, features: Float[Array, "rows *batch features"]) -> Any:
    """Each row's network on that row's features."""
    return jax.vmap(lambda network, each: network(each))(networks, features)


def row_means(dreamt: Dream, values: Float[Array, "rows horizon starts"]) -> Float[Array, " rows"]:
    """The mean over imagined steps, each weighted by its discount."""
    return (dreamt.weights * values).mean((1, 2))


def actor_loss(
    actors: Actor, dreamt: Dream, noise: Noise, gradient: Float[Array, "horizon rows starts action"]
) -> Float[Array, ""]:
    """A loss with the gradient of minus the objective: moves each action where its nudge should have gone."""
    actions = tanh_normal_sample(per_row(actors, dreamt.sources), rows_first(noise.action))
    return -(rows_first(gradient) * actions).sum()


def critic_loss(critics: Scalar, dreamt: Dream) -> Float[Array, " rows"]:
    """Squared error of the values against the returns, discounted like them."""
    values = per_row(critics, dreamt.sources)[..., : dreamt.returns.shape[-1]]
    return row_means(dreamt, 0.5 * jnp.square(values - dreamt.returns))
