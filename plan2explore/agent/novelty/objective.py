"""An exploration objective: what it learns from experience, and its reward for imagined steps."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from plan2explore.agent.experience import Experience, Sizes, Transition
from plan2explore.config import NoveltyConfig

Metrics = dict[str, Float[Array, ""]]


class Nothing(eqx.Module):
    """The predictor of an objective that learns nothing of its own."""


@dataclass(frozen=True)
class Objective:
    """Three functions, and how the explorer uses them. Without a reward there is no explorer."""

    init: Callable[[NoveltyConfig, Sizes, PRNGKeyArray], Any]
    """Makes the predictor, an Equinox module."""
    loss: Callable[[Any, Experience, PRNGKeyArray, NoveltyConfig], tuple[Float[Array, ""], Metrics]] | None
    """Trains the predictor on experience; none when there is nothing to train."""
    reward: Callable[[Any, Transition, NoveltyConfig], Float[Array, "*steps"]] | None
    """The intrinsic reward of imagined transitions, differentiable; none when the explorer does not learn."""
    horizon: int | None = None
    """Imagined steps, where the objective fixes them."""
    bootstrapped: bool = True
    """Whether returns go on beyond the horizon with the critic's value."""
    collector: str = "explorer"
    """Who collects: the `explorer`, the first `task` policy, or `uniform` random actions."""
    supervised: bool = False
    """Whether task reward may train the world model."""
