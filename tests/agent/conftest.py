"""A nano agent whose compiled updates all tests of a worker share: compiling is what takes time here."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from plan2explore.agent.learner import Learner, LearnerState
from plan2explore.agent.parts import init_part
from plan2explore.config import AgentConfig, BehaviorConfig, ModelConfig, NoveltyConfig, Spaces

NANO = AgentConfig(
    model=ModelConfig(
        deter=8,
        stoch=4,
        hidden=8,
        conv_depth=2,
        proprio_width=6,
        reward_width=8,
        reward_depth=1,
        free_nats=0.0,
        unroll=1,
    ),
    novelty=NoveltyConfig(members=3, width=8),
    behavior=BehaviorConfig(
        horizon=3, actor_width=8, actor_depth=1, critic_width=8, critic_depth=1, unroll=1
    ),
    batch=3,
    length=4,
    precision="float32",
)
SPACES = Spaces(action=2, image=None, proprio=5, tasks=2)


@cache
def nano_learner(objective: str = "plan2explore", gradient: str = "through", tasks: int = 2) -> Learner:
    """A nano learner for an objective, the same one each time."""
    novelty = replace(NANO.novelty, objective=objective, gradient=gradient)
    return Learner(replace(NANO, novelty=novelty), replace(SPACES, tasks=tasks))


def nano_batch(seed: int = 0, blocks: tuple[int, ...] = ()) -> dict[str, jax.Array]:
    """Random sequences for a nano learner."""
    rng = np.random.default_rng(seed)
    shape = (*blocks, NANO.batch, NANO.length)
    return {
        "proprio": jnp.asarray(rng.normal(size=(*shape, 5)), jnp.float32),
        "action": jnp.asarray(rng.uniform(-1, 1, (*shape, 2)), jnp.float32),
        "reward": jnp.asarray(rng.normal(size=(*shape, 2)), jnp.float32),
    }


def random_state(learner: Learner, seed: int = 0) -> LearnerState:
    """A state with random parameters, made without compiling the real initialisation."""
    rng = np.random.default_rng(seed)
    parts = {
        name: init_part(
            jnp.asarray(rng.normal(0, 0.3, (len(learner.agent.labels(name)), layout.size)), jnp.float32)
        )
        for name, layout in learner.agent.layouts.items()
    }
    return LearnerState(parts, jnp.zeros((), jnp.int32), jax.random.key(seed))


@pytest.fixture(scope="session")
def state_of() -> Callable[..., LearnerState]:
    return random_state


@pytest.fixture(scope="session")
def learner_of() -> Callable[..., Learner]:
    return nano_learner


@pytest.fixture(scope="session")
def batch_of() -> Callable[..., dict[str, jax.Array]]:
    return nano_batch


@pytest.fixture(scope="session")
def nano() -> AgentConfig:
    return NANO


@pytest.fixture(scope="session")
def spaces() -> Spaces:
    return SPACES
