"""Curiosity: seek states whose observation the world model predicts badly, learnable or not.

What the model misses is known only once the observation is there, so a head learns to foretell it from
states.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from plan2explore.agent.behavior import Scalar
from plan2explore.agent.experience import Experience, Sizes, Transition
from plan2explore.agent.novelty.objective import Metrics, Objective
from plan2explore.config import NoveltyConfig


def init(config: NoveltyConfig, sizes: Sizes, key: PRNGKeyArray) -> Scalar:
    """The head that foretells the world model's loss."""
    return Scalar(sizes.deter + sizes.stoch, config.width, config.depth, key)


def loss(
    head: Scalar, experience: Experience, key: PRNGKeyArray, config: NoveltyConfig
) -> tuple[Float[Array, ""], Metrics]:
    """Squared error against the loss. Not at a sequence's first step, where the model starts from nothing."""
    foretold = head(experience.transitions().after.features)
    surprise = config.curiosity_scale * experience.surprise[1:]
    return 0.5 * jnp.square(foretold - surprise).mean(), {"surprise": surprise.mean()}


def reward(head: Scalar, transition: Transition, config: NoveltyConfig) -> Float[Array, "*steps"]:
    """The loss to be expected in the state that is reached."""
    return head(transition.after.features)


OBJECTIVE = Objective(init, loss, reward)
