"""Acting: the next actions of a batch of environments, given what was carried from their last step."""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from plan2explore.agent.agent import Agent, Params
from plan2explore.agent.world_model import Observation, State

Mode = Literal["sample", "noise", "mode"]


class Carried(NamedTuple):
    """What a policy carries from one step of its environments to the next."""

    state: State
    action: Float[Array, "environments action"]


def choose_behavior(agent: Agent, task: int | None) -> int | None:
    """The behaviour of a task, or the one that collects for the objective: none if that acts at random."""
    if task is not None and not 0 <= task < len(agent.tasks):
        raise ValueError(f"There is no task {task}: the agent has {len(agent.tasks)}, counted from 0.")
    if task is None and agent.objective.collector == "uniform":
        return None
    if task is None and agent.objective.collector == "explorer":
        return 0
    return agent.explorers + (task or 0)


def act_uniformly(agent: Agent, carried: Carried, key: PRNGKeyArray) -> tuple[Float[Array, "environments action"], Carried]:
    """Uniformly random actions."""
    action = agent.policy.uniform(key, len(carried.action))
    return action, carried._replace(action=action)


def act(
    agent: Agent,
    params: Params,
    behavior: Int[Array, ""],
    carried: Carried,
    observation: Observation,
    is_first: Bool[Array, " environments"],
    key: PRNGKeyArray,
    mode: Mode,
) -> tuple[Float[Array, "environments action"], Carried]:
    """One behaviour's actions, and what to carry on. `is_first` marks the first steps of episodes."""
    state_key, action_key, noise_key = jax.random.split(key, 3)
    before, last = jax.tree.map(lambda part: jnp.where(is_first[:, None], 0, part).astype(part.dtype), carried)
    model = agent.network("model", params["model"])
    actor = agent.layouts["actor"].network(params["actor"][behavior], agent.dtype)
    policy, count = agent.policy, len(last)
    noise = model.rssm.latent.noise(state_key, count)
    state, _ = model.rssm.infer(before, last.astype(agent.dtype), model.encode(observation), noise)
    output = actor(state.features)
    action = policy.mode(output) if mode == "mode" else policy.sample(output, policy.noise(action_key, count))
    if mode == "noise":
        action = policy.explore(action, agent.config.actor_critic.action_noise, noise_key)
    return action, Carried(state, action)
