"""Random exploration: every action as likely as any other, whatever the state."""

from jaxtyping import PRNGKeyArray

from plan2explore.agent.intrinsic.objective import Nothing, Objective, Sizes
from plan2explore.config import IntrinsicConfig


def init(config: IntrinsicConfig, sizes: Sizes, key: PRNGKeyArray) -> Nothing:
    """Nothing to learn."""
    return Nothing()


OBJECTIVE = Objective(init, loss=None, reward=None, collector="uniform")
