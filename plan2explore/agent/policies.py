"""Policies: what an actor network's output means as a distribution over actions.

Actions are sampled with noise that was drawn beforehand, so that imagination, the actor's loss and acting see the same
sample. `TanhPolicy` is for continuous actions in [-1, 1], `OneHotPolicy` for discrete ones.
"""

from dataclasses import dataclass
from itertools import accumulate

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Key

from plan2explore.agent.latents import Normal, draw_normal, draw_uniform, one_hot_sample, unimix_log_probs
from plan2explore.agent.networks import MLP
from plan2explore.config import ActorCriticConfig, Spaces

Output = Float[Array, "*batch outputs"]
Noise = Float[Array, "*batch noise"]
Action = Float[Array, "*batch action"]
Density = Float[Array, "*batch"]


def tanh_normal_mode(dist: Normal) -> Action:
    """The highest density's action, exactly, where actions are the tanh of a Gaussian.

    Where the density peaks, the tanh's argument solves u = mean + 2 std^2 tanh(u). With the mean's sign taken out, the
    highest peak is the one solution above zero; u - mean - 2 std^2 tanh(u) is convex there, so Newton's method falls
    towards it from mean + 2 std^2 without overshooting. Wide actors peak near the edges: above a std of about 0.7 there
    can be two peaks, and the mode is far from the tanh of the mean.
    """
    side = jnp.where(dist.mean < 0, -1.0, 1.0)
    center, spread = jnp.abs(dist.mean), 2 * dist.std**2

    u = center + spread
    for _ in range(12):  # written out, so that all of it is one fused loop over the actions
        tanh = jnp.tanh(u)
        slope = 1 - spread * (1 - tanh**2)
        u = jnp.maximum(u - (u - center - spread * tanh) / jnp.maximum(slope, 1e-3), 0)
    return side * jnp.tanh(u)


@dataclass(frozen=True)
class TanhPolicy:
    """A squashed Gaussian: mean s tanh(m / s), std a softplus above its floor, or a sigmoid between floor and ceiling."""

    actions: int
    mean_scale: float
    start_std: float
    min_std: float
    max_std: float | None

    @property
    def outputs(self) -> int:
        """Numbers that a network gives for a policy."""
        return 2 * self.actions

    def noise(self, key: Key[Array, ""], *shape: int) -> Noise:
        """What `sample` takes."""
        return draw_normal(key, *shape, self.actions)

    def dist(self, output: Output) -> Normal:
        """The distribution that a network's output stands for."""
        mean, raw = jnp.split(output.astype(jnp.float32), 2, -1)
        mean = self.mean_scale * jnp.tanh(mean / self.mean_scale)
        if self.max_std is None:
            std = jax.nn.softplus(raw + float(np.log(np.expm1(self.start_std)))) + self.min_std
        else:
            start = (self.start_std - self.min_std) / (self.max_std - self.min_std)
            std = self.min_std + (self.max_std - self.min_std) * jax.nn.sigmoid(raw + float(np.log(start / (1 - start))))
        return Normal(mean, std)

    def sample(self, output: Output, noise: Noise) -> Action:
        """The action that the noise stands for."""
        dist = self.dist(output)
        return jnp.tanh(dist.mean + dist.std * noise)

    def mode(self, output: Output) -> Action:
        """The action to evaluate with: the highest density's; with a ceiling on the std, the tanh of the mean."""
        dist = self.dist(output)
        return tanh_normal_mode(dist) if self.max_std is None else jnp.tanh(dist.mean)

    def log_prob(self, output: Output, noise: Noise) -> Density:
        """The log-density of the sampled action, less what does not depend on the network."""
        dist = self.dist(output)
        drawn = lax.stop_gradient(dist.mean + dist.std * noise)
        return (-0.5 * jnp.square((drawn - dist.mean) / dist.std) - jnp.log(dist.std)).sum(-1)

    def entropy(self, output: Output, noise: Noise) -> Density:
        """The entropy's estimate from one sample, less a constant: that of the Gaussian and the tanh's slope."""
        dist = self.dist(output)
        squashed = jnp.tanh(dist.mean + dist.std * noise)
        return (jnp.log(dist.std) + jnp.log(1 - jnp.square(squashed) + 1e-6)).sum(-1)

    def explore(self, action: Action, amount: float, key: Key[Array, ""]) -> Action:
        """The action with exploration noise of this standard deviation."""
        return jnp.clip(action + amount * draw_normal(key, *action.shape), -1, 1)

    def uniform(self, key: Key[Array, ""], count: int) -> Action:
        """Random actions."""
        return jax.random.uniform(key, (count, self.actions), minval=-1.0, maxval=1.0)

    def spread(self, output: Output) -> Density:
        """The mean standard deviation before the tanh."""
        return self.dist(output).std.mean(-1)


