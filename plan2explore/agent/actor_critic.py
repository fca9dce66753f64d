"""Actor-critics trained in imagination, as in Dreamer (equation 2 of the paper).

Exploration and every task are the same loop with another reward, so they run side by side: a *behaviour* is one actor
with its critic, and behaviours share nothing but the world model that they imagine with. The actor's gradient is taken
through imagined states (`through`, the paper) or by REINFORCE with the critic as a baseline (DreamerV3).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from plan2explore.agent import shards
from plan2explore.agent.heads import ScalarHead
from plan2explore.agent.intrinsic.objective import Transition
from plan2explore.agent.policies import Actor, Policy
from plan2explore.agent.world_model import State, WorldModel
from plan2explore.config import ActorCriticConfig

PER_STEP = Float[Array, "behaviors horizon starts"]
RANGE_DECAY = 0.999
"""Of the explorer's range of rewards, which falls as the model learns."""
RETURN_RATE = 0.01
"""Rate of the running percentiles of returns (DreamerV3)."""
MEAN_RATE = 0.02
"""Rate of the running mean of the intrinsic reward."""
SAMPLES = 4096
"""Returns whose percentiles are taken: sorting all of them would take as long as imagining them."""


class Stats(NamedTuple):
    """Running statistics of rewards and returns, one number for each behaviour."""

    reward_low: Float[Array, " behaviors"]
    """Range of rewards so far, 0 included: of a task those in replay, of the explorer the imagined ones."""
    reward_high: Float[Array, " behaviors"]
    return_low: Float[Array, " behaviors"]
    """Running 5 and 95 % percentiles of returns."""
    return_high: Float[Array, " behaviors"]
    intrinsic_mean: Float[Array, " behaviors"]
    """Running mean of the explorer's intrinsic reward before it is normalised; 0 for tasks."""


def init_stats(behaviors: int) -> Stats:
    """Statistics of nothing."""
    return Stats(*(jnp.zeros(behaviors) for _ in Stats._fields))


class Noise(NamedTuple):
    """The noise of an imagination, drawn beforehand."""

    action: Float[Array, "horizon behaviors starts action_noise"]
    state: Float[Array, "horizon behaviors starts state_noise"]


class Trajectory(NamedTuple):
    """Imagined trajectories and their returns."""

    features: Float[Array, "behaviors horizon starts features"]
    """Features of the states that actions were taken from, s_0 ... s_(H-1). Padded starts may follow the real ones:
    nothing else here has them."""
    actions: Float[Array, "behaviors horizon starts action"]
    rewards: PER_STEP
    """Number t is for the action taken from s_t."""
    values: PER_STEP
    """The bootstrapped values of s_1 ... s_H, unbounded."""
    returns: PER_STEP
    weights: Float[Array, "*behaviors horizon _"]
    """The discount at which each step counts: the probability that the episode gets there is part of it."""


def draw_noise(key: PRNGKeyArray, shape: tuple[int, ...], policy: Policy, latent: Any) -> Noise:
    """All the noise of an imagination: for each step, behaviour and start."""
    action_key, state_key = jax.random.split(key)
    return Noise(policy.noise(action_key, *shape), latent.noise(state_key, *shape))


def horizon_second(array: Array) -> Array:
    """Swaps the axes of horizon and behaviours: a network per behaviour works on one contiguous block."""
    return jnp.swapaxes(array, 0, 1)


def per_behavior(networks: Any, features: Float[Array, "behaviors *batch features"]) -> Any:
    """Each behaviour's network on its features."""
    return jax.vmap(lambda network, each: network(each))(networks, features)


def imagine(
    model: WorldModel,
    policy: Policy,
    actors: Actor,
    start: State,
    noise: Noise,
    perturbation: Float[Array, "horizon behaviors starts action"] | None,
    unroll: int,
) -> Transition:
    """Lets each behaviour's actor act in the latent space, and returns its H steps: (behaviors, horizon, starts, ...).

    Actions are constants plus a perturbation of zero: the gradient with respect to the perturbations says what each
    action did for the future, and `actor_loss` applies it to the actor in one product over all steps, instead of a small
    one at each.
    """

    def step(state: State, now: tuple[Noise, Array | None]) -> tuple[State, tuple[State, Array]]:
        noise, perturbation = now
        output = per_behavior(actors, lax.stop_gradient(state.features))
        action = lax.stop_gradient(policy.sample(output, noise.action))
        action = action if perturbation is None else action + perturbation
        after = model.rssm.imagine(state, action.astype(state.deter.dtype), noise.state)
        return after, (after, action)

    _, steps = lax.scan(step, start, (noise, perturbation), unroll=unroll)
    after, actions = jax.tree.map(horizon_second, steps)
    before = jax.tree.map(lambda first, rest: jnp.concatenate([first[:, None], rest[:, :-1]], 1), start, after)
    return Transition(before, actions, after)


