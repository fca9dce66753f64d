"""An exploration objective: what it learns from a batch, and its intrinsic reward for imagined steps."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from plan2explore.agent import shards
from plan2explore.agent.world_model import State
from plan2explore.config import IntrinsicConfig

Metrics = dict[str, Float[Array, ""]]


class Sizes(NamedTuple):
    """Numbers in each thing that an objective may use."""

    deter: int
    stoch: int
    embedding: int
    action: int


class Transition(NamedTuple):
    """A step in latent space: the action is the one taken *from* `before`, and it led to `after`."""

    before: State
    action: Float[Array, "*steps action"]
    after: State


class Experience(NamedTuple):
    """A batch of sequences as the world model infers them. Nothing in it carries a gradient."""

    states: State
    """Posterior states s_t."""
    actions: Float[Array, "time batch action"]
    """Actions as they are stored: number t is a_(t-1), which led to state t."""
    embeddings: Float[Array, "time batch embedding"]
    """Encoder features h_t."""
    model_loss: Float[Array, "time batch"]
    """The world model's loss at each step: reconstruction and KL divergence."""
    is_first: Bool[Array, "time batch"]
    """First steps of episodes: no transition leads to them."""

    def transitions(self) -> Transition:
        """The steps from t to t + 1: from each state, the action stored with the *next* one."""
        before = State(*(part[:-1] for part in self.states))
        after = State(*(part[1:] for part in self.states))
        return Transition(before, self.actions[1:], after)

    def mean(self, losses: Float[Array, "*members steps batch"]) -> Float[Array, "*members"]:
        """The mean over transitions, those across an episode's end left out."""
        valid = ~self.is_first[1:]
        return (losses * valid).sum((-2, -1)) / shards.mean(valid.sum())


class Nothing(eqx.Module):
    """The predictor of an objective that learns nothing of its own."""


def init_nothing(config: IntrinsicConfig, sizes: Sizes, key: PRNGKeyArray) -> Nothing:
    """Nothing to learn."""
    return Nothing()


@dataclass(frozen=True)
class Objective:
    """Three functions, and how the explorer uses them. Without a reward there is no explorer."""

    init: Callable[[IntrinsicConfig, Sizes, PRNGKeyArray], Any]
    """Makes the predictor, an Equinox module."""
    loss: Callable[[Any, Experience, PRNGKeyArray, IntrinsicConfig], tuple[Float[Array, ""], Metrics]] | None
    """Trains the predictor on experience; none when there is nothing to train."""
    reward: Callable[[Any, Transition, IntrinsicConfig], Float[Array, "*steps"]] | None
    """The intrinsic reward of imagined transitions, differentiable; none when the explorer does not learn."""
    horizon: int | None = None
    """Imagined steps, where the objective fixes them."""
    bootstrapped: bool = True
    """Whether returns are bootstrapped with the critic's value beyond the horizon."""
    collector: str = "explorer"
    """Who collects: the `explorer`, the first `task` policy, or `uniform` random actions."""
    supervised: bool = False
    """Whether the first task's reward trains the world model."""