@dataclass(frozen=True)
class OneHotPolicy:
    """Independent discrete choices, one-hot side by side."""

    choices: tuple[int, ...]
    unimix: float

    @property
    def actions(self) -> int:
        """Numbers in an action."""
        return sum(self.choices)

    @property
    def outputs(self) -> int:
        """Numbers that a network gives for a policy."""
        return self.actions

    def noise(self, key: Key[Array, ""], *shape: int) -> Noise:
        """What `sample` takes: one uniform number for each choice."""
        return draw_uniform(key, *shape, len(self.choices))

    def log_probs(self, output: Output) -> list[Float[Array, "*batch classes"]]:
        """Log-probabilities of each choice."""
        groups = jnp.split(output, list(accumulate(self.choices[:-1])), -1)
        return [unimix_log_probs(group, self.unimix) for group in groups]

    def sample(self, output: Output, noise: Noise) -> Action:
        """The actions that the noise stands for, with straight-through gradients."""
        drawn = [one_hot_sample(group, noise[..., i]) for i, group in enumerate(self.log_probs(output))]
        return jnp.concatenate(drawn, -1)

    def mode(self, output: Output) -> Action:
        """The likeliest actions."""
        return jnp.concatenate([jax.nn.one_hot(g.argmax(-1), g.shape[-1]) for g in self.log_probs(output)], -1)

    def log_prob(self, output: Output, noise: Noise) -> Density:
        """The log-probability of the sampled actions."""
        drawn = lax.stop_gradient(self.sample(output, noise))
        return (drawn * jnp.concatenate(self.log_probs(output), -1)).sum(-1)

    def entropy(self, output: Output, noise: Noise) -> Density:
        """The entropy, exactly."""
        return -sum((jnp.exp(g) * g).sum(-1) for g in self.log_probs(output))  # type: ignore[return-value]

    def explore(self, action: Action, amount: float, key: Key[Array, ""]) -> Action:
        """The action, replaced by a random one with this probability."""
        chance_key, action_key = jax.random.split(key)
        count = action.shape[0]
        replaced = draw_uniform(chance_key, count, 1) < amount
        return jnp.where(replaced, self.uniform(action_key, count), action)

    def uniform(self, key: Key[Array, ""], count: int) -> Action:
        """Random actions."""
        return self.sample(jnp.zeros((count, self.outputs)), self.noise(key, count))

    def spread(self, output: Output) -> Density:
        """The entropy as a share of the uniform distribution's."""
        return self.entropy(output, output) / sum(np.log(self.choices))


Policy = TanhPolicy | OneHotPolicy


def make_policy(config: ActorCriticConfig, spaces: Spaces) -> Policy:
    """The policy for an action space."""
    if spaces.discrete:
        return OneHotPolicy(spaces.discrete, config.unimix)
    if config.max_std is not None and not config.min_std < config.start_std < config.max_std:
        raise ValueError(
            f"An untrained actor's start_std ({config.start_std}) must lie between min_std ({config.min_std}) and max_std "
            f"({config.max_std})."
        )
    return TanhPolicy(spaces.action, config.mean_scale, config.start_std, config.min_std, config.max_std)


class Actor(eqx.Module):
    """The network of a policy."""

    mlp: MLP

    def __init__(self, features: int, outputs: int, config: ActorCriticConfig, key: Key[Array, ""]) -> None:
        self.mlp = MLP(
            features, outputs, config.actor_width, config.actor_depth, key=key, norm=config.norm,
            out_scale=0.01 if config.norm else 1.0,
        )  # fmt: skip

    def __call__(self, features: Float[Array, "*batch features"]) -> Output:
        return self.mlp(features)