def imagine_trajectories(
    model: WorldModel,
    policy: Policy,
    actors: Actor,
    critics: ScalarHead,
    rewards: Callable[[Transition, Stats], tuple[PER_STEP, Stats]],
    start: State,
    alive: Bool[Array, " starts"],
    noise: Noise,
    stats: Stats,
    config: ActorCriticConfig,
    bootstrapped: bool = True,
) -> tuple[Trajectory, Stats, Float[Array, "horizon behaviors starts action"] | None]:
    """Imagines from the start states; with `through`, also the gradient of each behaviour's objective at its actions.

    A behaviour's objective is the mean of its returns, each weighted by the discount until there. Rewards and values are
    computed for all imagined states at once, after the loop. Starts that are not `alive` (terminal states) weigh nothing,
    and those beyond its length are padding. Also returns the statistics, with the range of rewards so far.
    """
    count = alive.size

    def objective(perturbation: Array | None) -> tuple[Float[Array, ""], tuple[Trajectory, Stats]]:
        with jax.named_scope("imagine"):
            steps = imagine(model, policy, actors, start, noise, perturbation, config.unroll)
        with jax.named_scope("rewards"):
            reward, seen = rewards(steps, stats)
            reward = reward[..., :count]
        with jax.named_scope("values"):
            values = per_behavior(critics, steps.after.features)[..., :count] if bootstrapped else jnp.zeros_like(reward)
        seen = widen_range(seen, lax.stop_gradient(reward))
        discounts = jnp.full_like(reward, config.discount)
        weights = config.discount ** jnp.arange(reward.shape[1], dtype=jnp.float32)[:, None]
        if model.continue_head is not None:
            discounts *= model.continue_head(steps.after.features)[..., :count]
            so_far = jnp.cumprod(lax.stop_gradient(discounts), 1)[:, :-1]
            weights = alive * jnp.concatenate([jnp.ones_like(discounts[:, :1]), so_far], 1)
        returns = lambda_returns(reward, bound_values(values, seen, config), discounts, config.lambda_)
        taken = steps.action[:, :, :count]
        trajectory = Trajectory(steps.before.features, taken, reward, values, returns, weights)
        return weighted_means(trajectory, returns).sum(), (trajectory, seen)

    if config.actor_gradient == "reinforce":
        return *lax.stop_gradient(objective(None)[1]), None
    shape = (*noise.action.shape[:-1], policy.actions)
    (_, made), grads = jax.value_and_grad(objective, has_aux=True)(jnp.zeros(shape))
    return *lax.stop_gradient(made), grads


