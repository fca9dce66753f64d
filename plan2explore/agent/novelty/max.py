"""MAX: seek states where Gaussian one-step models differ, by the Jensen-Renyi divergence (Shyam et al.,
2019).

Members predict a mean and a variance, so that noise which all of them expect is not taken for novelty.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from plan2explore.agent.distributions import jensen_renyi
from plan2explore.agent.ensemble import (
    Ensemble,
    bootstrap_mean,
    input_size,
    one_step_inputs,
    one_step_targets,
    target_size,
)
from plan2explore.agent.experience import Experience, Sizes, Transition
from plan2explore.agent.novelty.objective import Metrics, Objective
from plan2explore.config import NoveltyConfig

Prediction = Float[Array, "members *steps outputs"]


def init(config: NoveltyConfig, sizes: Sizes, key: PRNGKeyArray) -> Ensemble:
    """One-step models with two outputs for each dimension of the target."""
    return Ensemble(config, input_size(config, sizes), 2 * target_size(config, sizes), key)


def predict(ensemble: Ensemble, steps: Transition, config: NoveltyConfig) -> tuple[Prediction, Prediction]:
    """Each member's mean and log-variance, which is kept softly between its bounds."""
    mean, raw = jnp.split(ensemble(one_step_inputs(steps, config)), 2, -1)
    low, high = config.max_log_variance
    return mean, low + jax.nn.softplus(high - low - jax.nn.softplus(high - raw))


def loss(
    ensemble: Ensemble, experience: Experience, key: PRNGKeyArray, config: NoveltyConfig
) -> tuple[Float[Array, ""], Metrics]:
    """The members' negative log-likelihoods, less their constant; or squared errors with untrained
    variances."""
    mean, log_variance = predict(ensemble, experience.transitions(), config)
    squares = jnp.square(mean - one_step_targets(experience, config).astype(jnp.float32))
    costs = squares * jnp.exp(-log_variance) + log_variance if config.max_variance == "trained" else squares
    losses = bootstrap_mean(0.5 * costs.sum(-1), key, config)
    return losses.sum(), {"member_loss": losses.mean(), "log_variance": log_variance.mean()}


def reward(ensemble: Ensemble, transition: Transition, config: NoveltyConfig) -> Float[Array, "*steps"]:
    """The members' divergence."""
    mean, log_variance = predict(ensemble, transition, config)
    return jensen_renyi(mean, jnp.exp(log_variance))


OBJECTIVE = Objective(init, loss, reward)
