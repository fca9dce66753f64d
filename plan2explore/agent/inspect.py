"""Looking into an agent: what its model made of an episode, where it was curious, and how it thinks things go on.

Sequences are time-major, (time, batch, ...), as everywhere in the agent. Each function is compiled once for an
agent and a length.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray, UInt8

from plan2explore.agent.agent import Agent, Rows
from plan2explore.agent.experience import Transition
from plan2explore.agent.world_model import Observation, State, WorldModel, infer_states

CONTEXT = 5
"""Steps that the model sees before it goes on alone."""
Actions = Float[Array, "time batch action"]
"""Actions as they are stored: number t is a_(t-1), which led to observation t."""


@partial(jax.jit, static_argnums=0)
def posterior_states(
    agent: Agent, rows: Rows, observation: Observation, actions: Actions, key: PRNGKeyArray
) -> State:
    """The states that the model infers along sequences, as it does in training: samples of the posterior."""
    model = agent.read("model", rows["model"])
    return infer_states(model, observation, actions.astype(agent.dtype), key).observed.states


@partial(jax.jit, static_argnums=0)
def disagreement_along(
    agent: Agent, rows: Rows, observation: Observation, actions: Actions, key: PRNGKeyArray
) -> Float[Array, "steps batch"]:
    """The objective's reward for every step from t to t + 1: for Plan2Explore, disagreement times its scale.

    It has one step less than the sequence: entry t is what the ensemble disagrees about after the action that
    led to observation t + 1.
    """
    reward = agent.objective.reward
    if reward is None:
        raise ValueError(f"The objective {agent.config.novelty.objective!r} has no reward of its own.")
    states = posterior_states(agent, rows, observation, actions, key)
    before, after = (State(*(part[cut] for part in states)) for cut in (slice(None, -1), slice(1, None)))
    steps = Transition(before, actions[1:].astype(agent.dtype), after)
    return reward(agent.read("novelty", rows["novelty"]), steps, agent.config.novelty).astype(jnp.float32)


@partial(jax.jit, static_argnums=(0, 5))
def open_loop(
    agent: Agent,
    rows: Rows,
    observation: Observation,
    actions: Actions,
    key: PRNGKeyArray,
    context: int = CONTEXT,
) -> Observation:
    """What the model sees in its mind: `context` steps with eyes open, the rest from the actions alone.

    Pictures have values around -0.5 to 0.5, as `center` makes them. Imagined states are the prior's means, so
    that what differs from the truth is the model's error and not chance.
    """
    model: WorldModel = agent.read("model", rows["model"])
    seen = Observation(*(None if part is None else part[:context] for part in observation))
    actions = actions.astype(agent.dtype)
    known = infer_states(model, seen, actions[:context], key).observed.states
    silence = jnp.zeros(known.stoch.shape[1:])

    def step(state: State, action: Float[Array, "batch action"]) -> tuple[State, State]:
        after = model.rssm.imagine(state, action, silence)
        return after, after

    dreamt = lax.scan(step, State(*(part[-1] for part in known)), actions[context:])[1]
    features = jnp.concatenate([known.features, dreamt.features])
    image, proprio = model.image_decoder, model.proprio_decoder
    return Observation(
        None if image is None else image(features).astype(jnp.float32),
        None if proprio is None else proprio(features).astype(jnp.float32),
    )


def to_pixels(image: Float[np.ndarray, "..."]) -> UInt8[np.ndarray, "..."]:
    """Decoded pictures as bytes."""
    return np.clip(np.round((image + 0.5) * 255), 0, 255).astype(np.uint8)


def difference(true: UInt8[np.ndarray, "..."], imagined: UInt8[np.ndarray, "..."]) -> UInt8[np.ndarray, "..."]:
    """Half of what was imagined too bright or too dark, on grey."""
    return np.clip((imagined.astype(int) - true) // 2 + 128, 0, 255).astype(np.uint8)
