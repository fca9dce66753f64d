"""Distributions and returns as plain functions of arrays.

The last axis is the event: divergences are summed over it. Compute these in float32.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

MIN_ACTOR_STD = 1e-4


class Normal(NamedTuple):
    """A Gaussian with independent dimensions."""

    mean: Float[Array, "*batch event"]
    std: Float[Array, "*batch event"]


def normal_sample(normal: Normal, noise: Float[Array, "*batch event"]) -> Float[Array, "*batch event"]:
    """The sample that standard Gaussian noise stands for."""
    return normal.mean + normal.std * noise


def normal_kl(p: Normal, q: Normal) -> Float[Array, "*batch"]:
    """The Kullback-Leibler divergence of p from q, KL(p || q)."""
    ratio = p.std / q.std
    gap = (p.mean - q.mean) / q.std
    return jnp.sum(0.5 * (ratio**2 + gap**2 - 1) - jnp.log(ratio), -1)


class TanhNormal(NamedTuple):
    """The tanh of a Gaussian with independent dimensions: an actor's distribution over actions in (-1, 1)."""

    mean: Float[Array, "*batch action"]
    std: Float[Array, "*batch action"]


def tanh_normal(output: Float[Array, "*batch two_actions"], start: float = 5.0) -> TanhNormal:
    """An actor's output as a distribution: mean 5 tanh(m / 5), std softplus(raw + softplus^-1(start)) + 1e-4."""
    mean, raw = jnp.split(output.astype(jnp.float32), 2, -1)
    raw_of_start = float(np.log(np.expm1(start)))
    return TanhNormal(5 * jnp.tanh(mean / 5), jax.nn.softplus(raw + raw_of_start) + MIN_ACTOR_STD)


def tanh_normal_sample(
    actor: TanhNormal, noise: Float[Array, "*batch action"]
) -> Float[Array, "*batch action"]:
    """The action that standard Gaussian noise stands for."""
    return jnp.tanh(actor.mean + actor.std * noise)


def tanh_normal_mode(actor: TanhNormal) -> Float[Array, "*batch action"]:
    """The action of the highest density, exactly.

    Where the density peaks, the tanh's argument solves u = mean + 2 std^2 tanh(u). With the mean's sign
    taken out, the highest peak is the one solution above zero; u - mean - 2 std^2 tanh(u) is convex
    there, so Newton's method falls towards it from mean + 2 std^2 without overshooting. Wide actors peak
    near the edges: above a std of about 0.7 there can be two peaks, and the mode is far from the tanh of
    the mean.
    """
    side = jnp.where(actor.mean < 0, -1.0, 1.0)
    center, spread = jnp.abs(actor.mean), 2 * actor.std**2

    u = center + spread
    for _ in range(12):  # written out, so that all of it is one fused loop over the actions
        tanh = jnp.tanh(u)
        slope = 1 - spread * (1 - tanh**2)
        u = jnp.maximum(u - (u - center - spread * tanh) / jnp.maximum(slope, 1e-3), 0)
    return side * jnp.tanh(u)


def lambda_returns(
    reward: Float[Array, "time *batch"], value: Float[Array, "time *batch"], discount: float, lambda_: float
) -> Float[Array, "time *batch"]:
    """Dreamer's value targets V(s_t) for imagined states s_0 .. s_(T-1), with s_T the last imagined state.

    reward[t] belongs to the step from s_t to s_(t+1), and value[t] is the critic's v(s_(t+1)):
    V(s_t) = reward[t] + discount ((1 - lambda) v(s_(t+1)) + lambda V(s_(t+1))), V(s_T) = v(s_T).
    """
    gamma = jnp.full_like(reward, discount)
    fixed = reward + gamma * (1 - lambda_) * value

    def backwards(later: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        fixed, gamma = now
        target = fixed + gamma * lambda_ * later
        return target, target

    return lax.scan(backwards, value[-1], (fixed, gamma), reverse=True, unroll=True)[1]


def jensen_renyi(
    mean: Float[Array, "members *batch event"], variance: Float[Array, "members *batch event"]
) -> Float[Array, "*batch"]:
    """The Jensen-Renyi divergence (order 2) of Gaussians with independent dimensions: MAX's novelty.

    The Renyi entropy of the members' mixture, less the mean of theirs; in closed form, with D dimensions,
    -ln mean_ij exp(-1/2 sum_d [(m_i - m_j)^2 / (v_i + v_j) + ln(v_i + v_j)]) - mean_k 1/2 sum_d ln v_k -
    D/2 ln 2.
    """
    members, dimensions = mean.shape[0], mean.shape[-1]
    # Each unordered pair once: the members are few, but a state has many dimensions.
    one, other = np.triu_indices(members)
    spread = variance[one] + variance[other]
    overlap = -0.5 * jnp.sum((mean[one] - mean[other]) ** 2 / spread + jnp.log(spread), -1)
    count = np.where(one == other, 1, 2).reshape(-1, *[1] * (mean.ndim - 2))
    mixture = -jax.nn.logsumexp(overlap, 0, b=count / members**2)
    own = 0.5 * jnp.sum(jnp.log(variance), -1).mean(0)
    return mixture - own - 0.5 * dimensions * np.log(2)
