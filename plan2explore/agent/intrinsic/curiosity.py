"""Curiosity: seek states whose observation the world model predicts badly, learnable or not.

The model's loss is known only once the observation is there, so a head learns to predict it from states.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from plan2explore.agent.heads import ScalarHead
from plan2explore.agent.intrinsic.objective import Experience, Metrics, Objective, Sizes, Transition
from plan2explore.config import IntrinsicConfig


def init(config: IntrinsicConfig, sizes: Sizes, key: PRNGKeyArray) -> ScalarHead:
    """The head that predicts the world model's loss."""
    return ScalarHead(sizes.deter + sizes.stoch, config.width, config.depth, key)


def loss(
    head: ScalarHead, experience: Experience, key: PRNGKeyArray, config: IntrinsicConfig
) -> tuple[Float[Array, ""], Metrics]:
    """Squared error against the model's loss. Not at first steps, where the model starts from nothing."""
    predicted_loss = head(experience.transitions().after.features)
    model_loss = config.curiosity_scale * experience.model_loss[1:]
    return experience.mean(0.5 * jnp.square(predicted_loss - model_loss)), {"model_loss": experience.mean(model_loss)}


def reward(head: ScalarHead, transition: Transition, config: IntrinsicConfig) -> Float[Array, "*steps"]:
    """The predicted loss in the state that is reached."""
    return head(transition.after.features)


OBJECTIVE = Objective(init, loss, reward)
