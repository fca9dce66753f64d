"""Looking into an agent: the states that its model infers, the intrinsic reward along an episode, open-loop predictions.

Sequences are time-major, (time, batch, ...), as everywhere in the agent. Each function is compiled once for an
agent and a length.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray, UInt8

from plan2explore.agent.agent import Agent, Params
from plan2explore.agent.intrinsic.objective import Transition
from plan2explore.agent.world_model import Observation, Sequences, State, WorldModel, infer_states

CONTEXT = 5
"""Observations that the model is given before it predicts open-loop."""
Actions = Float[Array, "time batch action"]
"""Actions as they are stored: number t is a_(t-1), which led to observation t."""


def as_sequences(agent: Agent, observation: Observation, actions: Actions) -> Sequences:
    """One episode's steps, without rewards, as the networks take them."""
    never = jnp.zeros(actions.shape[:2], bool)
    return Sequences(observation, actions.astype(agent.dtype), jnp.zeros((*actions.shape[:2], 0)), never, never)


@partial(jax.jit, static_argnums=0)
def posterior_states(agent: Agent, params: Params, observation: Observation, actions: Actions, key: PRNGKeyArray) -> State:
    """The states that the model infers along sequences, as it does in training: samples of the posterior."""
    model = agent.network("model", params["model"])
    return infer_states(model, as_sequences(agent, observation, actions), key)[0]


@partial(jax.jit, static_argnums=0)
def intrinsic_rewards(
    agent: Agent, params: Params, observation: Observation, actions: Actions, key: PRNGKeyArray
) -> Float[Array, "steps batch"]:
    """The intrinsic reward of every step from t to t + 1: for Plan2Explore, disagreement times its scale.

    It has one step less than the sequence: entry t is the disagreement after the action that led to observation t + 1.
    """
    reward = agent.objective.reward
    if reward is None:
        raise ValueError(f"The objective {agent.config.intrinsic.objective!r} has no reward of its own.")
    states = posterior_states(agent, params, observation, actions, key)
    before, after = (State(*(part[cut] for part in states)) for cut in (slice(None, -1), slice(1, None)))
    steps = Transition(before, actions[1:].astype(agent.dtype), after)
    return reward(agent.network("intrinsic", params["intrinsic"]), steps, agent.config.intrinsic).astype(jnp.float32)


@partial(jax.jit, static_argnums=(0, 5))
def open_loop(
    agent: Agent,
    params: Params,
    observation: Observation,
    actions: Actions,
    key: PRNGKeyArray,
    context: int = CONTEXT,
) -> Observation:
    """The model's predictions: `context` steps with observations, the rest from the actions alone.

    Images have values around -0.5 to 0.5, as `center` makes them. Imagined states are the prior's modes, so that what
    differs from the truth is the model's error and not noise.
    """
    model: WorldModel = agent.network("model", params["model"])
    given = Observation(*(None if part is None else part[:context] for part in observation))
    known = infer_states(model, as_sequences(agent, given, actions[:context]), key)[0]

    def step(state: State, action: Float[Array, "batch action"]) -> tuple[State, State]:
        after = model.rssm.imagine(state, action, None)
        return after, after

    imagined = lax.scan(step, State(*(part[-1] for part in known)), actions[context:].astype(agent.dtype))[1]
    return model.decode(jnp.concatenate([known.features, imagined.features]))


def to_pixels(image: Float[np.ndarray, "..."]) -> UInt8[np.ndarray, "..."]:
    """Decoded images as bytes."""
    return np.clip(np.round((image + 0.5) * 255), 0, 255).astype(np.uint8)


def difference(true: UInt8[np.ndarray, "..."], imagined: UInt8[np.ndarray, "..."]) -> UInt8[np.ndarray, "..."]:
    """Half the difference of imagined and true images, on grey."""
    return np.clip((imagined.astype(int) - true) // 2 + 128, 0, 255).astype(np.uint8)
