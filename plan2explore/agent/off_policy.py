"""Task policies learned from replay instead of imagination: TD3 (Fujimoto et al., 2018) on the world model's states.

What exploration collected is diverse enough for plain off-policy learning once it is relabelled with a task's reward (ExORL,
Yarats et al., 2022). Its targets are steps that really happened, so a policy cannot profit from what the world model gets
wrong, such as a wall that gives way a little in every imagined step. Differences from TD3: the noise of the target's
actions is the policy's own, whose std has a floor, and actor and target networks are updated every time.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from plan2explore.agent import shards
from plan2explore.agent.actor_critic import Stats, bound_values, per_behavior, value_limits
from plan2explore.agent.heads import ScalarHead
from plan2explore.agent.policies import Actor, Policy
from plan2explore.agent.world_model import Sequences
from plan2explore.config import ActorCriticConfig

START_STD, MAX_STD = 0.1, 0.2
"""Of a policy that learns from replay, above the floor of its std: the greedy action matters, and noise blurs its values."""
TARGET_RATE = 0.1
"""Rate of the critics' moving average. A target passes a reward on by about one step each 1 / rate updates: with few updates
and distant rewards, a slower average does not reach the start."""
PER_STEP = Float[Array, "tasks time batch"]


class TwinCritic(eqx.Module):
    """Two estimates of the value of an action in a state, in units of the task's range of rewards; the smaller one is
    believed."""

    heads: ScalarHead

    def __init__(self, features: int, action: int, config: ActorCriticConfig, key: PRNGKeyArray) -> None:
        def head(key: PRNGKeyArray) -> ScalarHead:
            inputs, width, depth = features + action, config.critic_width, config.critic_depth
            return ScalarHead(inputs, width, depth, key, "mse", config.norm)

        self.heads = eqx.filter_vmap(head)(jax.random.split(key))

    def outputs(self, features: Array, action: Array) -> Array:
        """Both heads' last layers."""
        inputs = jnp.concatenate([features, action.astype(features.dtype)], -1)
        return eqx.filter_vmap(lambda head: head.mlp(inputs))(self.heads)

    def value(self, features: Array, action: Array) -> Array:
        """The smaller estimate."""
        return self.heads.mean(self.outputs(features, action)).min(0)


def replay_losses(
    policy: Policy,
    actors: Actor,
    critics: TwinCritic,
    slow_critics: TwinCritic,
    features: Float[Array, "time batch features"],
    batch: Sequences,
    stats: Stats,
    config: ActorCriticConfig,
    key: PRNGKeyArray,
) -> tuple[Float[Array, ""], tuple[Float[Array, " tasks"], dict[str, Float[Array, " tasks"]]]]:
    """The loss of every task's actor and critic on the transitions of a batch; also each task's critic loss, and metrics."""
    tasks, (time, count, _) = len(stats.reward_low), features.shape
    before, after = (jnp.broadcast_to(part, (tasks, *part.shape)) for part in (features[:-1], features[1:]))
    action = jnp.broadcast_to(batch.actions[1:], (tasks, *batch.actions[1:].shape))
    rewards, valid = jnp.moveaxis(batch.rewards, -1, 0)[:, 1:], ~batch.is_first[1:]

    def mean(x: PER_STEP) -> Float[Array, " tasks"]:
        return (x * valid).sum((1, 2)) / jnp.maximum(shards.mean(valid.sum()), 1)

    def value(critics: TwinCritic, features: Array, action: Array) -> PER_STEP:
        return jax.vmap(lambda critic, f, a: critic.value(f, a))(critics, features, action)

    noise, next_noise = (policy.noise(each, tasks, time - 1, count) for each in jax.random.split(key))
    next_action = policy.sample(per_behavior(actors, after), next_noise)
    unit = jnp.maximum(stats.reward_high - stats.reward_low, 1e-8)
    scaled = stats._replace(reward_low=stats.reward_low / unit, reward_high=stats.reward_high / unit)
    discount = config.discount * ~batch.is_terminal[1:]
    bootstrap = bound_values(value(slow_critics, after, next_action), scaled, config)
    target = lax.stop_gradient(rewards / unit[:, None, None] + discount * bootstrap)
    outputs = jax.vmap(lambda critic, f, a: critic.outputs(f, a))(critics, before, action)
    critic_losses = mean(critics.heads.loss(outputs, target[:, None]).sum(1))

    output = per_behavior(actors, before)
    values = value(lax.stop_gradient(critics), before, policy.sample(output, noise))
    scale = lax.stop_gradient(jnp.maximum(shards.mean(mean(jnp.abs(values))), 1e-8))
    entropy = policy.entropy(output, noise)
    actor_losses = -mean(values) / scale - config.entropy * mean(entropy)
    metrics = {
        "reward": mean(rewards),
        "value": mean(values) * unit,
        "value_limit": jnp.maximum(*map(jnp.abs, value_limits(stats, config))) * jnp.ones(tasks),
        "critic_loss": critic_losses,
        "std": mean(policy.spread(output)),
        "entropy": mean(entropy),
    }
    return actor_losses.sum() + critic_losses.sum(), (critic_losses, lax.stop_gradient(metrics))
