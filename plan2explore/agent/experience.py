"""The latent world in two forms: sequences as they were experienced, and steps as they are imagined."""

from typing import NamedTuple

from jaxtyping import Array, Float

from plan2explore.agent.world_model import State


class Sizes(NamedTuple):
    """Numbers in each thing that an objective may look at."""

    deter: int
    stoch: int
    embedding: int
    action: int


class Transition(NamedTuple):
    """A step of the latent world: the action is the one taken *from* `before`, and it led to `after`."""

    before: State
    action: Float[Array, "*steps action"]
    after: State


class Experience(NamedTuple):
    """A batch of sequences as the world model sees them. Nothing in it carries a gradient."""

    states: State
    """Posterior states s_t."""
    actions: Float[Array, "time batch action"]
    """Actions as they are stored: number t is a_(t-1), which led to state t."""
    embeddings: Float[Array, "time batch embedding"]
    """Encoder features h_t."""
    surprise: Float[Array, "time batch"]
    """The world model's loss at each step: what the picture and the posterior cost."""

    def transitions(self) -> Transition:
        """The steps from t to t + 1: from each state, the action stored with the *next* one."""
        before = State(*(part[:-1] for part in self.states))
        after = State(*(part[1:] for part in self.states))
        return Transition(before, self.actions[1:], after)