def lambda_returns(reward: PER_STEP, value: PER_STEP, discount: PER_STEP, lambda_: float) -> PER_STEP:
    """Dreamer's value targets V(s_t) for imagined states s_0 .. s_(T-1), with s_T the last imagined state.

    reward[t] belongs to the step from s_t to s_(t+1), value[t] is the critic's v(s_(t+1)), and discount[t] is 0 if the
    episode ends there: V(s_t) = reward[t] + discount[t] ((1 - lambda) v(s_(t+1)) + lambda V(s_(t+1))), V(s_T) = v(s_T).
    """
    fixed = reward + discount * (1 - lambda_) * value

    def backwards(later: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        fixed, discount = now
        target = fixed + discount * lambda_ * later
        return target, target

    steps = horizon_second(fixed), horizon_second(discount)
    return horizon_second(lax.scan(backwards, value[:, -1], steps, reverse=True, unroll=True)[1])


def weighted_means(trajectory: Trajectory, values: PER_STEP) -> Float[Array, " behaviors"]:
    """The mean over imagined steps, each weighted by its discount."""
    return (trajectory.weights * values).mean((1, 2))


# --- Bounds and scales ---


def widen_range(stats: Stats, reward: PER_STEP) -> Stats:
    """The range of rewards, widened by these."""
    low, high = shards.minimum(reward.min((1, 2))), shards.maximum(reward.max((1, 2)))
    return stats._replace(reward_low=jnp.minimum(stats.reward_low, low), reward_high=jnp.maximum(stats.reward_high, high))


def value_limits(stats: Stats, config: ActorCriticConfig) -> tuple[Float[Array, " behaviors"], Float[Array, " behaviors"]]:
    """The smallest and largest return that rewards in their range allow."""
    rate = 1 - config.discount
    return (stats.reward_low / rate, stats.reward_high / rate) if rate else (-jnp.inf, jnp.inf)  # type: ignore[return-value]


def bound_values(values: PER_STEP, stats: Stats, config: ActorCriticConfig) -> PER_STEP:
    """Values no further than rewards in their range could add up to. A sound critic's are left as they are."""
    if not config.bound_values or config.discount == 1:
        return values
    return clip_through(values, *value_limits(stats, config))


def clip_through(x: PER_STEP, low: Float[Array, " behaviors"], high: Float[Array, " behaviors"]) -> PER_STEP:
    """Numbers within their behaviour's bounds; the gradient passes as if there were none.

    A reward head that predicts slightly less than the smallest reward must not cut the actor off from its gradient.
    """
    bounded = jnp.clip(lax.stop_gradient(x), low[:, None, None], high[:, None, None])
    return bounded + (x - lax.stop_gradient(x))  # in brackets: exactly 0


def update_return_range(stats: Stats, returns: PER_STEP, update: Int[Array, ""]) -> Stats:
    """The running percentiles of returns, moved towards those of this batch."""
    flat = returns.reshape(len(returns), -1)
    sampled = shards.gather(flat[:, :: max(1, flat.shape[1] * shards.count() // SAMPLES)], axis=1)
    low, high = jnp.percentile(sampled, jnp.array([5.0, 95.0]), axis=1)
    return stats._replace(
        return_low=running_mean(stats.return_low, low, RETURN_RATE, update),
        return_high=running_mean(stats.return_high, high, RETURN_RATE, update),
    )


def running_mean(old: Array, new: Array, rate: float, update: Int[Array, ""]) -> Array:
    """An exponential moving average that starts with the first value."""
    return jnp.where(update == 0, new, (1 - rate) * old + rate * new)


def return_scale(stats: Stats, config: ActorCriticConfig) -> Float[Array, " behaviors"]:
    """What the actors' gradients are divided by: the range of returns, or that of single rewards if it is larger."""
    if not config.normalize_returns:
        return jnp.ones_like(stats.return_low)
    smallest = jnp.maximum(stats.reward_high - stats.reward_low, 1e-8)
    return jnp.maximum(stats.return_high - stats.return_low, smallest)


# --- Losses ---


def actor_loss(
    policy: Policy,
    actors: Actor,
    trajectory: Trajectory,
    noise: Noise,
    action_grads: Float[Array, "horizon behaviors starts action"] | None,
    baseline: PER_STEP,
    stats: Stats,
    config: ActorCriticConfig,
    explorers: int = 0,
) -> tuple[Float[Array, ""], dict[str, Float[Array, " behaviors"]]]:
    """A loss with the gradient of minus the objective and the entropy, and metrics of the policies.

    The first `explorers` behaviours have the explorer's weight of the entropy.
    """
    weights = jnp.where(jnp.arange(len(trajectory.returns)) < explorers, config.explorer_entropy, config.entropy)
    output, noise_of_action = per_behavior(actors, trajectory.features), horizon_second(noise.action)
    count, scale = trajectory.returns.shape[-1], return_scale(stats, config)[:, None, None]
    real, real_noise = output[:, :, :count], noise_of_action[:, :, :count]
    loss = jnp.zeros(())
    if action_grads is None:
        advantage = (trajectory.returns - baseline) / scale
        loss -= weighted_means(trajectory, advantage * policy.log_prob(real, real_noise)).sum()
    else:  # move each action where its perturbation should have gone
        loss -= (horizon_second(action_grads) / scale[..., None] * policy.sample(output, noise_of_action)).sum()
    metrics = {"std": lax.stop_gradient(policy.spread(real)).mean((1, 2))}
    if config.entropy or config.explorer_entropy:
        entropy = policy.entropy(real, real_noise)
        loss -= (weights * weighted_means(trajectory, entropy)).sum()
        metrics["entropy"] = lax.stop_gradient(entropy).mean((1, 2))
    return loss, metrics


def critic_loss(critics: ScalarHead, trajectory: Trajectory) -> tuple[Float[Array, " behaviors"], PER_STEP]:
    """Each critic's loss against the returns, weighted like them, and its values."""
    output = jax.vmap(lambda critic, features: critic.mlp(features))(critics, trajectory.features)
    output = output[:, :, : trajectory.returns.shape[-1]]
    losses = weighted_means(trajectory, critics.loss(output, trajectory.returns))
    return losses, lax.stop_gradient(critics.mean(output))
