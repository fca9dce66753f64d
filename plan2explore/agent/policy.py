"""Acting: what a batch of environments should do next, given what was carried from their last step."""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from plan2explore.agent.agent import Agent, Rows
from plan2explore.agent.distributions import tanh_normal_mode, tanh_normal_sample
from plan2explore.agent.world_model import Observation, State, draw_normal

Mode = Literal["sample", "noise", "mode"]


class Carried(NamedTuple):
    """What a policy carries from one step of its environments to the next."""

    state: State
    action: Float[Array, "environments action"]


def carry(agent: Agent, environments: int) -> Carried:
    """What a policy carries before its first step: nothing."""
    sizes = agent.sizes
    state = State(*(jnp.zeros((environments, size), agent.dtype) for size in (sizes.deter, sizes.stoch)))
    return Carried(state, jnp.zeros((environments, sizes.action)))


def choose_row(agent: Agent, task: int | None) -> int | None:
    """The behaviour of a task, or the one that collects for the objective: none if that acts at random."""
    if task is not None and not 0 <= task < len(agent.tasks):
        raise ValueError(f"There is no task {task}: the agent has {len(agent.tasks)}, counted from 0.")
    if task is None and agent.objective.collector == "uniform":
        return None
    if task is None and agent.objective.collector == "explorer":
        return 0
    return agent.explorers + (task or 0)


def act_uniformly(carried: Carried, key: PRNGKeyArray) -> tuple[Float[Array, "environments action"], Carried]:
    """Any action, each as likely as another."""
    action = jax.random.uniform(key, carried.action.shape, minval=-1.0, maxval=1.0)
    return action, carried._replace(action=action)


def act(
    agent: Agent,
    rows: Rows,
    row: Int[Array, ""],
    carried: Carried,
    observation: Observation,
    first: Bool[Array, " environments"],
    key: PRNGKeyArray,
    mode: Mode,
) -> tuple[Float[Array, "environments action"], Carried]:
    """One behaviour's actions, and what to carry on. `first` marks the first steps of episodes."""
    state_key, action_key, noise_key = jax.random.split(key, 3)
    before, last = jax.tree.map(lambda part: jnp.where(first[:, None], 0, part).astype(part.dtype), carried)
    model = agent.read("model", rows["model"])
    actor = agent.layouts["actor"].read(rows["actor"][row].astype(agent.dtype))
    noise = draw_normal(state_key, *before.stoch.shape)
    state = model.rssm.infer(before, last.astype(agent.dtype), model.encode(observation), noise)
    policy = actor(state.features)
    if mode == "mode":
        action = tanh_normal_mode(policy)
    else:
        action = tanh_normal_sample(policy, draw_normal(action_key, *last.shape))
    if mode == "noise":
        action = action + agent.config.behavior.action_noise * draw_normal(noise_key, *last.shape)
    action = jnp.clip(action, -1, 1)
    return action, Carried(state, action)
