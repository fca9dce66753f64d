"""Bandits, learned from noise by the whole agent: in imagination, from states that show which arms were pulled last."""

import jax
import numpy as np
import pytest
from handmade import MODERN, PAPER, change, windows

from plan2explore.agent.learner import Learner
from plan2explore.agent.world_model import Observation
from plan2explore.config import Spaces

ARMS = (2, 3)
BEST = np.array([1, 2])
UPDATES = 400


def pulls(steps: int) -> dict[str, np.ndarray]:
    """Random pulls of two machines at once; each best arm pays 1."""
    rng = np.random.default_rng(0)
    chosen = np.stack([rng.integers(arms, size=steps) for arms in ARMS], -1)
    action = np.concatenate([np.eye(arms, dtype=np.float32)[chosen[:, i]] for i, arms in enumerate(ARMS)], -1)
    never = np.zeros(steps, bool)
    reward = (chosen == BEST).sum(-1, keepdims=True).astype(np.float32)
    return {"proprio": action, "action": action, "reward": reward, "is_first": never, "is_terminal": never}


@pytest.mark.parametrize(("pieces", "gradient"), [(PAPER, "through"), (MODERN, "reinforce")])
def test_a_multi_discrete_actor_learns_to_pull_the_best_arms(pieces, gradient):
    config = change(
        pieces,
        model=dict(learning_rate=3e-3),
        intrinsic=dict(objective="random"),
        actor_critic=dict(actor_gradient=gradient, discount=0.5, actor_learning_rate=3e-3, critic_learning_rate=3e-3),
        batch=8,
        length=6,
    )
    learner = Learner(config, Spaces(action=sum(ARMS), image=None, proprio=sum(ARMS), discrete=ARMS))
    batches = windows(pulls(2000), config.batch, config.length, np.random.default_rng(1), UPDATES)
    state, _ = learner.update_block(learner.init(jax.random.key(0)), batches)
    observation = Observation(proprio=pulls(64)["proprio"])
    action, _ = learner.act(
        state, learner.carry(64), observation, np.ones(64, bool), jax.random.key(1), mode="sample", task=0
    )
    groups = np.split(np.asarray(action), np.cumsum(ARMS)[:-1], -1)
    shares = np.array([group[:, best].mean() for group, best in zip(groups, BEST, strict=True)])
    assert np.all(shares > 0.8)
