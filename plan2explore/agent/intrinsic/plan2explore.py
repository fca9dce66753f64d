"""Plan2Explore: seek states whose consequences the one-step models disagree about."""

from jaxtyping import Array, Float, PRNGKeyArray

from plan2explore.agent.intrinsic.ensemble import (
    Ensemble,
    ensemble_disagreement,
    ensemble_loss,
    input_size,
    one_step_inputs,
    target_size,
)
from plan2explore.agent.intrinsic.objective import Experience, Metrics, Objective, Sizes, Transition
from plan2explore.config import IntrinsicConfig


def init(config: IntrinsicConfig, sizes: Sizes, key: PRNGKeyArray) -> Ensemble:
    """The ensemble of one-step models."""
    return Ensemble(config, input_size(config, sizes), target_size(config, sizes), key)


def loss(
    ensemble: Ensemble, experience: Experience, key: PRNGKeyArray, config: IntrinsicConfig
) -> tuple[Float[Array, ""], Metrics]:
    """Every member learns for itself: the sum of their losses."""
    losses = ensemble_loss(ensemble, experience, key, config)
    return losses.sum(), {"member_loss": losses.mean()}


def reward(ensemble: Ensemble, transition: Transition, config: IntrinsicConfig) -> Float[Array, "*steps"]:
    """Disagreement about the next step, scaled."""
    return config.scale * ensemble_disagreement(ensemble, one_step_inputs(transition, config))


OBJECTIVE = Objective(init, loss, reward)
