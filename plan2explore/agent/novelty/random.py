"""Random exploration: every action as likely as any other, whatever the state."""

from jaxtyping import PRNGKeyArray

from plan2explore.agent.experience import Sizes
from plan2explore.agent.novelty.objective import Nothing, Objective
from plan2explore.config import NoveltyConfig


def init(config: NoveltyConfig, sizes: Sizes, key: PRNGKeyArray) -> Nothing:
    """Nothing to learn."""
    return Nothing()


OBJECTIVE = Objective(init, loss=None, reward=None, collector="uniform")
