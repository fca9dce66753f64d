"""Nano agents and hand-made worlds whose answers are known."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from plan2explore.agent.actor_critic import init_stats
from plan2explore.agent.learner import Learner, LearnerState
from plan2explore.agent.optimizer import init_train_state
from plan2explore.config import AgentConfig, modern_tiny, tiny

Arrays = dict[str, np.ndarray]

SMALL_MODEL = dict(
    deter=16, hidden=16, conv_depth=2, proprio_width=8, proprio_depth=1, reward_width=8, reward_depth=1, free_nats=0.0
)
SMALL_BEHAVIOR = dict(horizon=3, actor_width=8, actor_depth=1, critic_width=8, critic_depth=1)
PAPER = replace(
    tiny,
    model=replace(tiny.model, stoch=4, **SMALL_MODEL),
    intrinsic=replace(tiny.intrinsic, members=2, width=8, depth=1),
    actor_critic=replace(tiny.actor_critic, **SMALL_BEHAVIOR),
    batch=3,
    length=6,
)
"""The paper's pieces: Gaussian states, a GRU, gradients through imagined states."""
MODERN = replace(
    modern_tiny,
    model=replace(modern_tiny.model, stoch=3, classes=4, blocks=2, **SMALL_MODEL),
    intrinsic=replace(modern_tiny.intrinsic, members=2, width=8, depth=1),
    actor_critic=replace(modern_tiny.actor_critic, **SMALL_BEHAVIOR),
    batch=3,
    length=6,
    warmup=0,
)
"""DreamerV3's pieces: categorical states, a block GRU, two-hot heads, REINFORCE."""


def change(config: AgentConfig, **sections: dict[str, object]) -> AgentConfig:
    """A configuration with settings of its sections changed: `change(PAPER, model=dict(stoch=2), batch=4)`."""
    return replace(
        config,
        **{name: replace(getattr(config, name), **new) if isinstance(new, dict) else new for name, new in sections.items()},
    )


def windows(stream: Arrays, batch: int, length: int, rng: np.random.Generator, count: int | None = None) -> Arrays:
    """Random windows of a stream of steps, (batch, length, ...), or a stack of `count` such batches."""
    shape = (batch,) if count is None else (count, batch)
    starts = rng.integers(0, len(stream["action"]) - length + 1, shape)
    index = starts[..., None] + np.arange(length)
    return {name: each[index] for name, each in stream.items()}


def random_state(learner: Learner, seed: int = 0, scale: float = 0.3) -> LearnerState:
    """A state with random parameters, made without compiling the real initialisation."""
    rng, agent = np.random.default_rng(seed), learner.agent
    networks = {
        name: init_train_state(jnp.asarray(rng.normal(0, scale, (layout.rows, layout.size)), jnp.float32))
        for name, layout in agent.layouts.items()
    }
    slow = jnp.copy(networks["critic"].params) if agent.config.actor_critic.slow_critic else jnp.zeros((0, 0))
    update = jnp.zeros((), jnp.int32)
    return LearnerState(networks, slow, init_stats(len(agent.behaviors)), update, jax.random.key(seed))


class Fixed(eqx.Module):
    """Actors that say the same in every state."""

    output: Array

    def __call__(self, features: Array) -> Array:
        return jnp.broadcast_to(self.output, (*features.shape[:-1], self.output.size))
