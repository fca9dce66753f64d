"""A corridor whose right end kills, and dynamic programming's answer for uniformly random steps in it."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from handmade import PAPER, Arrays, change, windows

from plan2explore.agent.learner import Learner, LearnerState, open_batch
from plan2explore.agent.world_model import infer_states
from plan2explore.config import Spaces

LENGTH, DISCOUNT = 5, 0.9
DEAD = LENGTH
CONFIG = change(
    PAPER,
    model=dict(deter=32, stoch=8, hidden=32, proprio_width=32, reward_width=32, learning_rate=2e-3, proprio_scale=10.0),
    # Uniform actions whatever the actor says: the critic's policy is the one of dynamic programming.
    actor_critic=dict(
        actor_gradient="reinforce", unimix=1.0, discount=DISCOUNT, horizon=8, critic_width=32, critic_learning_rate=2e-3
    ),
    intrinsic=dict(objective="random"),
    batch=16,
    length=12,
)
UPDATES = 750


def corridor(steps: int, seed: int) -> Arrays:
    """A life of random steps: cells 0 to 4 with a wall on the left, death on the right, and 1 as the reward of each step."""
    rng, stream, cell = np.random.default_rng(seed), [], None
    for _ in range(steps):
        first = cell in (None, DEAD)
        action = int(rng.integers(2))
        cell = int(rng.integers(LENGTH)) if first else max(cell + (1 if action else -1), 0)
        stream.append((cell, 0 if first else action, first))
    cells, actions, firsts = map(np.array, zip(*stream, strict=True))
    return {
        "proprio": np.eye(LENGTH + 1, dtype=np.float32)[cells],
        "action": np.eye(2, dtype=np.float32)[actions],
        "reward": np.ones((steps, 1), np.float32),
        "is_first": firsts,
        "is_terminal": cells == DEAD,
    }


def true_values() -> np.ndarray:
    """What is still to come in each cell, by dynamic programming."""
    cells = np.arange(LENGTH)
    left, right = np.maximum(cells - 1, 0), cells + 1
    values = np.zeros(LENGTH + 1)
    for _ in range(1000):
        values[:LENGTH] = 1 + DISCOUNT * (values[left] + values[right]) / 2
    return values[:LENGTH]


@cache
def trained(terminates: bool) -> tuple[Learner, LearnerState]:
    learner = Learner(CONFIG, Spaces(action=2, image=None, proprio=LENGTH + 1, discrete=(2,), terminates=terminates))
    stream, rng = corridor(5000, seed=0), np.random.default_rng(1)
    batches = windows(stream, CONFIG.batch, CONFIG.length, rng, UPDATES)
    state, _ = learner.update_block(learner.init(jax.random.key(0)), batches)
    return learner, state


def learned_values(terminates: bool) -> np.ndarray:
    """The critic's mean value in each cell."""
    learner, state = trained(terminates)
    batch = windows(corridor(2000, seed=2), 64, CONFIG.length, np.random.default_rng(3))
    nets, sequences = learner.agent.networks(state.params), open_batch(learner.agent, jax.tree.map(jnp.asarray, batch))
    features = infer_states(nets.model, sequences, jax.random.key(4))[0].features
    values = np.asarray(jax.tree.map(lambda leaf: leaf[0], nets.critic)(features))
    cells = np.swapaxes(batch["proprio"], 0, 1).argmax(-1)
    return np.array([values[cells == cell].mean() for cell in range(LENGTH)])


def test_dynamic_programming_knows_that_life_is_short_near_the_brink():
    values = true_values()
    assert np.all(np.diff(values) < 0) and values[0] > 1.5 * values[-1] and values[0] < 1 / (1 - DISCOUNT)


def test_with_a_continue_head_the_critic_agrees_with_dynamic_programming_in_every_cell():
    np.testing.assert_allclose(learned_values(True), true_values(), atol=0.8)


def test_without_a_continue_head_the_critic_believes_in_eternal_life():
    assert np.all(learned_values(False) > 0.85 / (1 - DISCOUNT))
