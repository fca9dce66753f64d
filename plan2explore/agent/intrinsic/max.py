"""MAX: seek states where Gaussian one-step models differ, by the Jensen-Renyi divergence (Shyam et al., 2019).

Members predict a mean and a variance, so that noise which all of them expect earns no reward.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from plan2explore.agent.intrinsic.ensemble import (
    Ensemble,
    bootstrap_mean,
    input_size,
    one_step_inputs,
    one_step_targets,
    target_size,
)
from plan2explore.agent.intrinsic.objective import Experience, Metrics, Objective, Sizes, Transition
from plan2explore.config import IntrinsicConfig

Prediction = Float[Array, "members *steps outputs"]


def init(config: IntrinsicConfig, sizes: Sizes, key: PRNGKeyArray) -> Ensemble:
    """One-step models with two outputs for each dimension of the target."""
    return Ensemble(config, input_size(config, sizes), 2 * target_size(config, sizes), key)


def predict(ensemble: Ensemble, steps: Transition, config: IntrinsicConfig) -> tuple[Prediction, Prediction]:
    """Each member's mean and log-variance, which is kept softly between its bounds."""
    mean, raw = jnp.split(ensemble(one_step_inputs(steps, config)), 2, -1)
    low, high = config.max_log_variance
    return mean, low + jax.nn.softplus(high - low - jax.nn.softplus(high - raw))


def loss(
    ensemble: Ensemble, experience: Experience, key: PRNGKeyArray, config: IntrinsicConfig
) -> tuple[Float[Array, ""], Metrics]:
    """The members' negative log-likelihoods, less their constant; or squared errors with untrained variances."""
    mean, log_variance = predict(ensemble, experience.transitions(), config)
    squares = jnp.square(mean - one_step_targets(experience, config).astype(jnp.float32))
    costs = squares * jnp.exp(-log_variance) + log_variance if config.max_variance == "trained" else squares
    losses = bootstrap_mean(experience, 0.5 * costs.sum(-1), key, config)
    return losses.sum(), {"member_loss": losses.mean(), "log_variance": log_variance.mean()}


def reward(ensemble: Ensemble, transition: Transition, config: IntrinsicConfig) -> Float[Array, "*steps"]:
    """The members' divergence."""
    mean, log_variance = predict(ensemble, transition, config)
    return jensen_renyi(mean, jnp.exp(log_variance), config.max_reduce)


def jensen_renyi(
    mean: Float[Array, "members *batch event"], variance: Float[Array, "members *batch event"], reduce: str = "sum"
) -> Float[Array, "*batch"]:
    """The Jensen-Renyi divergence (order 2) of Gaussians with independent dimensions.

    The Renyi entropy of the members' mixture, less the mean of theirs; in closed form, with D dimensions,
    -ln mean_ij exp(-1/2 sum_d [(m_i - m_j)^2 / (v_i + v_j) + ln(v_i + v_j)]) - mean_k 1/2 sum_d ln v_k - D/2 ln 2.
    It cannot exceed the logarithm of the number of members, and in many dimensions it is there everywhere. With
    `reduce="mean"` sums over dimensions are means: the same ranking of single dimensions, but far from that limit.
    """
    members, total = mean.shape[0], getattr(jnp, reduce)
    dimensions = mean.shape[-1] if reduce == "sum" else 1
    # Each unordered pair once: the members are few, but a state has many dimensions.
    one, other = np.triu_indices(members)
    spread = variance[one] + variance[other]
    overlap = -0.5 * total((mean[one] - mean[other]) ** 2 / spread + jnp.log(spread), -1)
    count = np.where(one == other, 1, 2).reshape(-1, *[1] * (mean.ndim - 2))
    mixture = -jax.nn.logsumexp(overlap, 0, b=count / members**2)
    own = 0.5 * total(jnp.log(variance), -1).mean(0)
    return mixture - own - 0.5 * dimensions * np.log(2)


OBJECTIVE = Objective(init, loss, reward)
