"""Heads: what is predicted from a state's features, a number (`mse` or `two_hot`) or a probability (`bernoulli`).

Last layers and losses are computed in float32.
"""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from plan2explore.agent.networks import MLP

Kind = Literal["mse", "two_hot", "bernoulli"]
BINS = 255
LARGEST = 20.0
"""Symlog of the outermost bins: numbers up to 4.8e8."""


def symlog(x: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """Sign(x) ln(1 + |x|): linear around zero, logarithmic far from it."""
    return jnp.sign(x) * jnp.log1p(jnp.abs(x))


def two_hot_bins() -> Float[np.ndarray, " bins"]:
    """Numbers that the classes of a two-hot head stand for, exponentially spaced around 0."""
    positive = np.expm1(np.linspace(0, LARGEST, BINS // 2 + 1))
    return np.concatenate([-positive[:0:-1], positive]).astype(np.float32)


def two_hot(x: Float[Array, "*batch"]) -> Float[Array, "*batch bins"]:
    """Weights of the two bins around a number, whose weighted mean is the number."""
    bins, middle = jnp.asarray(two_hot_bins()), BINS // 2
    below = jnp.clip(jnp.floor(symlog(x) * (middle / LARGEST)).astype(int) + middle, 0, BINS - 2)
    low, high = bins[below], bins[below + 1]
    share = jnp.clip((x - low) / (high - low), 0, 1)[..., None]
    return jax.nn.one_hot(below, BINS) * (1 - share) + jax.nn.one_hot(below + 1, BINS) * share


class ScalarHead(eqx.Module):
    """A number for each state: a critic's value, a predicted reward, or the probability that an episode continues."""

    mlp: MLP
    kind: Kind = eqx.field(static=True)

    def __init__(
        self, features: int, width: int, depth: int, key: Key[Array, ""], kind: Kind = "mse", norm: bool = False
    ) -> None:
        outputs, out_scale = (BINS, 0.0) if kind == "two_hot" else (1, 1.0)
        self.mlp = MLP(features, outputs, width, depth, key=key, norm=norm, head=True, out_scale=out_scale)
        self.kind = kind

    def __call__(self, features: Float[Array, "*batch features"]) -> Float[Array, "*batch"]:
        """The predicted number."""
        return self.mean(self.mlp(features))

    def mean(self, output: Float[Array, "*batch outputs"]) -> Float[Array, "*batch"]:
        """The number that the last layer's output stands for."""
        if self.kind == "mse":
            return output[..., 0]
        if self.kind == "bernoulli":
            return jax.nn.sigmoid(output[..., 0])
        # Probabilities of opposite bins are subtracted first: equal ones give exactly 0, whatever a compiler fuses.
        probs, middle = jax.nn.softmax(output, -1), BINS // 2
        return ((probs[..., middle + 1 :] - probs[..., :middle][..., ::-1]) * two_hot_bins()[middle + 1 :]).sum(-1)

    def loss(self, output: Float[Array, "*batch outputs"], target: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """Half the squared error, the outcome's negative log-likelihood, or the cross-entropy with the target's two bins."""
        if self.kind == "mse":
            return 0.5 * jnp.square(output[..., 0] - target)
        if self.kind == "bernoulli":
            logit = output[..., 0]
            return -target * jax.nn.log_sigmoid(logit) - (1 - target) * jax.nn.log_sigmoid(-logit)
        return -(two_hot(target) * jax.nn.log_softmax(output, -1)).sum(-1)
