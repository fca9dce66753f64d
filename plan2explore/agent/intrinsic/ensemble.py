"""Latent disagreement: one-step models, and how far apart their predictions are (equations 3 and 4)."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from plan2explore.agent.fast import linear
from plan2explore.agent.fast.disagreement import ensemble_variance, mean_variance
from plan2explore.agent.intrinsic.objective import Experience, Sizes, Transition
from plan2explore.agent.networks import MLP
from plan2explore.config import IntrinsicConfig


class Ensemble(eqx.Module):
    """K one-step models as one network: each of its arrays has a leading axis of members."""

    members: MLP

    def __init__(self, config: IntrinsicConfig, inputs: int, outputs: int, key: PRNGKeyArray) -> None:
        def member(key: PRNGKeyArray) -> MLP:
            return MLP(inputs, outputs, config.width, config.depth, key=key, relu=True)

        self.members = eqx.filter_vmap(member)(jax.random.split(key, config.members))

    def __call__(self, inputs: Float[Array, "*steps inputs"]) -> Float[Array, "members *steps outputs"]:
        """Every member's prediction for the same inputs."""
        return eqx.filter_vmap(lambda member: member(inputs))(self.members).astype(jnp.float32)


def input_size(config: IntrinsicConfig, sizes: Sizes) -> int:
    """Numbers in the input of a one-step model."""
    return {"deter": sizes.deter, "state": sizes.deter + sizes.stoch}[config.inputs] + sizes.action


def target_size(config: IntrinsicConfig, sizes: Sizes) -> int:
    """Numbers in the target of a one-step model."""
    state = {"deter": sizes.deter, "stoch": sizes.stoch, "state": sizes.deter + sizes.stoch}
    return (state | {"embedding": sizes.embedding})[config.target]


def one_step_inputs(transition: Transition, config: IntrinsicConfig) -> Float[Array, "*steps inputs"]:
    """What stands for (s_t, a_t), in training and in imagination.

    `deter` is the recurrent state *after* the action: deter_(t+1) = f(s_t, a_t) knows both.
    """
    seen = transition.after.deter if config.inputs == "deter" else transition.before.features
    return jnp.concatenate([seen, transition.action.astype(seen.dtype)], -1)


def one_step_targets(experience: Experience, config: IntrinsicConfig) -> Float[Array, "steps batch outputs"]:
    """What the one-step models should predict: h_(t+1), or one of the appendix's variants."""
    after = experience.transitions().after
    if config.target == "embedding":
        return experience.embeddings[1:]
    return {"stoch": after.stoch, "deter": after.deter, "state": after.features}[config.target]


def bootstrap_weights(key: PRNGKeyArray, members: int, sequences: int) -> Float[Array, "members sequences"]:
    """How often each member draws each sequence when it resamples them with replacement.

    A sequence's loss times this count is the same as training on the resampled batch.
    """
    drawn = jax.random.randint(key, (members * sequences,), 0, sequences).reshape(members, sequences)
    return jax.nn.one_hot(drawn, sequences).sum(1)


def bootstrap_mean(
    experience: Experience, losses: Float[Array, "members steps sequences"], key: PRNGKeyArray, config: IntrinsicConfig
) -> Float[Array, " members"]:
    """Each member's mean loss over the sequences that it drew, or over all of them without a bootstrap."""
    if config.bootstrap:
        losses = losses * bootstrap_weights(key, losses.shape[0], losses.shape[2])[:, None]
    return experience.mean(losses)


def ensemble_loss(
    ensemble: Ensemble, experience: Experience, key: PRNGKeyArray, config: IntrinsicConfig
) -> Float[Array, " members"]:
    """Each member's squared error: equation 3's negative log-likelihood, less its constant, or the mean error."""
    predictions = ensemble(one_step_inputs(experience.transitions(), config))
    targets = one_step_targets(experience, config).astype(jnp.float32)
    squares = jnp.square(predictions - targets)
    losses = 0.5 * squares.sum(-1) if config.loss == "sum" else squares.mean(-1)
    return bootstrap_mean(experience, losses, key, config)


def disagreement(predictions: Float[Array, "members *steps outputs"]) -> Float[Array, "*steps"]:
    """The variance over members, 1/(K-1), averaged over dimensions (equation 4)."""
    return mean_variance(list(predictions))


def ensemble_disagreement(ensemble: Ensemble, inputs: Float[Array, "*steps inputs"]) -> Float[Array, "*steps"]:
    """`disagreement(ensemble(inputs))`; on a GPU in the form that moves the least memory."""
    return ensemble_variance(ensemble.members, inputs) if linear.on_gpu() else disagreement(ensemble(inputs))
