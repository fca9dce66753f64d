"""Latent disagreement: one-step models, and how far apart their predictions are (equations 3 and 4)."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from plan2explore.agent import products
from plan2explore.agent.experience import Experience, Sizes, Transition
from plan2explore.agent.networks import MLP
from plan2explore.config import NoveltyConfig


class Ensemble(eqx.Module):
    """K one-step models as one network: each of its arrays has a leading axis of members."""

    members: MLP

    def __init__(self, config: NoveltyConfig, inputs: int, outputs: int, key: PRNGKeyArray) -> None:
        def member(key: PRNGKeyArray) -> MLP:
            return MLP(inputs, outputs, config.width, config.depth, "relu", key=key)

        self.members = eqx.filter_vmap(member)(jax.random.split(key, config.members))

    def __call__(self, inputs: Float[Array, "*steps inputs"]) -> Float[Array, "members *steps outputs"]:
        """Every member's prediction for the same inputs."""
        return eqx.filter_vmap(lambda member: member(inputs))(self.members).astype(jnp.float32)


def input_size(config: NoveltyConfig, sizes: Sizes) -> int:
    """Numbers in what a one-step model sees."""
    return {"deter": sizes.deter, "state": sizes.deter + sizes.stoch}[config.inputs] + sizes.action


def target_size(config: NoveltyConfig, sizes: Sizes) -> int:
    """Numbers in what a one-step model predicts."""
    state = {"deter": sizes.deter, "stoch": sizes.stoch, "state": sizes.deter + sizes.stoch}
    return (state | {"embedding": sizes.embedding})[config.target]


def one_step_inputs(transition: Transition, config: NoveltyConfig) -> Float[Array, "*steps inputs"]:
    """What stands for (s_t, a_t). Training and imagination both come through here, so their indices cannot
    differ.

    `deter` is the recurrent state *after* the action: deter_(t+1) = f(s_t, a_t) knows both.
    """
    seen = transition.after.deter if config.inputs == "deter" else transition.before.features
    return jnp.concatenate([seen, transition.action.astype(seen.dtype)], -1)


def one_step_targets(experience: Experience, config: NoveltyConfig) -> Float[Array, "steps batch outputs"]:
    """What the one-step models should predict: h_(t+1), or one of the appendix's variants."""
    after = experience.transitions().after
    if config.target == "embedding":
        return experience.embeddings[1:]
    return {"stoch": after.stoch, "deter": after.deter, "state": after.features}[config.target]


def bootstrap_weights(key: PRNGKeyArray, members: int, sequences: int) -> Float[Array, "members sequences"]:
    """How often each member draws each sequence when it resamples them with replacement.

    Weighting a sequence's loss by this count is the same as training on the resampled batch, without copying
    anything.
    """
    drawn = jax.random.randint(key, (members * sequences,), 0, sequences).reshape(members, sequences)
    return jax.nn.one_hot(drawn, sequences).sum(1)


def bootstrap_mean(
    costs: Float[Array, "members steps sequences"], key: PRNGKeyArray, config: NoveltyConfig
) -> Float[Array, " members"]:
    """Each member's mean cost over the sequences that it drew, or over all of them without a bootstrap."""
    if not config.bootstrap:
        return costs.mean((1, 2))
    return (costs * bootstrap_weights(key, costs.shape[0], costs.shape[2])[:, None]).mean((1, 2))


def ensemble_loss(
    ensemble: Ensemble, experience: Experience, key: PRNGKeyArray, config: NoveltyConfig
) -> Float[Array, " members"]:
    """Each member's squared error: equation 3's negative log-likelihood, less its constant, or the mean error."""
    predictions = ensemble(one_step_inputs(experience.transitions(), config))
    targets = one_step_targets(experience, config).astype(jnp.float32)
    squares = jnp.square(predictions - targets)
    return bootstrap_mean(0.5 * squares.sum(-1) if config.loss == "sum" else squares.mean(-1), key, config)


def disagreement(predictions: Float[Array, "members *steps outputs"]) -> Float[Array, "*steps"]:
    """The variance over members, 1/(K-1), averaged over dimensions (equation 4)."""
    return _mean_variance(_distances(list(predictions)))


def _distances(predictions: list[Float[Array, "*steps outputs"]]) -> list[Float[Array, "*steps outputs"]]:
    """How far each member is from the mean of all.

    Written out member by member: a sum over a short leading axis compiles to one pass that way, on a CPU
    twenty times faster.
    """
    mean = sum(predictions, jnp.zeros(())) / len(predictions)
    return [each - mean for each in predictions]


def _mean_variance(distances: list[Float[Array, "*steps outputs"]]) -> Float[Array, "*steps"]:
    squares = sum((jnp.square(each) for each in distances), jnp.zeros(()))
    return (squares / (len(distances) - 1)).mean(-1)


Members = tuple[Array, ...]
"""An array for each member."""


def ensemble_disagreement(ensemble: Ensemble, inputs: Float[Array, "*steps inputs"]) -> Float[Array, "*steps"]:
    """`disagreement(ensemble(inputs))`; on a GPU in the form that moves the least memory."""
    if not products.on_gpu():
        return disagreement(ensemble(inputs))
    return products.in_full_rows(partial(_disagree, ensemble), inputs)[..., 0]


def _disagree(ensemble: Ensemble, rows: Float[Array, "rows inputs"]) -> Float[Array, "rows 1"]:
    """Member by member: what each makes of the rows is large enough to be a product of its own."""
    count = ensemble.members.layers[-1].bias.shape[0]
    members = [jax.tree.map(lambda leaf, k=k: leaf[k], ensemble.members) for k in range(count)]
    hidden = tuple(member.hidden(rows) for member in members)
    last = [member.layers[-1] for member in members]
    weights = tuple(layer.weight.astype(hidden[0].dtype) for layer in last)
    biases = tuple(layer.bias.astype(hidden[0].dtype) for layer in last)
    return _variance_of_products(hidden, weights, biases)[:, None]


@jax.custom_vjp
def _variance_of_products(hidden: Members, weights: Members, biases: Members) -> Float[Array, " rows"]:
    """The members' disagreement, from their last layers' inputs, weights and biases.

    Its gradient with respect to a prediction is the prediction's distance from the mean, times one number for the
    whole row. So the distances are kept instead of the predictions, the backward product takes them as they are, and
    the number comes in afterwards, in the pass that the layer before needs anyway.
    """
    return _variance_forward(hidden, weights, biases)[0]


def _variance_forward(hidden: Members, weights: Members, biases: Members) -> tuple[Array, Any]:
    predictions = [(x @ weight + bias).astype(jnp.float32) for x, weight, bias in zip(hidden, weights, biases, strict=True)]
    apart = _distances(predictions)
    kept = tuple(each.astype(x.dtype) for each, x in zip(apart, hidden, strict=True))
    return _mean_variance(apart), (hidden, weights, kept)


def _variance_backward(
    saved: tuple[Members, Members, Members], gradient: Float[Array, " rows"]
) -> tuple[Members, Members, Members]:
    hidden, weights, apart = saved
    scale = (gradient * (2 / ((len(apart) - 1) * apart[0].shape[-1])))[:, None]
    pulled = [(scale * each).astype(each.dtype) for each in apart]
    return (
        tuple((scale * (each @ weight.T)).astype(each.dtype) for each, weight in zip(apart, weights, strict=True)),
        tuple(x.T @ each for x, each in zip(hidden, pulled, strict=True)),
        tuple(each.astype(jnp.float32).sum(0).astype(each.dtype) for each in pulled),
    )


_variance_of_products.defvjp(_variance_forward, _variance_backward)
