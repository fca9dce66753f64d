"""A nano agent whose compiled updates all tests of a worker share: compiling is what takes time here."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from handmade import random_state

from plan2explore.agent.learner import Learner, LearnerState
from plan2explore.config import ActorCriticConfig, AgentConfig, IntrinsicConfig, ModelConfig, Spaces

NANO = AgentConfig(
    model=ModelConfig(
        deter=8, stoch=4, hidden=8, conv_depth=2, proprio_width=6, reward_width=8, reward_depth=1, free_nats=0.0, unroll=1
    ),
    intrinsic=IntrinsicConfig(members=3, width=8),
    actor_critic=ActorCriticConfig(horizon=3, actor_width=8, actor_depth=1, critic_width=8, critic_depth=1, unroll=1),
    batch=3,
    length=4,
    precision="float32",
)
MODERN = replace(
    NANO,
    model=replace(
        NANO.model, latent="categorical", core="block_gru", classes=3, blocks=2, prior_depth=2, norm=True, symlog=True,
        reward_head="two_hot", rep_scale=0.1,
    ),
    intrinsic=replace(NANO.intrinsic, normalize=True, scale=1.0),
    actor_critic=replace(
        NANO.actor_critic, actor_gradient="reinforce", critic_head="two_hot", norm=True, start_std=0.9, min_std=0.1,
        max_std=1.0, entropy=3e-4, normalize_returns=True, slow_critic=0.02,
    ),
    warmup=10,
)  # fmt: skip
"""The modern preset's pieces in the same sizes."""
SPACES = Spaces(action=2, image=None, proprio=5, tasks=2)


@cache
def nano_learner(objective: str = "plan2explore", gradient: str = "through", tasks: int = 2) -> Learner:
    """A nano learner for an objective, the same one each time."""
    intrinsic = replace(NANO.intrinsic, objective=objective, gradient=gradient)
    return Learner(replace(NANO, intrinsic=intrinsic), replace(SPACES, tasks=tasks))


@cache
def modern_learner() -> Learner:
    """A learner with the modern pieces, discrete actions and terminating episodes."""
    return Learner(MODERN, replace(SPACES, discrete=(2,), terminates=True))


def nano_batch(seed: int = 0, blocks: tuple[int, ...] = ()) -> dict[str, jax.Array]:
    """Random sequences for a nano learner: continuous, without the start or the end of an episode."""
    rng = np.random.default_rng(seed)
    shape = (*blocks, NANO.batch, NANO.length)
    return {
        "proprio": jnp.asarray(rng.normal(size=(*shape, 5)), jnp.float32),
        "action": jnp.asarray(rng.uniform(-1, 1, (*shape, 2)), jnp.float32),
        "reward": jnp.asarray(rng.normal(size=(*shape, 2)), jnp.float32),
        "is_first": jnp.zeros(shape, bool),
        "is_terminal": jnp.zeros(shape, bool),
    }


@pytest.fixture(scope="session")
def state_of() -> Callable[..., LearnerState]:
    return random_state


@pytest.fixture(scope="session")
def learner_of() -> Callable[..., Learner]:
    return nano_learner


@pytest.fixture(scope="session")
def modern() -> Learner:
    return modern_learner()


@pytest.fixture(scope="session")
def batch_of() -> Callable[..., dict[str, jax.Array]]:
    return nano_batch


@pytest.fixture(scope="session")
def nano() -> AgentConfig:
    return NANO


@pytest.fixture(scope="session")
def spaces() -> Spaces:
    return SPACES
