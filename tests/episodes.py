"""Episodes for tests."""

from typing import Any

from plan2explore.envs import make
from plan2explore.replay import Episode, record


def record_random(world: str, seed: int = 0, **options: Any) -> Episode:
    """One episode of random actions in a world made for it."""
    env = make(world, seed=seed, **options)
    try:
        return record(env, seed=seed)
    finally:
        env.close()
