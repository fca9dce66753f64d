"""Stochastic states: a diagonal Gaussian (the paper) or groups of one-hot classes (DreamerV2 and V3).

A latent turns a network's output into a distribution, samples it with noise that was drawn beforehand, and measures
KL divergences, summed over the state. All of it is computed in float32.
"""

from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Key

from plan2explore.config import ModelConfig


def draw_normal(key: Key[Array, ""], *shape: int) -> Float[Array, "..."]:
    """Standard Gaussian noise, drawn flat: a draw with several axes takes eight times longer to compile."""
    return jax.random.normal(key, (prod(shape),)).reshape(shape)


def draw_uniform(key: Key[Array, ""], *shape: int) -> Float[Array, "..."]:
    """Uniform noise between 0 and 1, drawn flat."""
    return jax.random.uniform(key, (prod(shape),)).reshape(shape)


LogProbs = Float[Array, "*batch groups classes"]


class Normal(NamedTuple):
    """A Gaussian with independent dimensions."""

    mean: Float[Array, "*batch event"]
    std: Float[Array, "*batch event"]


def unimix_log_probs(logits: Float[Array, "*batch classes"], unimix: float) -> Float[Array, "*batch classes"]:
    """Log-probabilities of a softmax mixed with the uniform distribution."""
    if not unimix:  # the logarithm of a probability that is rounded to 0 would be infinite
        return jax.nn.log_softmax(logits.astype(jnp.float32), -1)
    probs = jax.nn.softmax(logits.astype(jnp.float32), -1)
    return jnp.log((1 - unimix) * probs + unimix / logits.shape[-1])


def one_hot_sample(
    log_probs: Float[Array, "*batch classes"], noise: Float[Array, "*batch"]
) -> Float[Array, "*batch classes"]:
    """The class that uniform noise stands for, one-hot, with the gradient of the probabilities (straight-through)."""
    probs = jnp.exp(log_probs)
    below, passed = jnp.zeros_like(noise), jnp.zeros_like(noise, int)
    for index in range(probs.shape[-1] - 1):  # written out: compilers make a slow loop of a cumulative sum
        below = below + probs[..., index]
        passed = passed + (below <= noise)
    drawn = jax.nn.one_hot(passed, probs.shape[-1])
    return drawn + (probs - lax.stop_gradient(probs))  # in brackets: exactly 0 and 1


@dataclass(frozen=True)
class GaussianLatent:
    """A diagonal Gaussian whose standard deviation is a softplus above a floor."""

    size: int
    min_std: float

    @property
    def outputs(self) -> int:
        """Numbers that a network gives for a distribution."""
        return 2 * self.size

    def noise(self, key: Key[Array, ""], *shape: int) -> Float[Array, "*shape size"]:
        """What `sample` takes."""
        return draw_normal(key, *shape, self.size)

    def dist(self, output: Float[Array, "*batch outputs"]) -> Normal:
        """The distribution that a network's output stands for."""
        mean, raw = jnp.split(output.astype(jnp.float32), 2, -1)
        return Normal(mean, jax.nn.softplus(raw) + self.min_std)

    def sample(self, dist: Normal, noise: Float[Array, "*batch size"]) -> Float[Array, "*batch size"]:
        """The sample that the noise stands for."""
        return dist.mean + dist.std * noise

    def mode(self, dist: Normal) -> Float[Array, "*batch size"]:
        """The likeliest state."""
        return dist.mean

    def kl(self, p: Normal, q: Normal) -> Float[Array, "*batch"]:
        """KL(p || q)."""
        ratio, gap = p.std / q.std, (p.mean - q.mean) / q.std
        return jnp.sum(0.5 * (ratio**2 + gap**2 - 1) - jnp.log(ratio), -1)


@dataclass(frozen=True)
class CategoricalLatent:
    """Groups of classes, sampled one-hot with straight-through gradients. A distribution is its log-probabilities."""

    groups: int
    classes: int
    unimix: float

    @property
    def size(self) -> int:
        """Numbers in a sample."""
        return self.groups * self.classes

    @property
    def outputs(self) -> int:
        """Numbers that a network gives for a distribution."""
        return self.size

    def noise(self, key: Key[Array, ""], *shape: int) -> Float[Array, "*shape groups"]:
        """What `sample` takes: one uniform number for each group."""
        return draw_uniform(key, *shape, self.groups)

    def dist(self, output: Float[Array, "*batch outputs"]) -> LogProbs:
        """The distribution that a network's output stands for."""
        return unimix_log_probs(output.reshape(*output.shape[:-1], self.groups, self.classes), self.unimix)

    def sample(self, dist: LogProbs, noise: Float[Array, "*batch groups"]) -> Float[Array, "*batch size"]:
        """The sample that the noise stands for."""
        drawn = one_hot_sample(dist, noise)
        return drawn.reshape(*drawn.shape[:-2], -1)

    def mode(self, dist: LogProbs) -> Float[Array, "*batch size"]:
        """The likeliest class of every group."""
        drawn = jax.nn.one_hot(dist.argmax(-1), self.classes)
        return drawn.reshape(*drawn.shape[:-2], -1)

    def kl(self, p: LogProbs, q: LogProbs) -> Float[Array, "*batch"]:
        """KL(p || q)."""
        return (jnp.exp(p) * (p - q)).sum((-2, -1))


def make_latent(config: ModelConfig) -> Any:
    """The latent that a configuration asks for."""
    if config.latent == "gaussian":
        return GaussianLatent(config.stoch, config.min_std)
    return CategoricalLatent(config.stoch, config.classes, config.unimix)
