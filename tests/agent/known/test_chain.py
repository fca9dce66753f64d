"""A chain of rooms, each with one door that leads on and one that leads back to the start: only directed exploration
gets to its end."""

import jax
import numpy as np
from handmade import MODERN, Arrays, change, windows

from plan2explore.agent.learner import Learner, LearnerState
from plan2explore.agent.world_model import Observation
from plan2explore.config import Spaces

ROOMS, STEPS, CHAINS = 12, 24, 8
DOORS = np.random.default_rng(7).integers(0, 2, ROOMS)
"""The door that leads on, in each room: no single action leads to the end."""
CONFIG = change(
    MODERN,
    model=dict(
        deter=64,
        stoch=8,
        classes=8,
        blocks=4,
        hidden=48,
        proprio_width=32,
        reward_width=8,
        free_nats=1.0,
        learning_rate=2e-3,
    ),
    intrinsic=dict(members=4, width=48, learning_rate=2e-3),
    actor_critic=dict(
        horizon=12,
        actor_width=48,
        critic_width=48,
        actor_learning_rate=1e-3,
        critic_learning_rate=1e-3,
        discount=0.95,
        action_noise=0.0,
        explorer_entropy=3e-3,
    ),
    batch=8,
    length=24,
)
UPDATES = 60
"""After each round of episodes, one in every chain."""
ROUNDS = 50
"""At most; about 15 are enough."""


def walk(room: np.ndarray, door: np.ndarray) -> np.ndarray:
    """The next rooms: one further, or the first; the last room is the end, and keeps who gets there."""
    onward = door == DOORS[np.minimum(room, ROOMS - 1)]
    return np.where(room == ROOMS, ROOMS, np.where(onward, room + 1, 0))


def seen(room: np.ndarray) -> np.ndarray:
    return np.eye(ROOMS + 1, dtype=np.float32)[room]


def random_share(episodes: int = 20_000) -> float:
    """The share of episodes in which random doors lead to the end."""
    rng, room = np.random.default_rng(0), np.zeros(episodes, int)
    for _ in range(STEPS):
        room = walk(room, rng.integers(0, 2, episodes))
    return float((room == ROOMS).mean())


def test_random_doors_lead_to_the_end_in_fewer_than_one_of_a_hundred_episodes():
    assert random_share() < 0.01


def play(learner: Learner, state: LearnerState | None, seed: int) -> tuple[list[Arrays], float]:
    """An episode in every chain, and the share of them that got to the end; random doors without a state."""
    key, rng = jax.random.key(seed), np.random.default_rng(seed)
    room, carried, first = np.zeros(CHAINS, int), learner.carry(CHAINS), np.ones(CHAINS, bool)
    steps = [(seen(room), np.zeros((CHAINS, 2), np.float32), first)]
    for step in range(STEPS):
        if state is None:
            action = np.eye(2, dtype=np.float32)[rng.integers(0, 2, CHAINS)]
        else:
            key, now = jax.random.split(key)
            action, carried = learner.act(state, carried, Observation(proprio=seen(room)), first & (step == 0), now)
        room = walk(room, np.asarray(action).argmax(-1))
        steps.append((seen(room), np.asarray(action), ~first))
    proprio, actions, firsts = (np.swapaxes(np.stack(each), 0, 1) for each in zip(*steps, strict=True))
    episodes = [
        {"proprio": proprio[i], "action": actions[i], "is_first": firsts[i], "is_terminal": np.zeros(STEPS + 1, bool)}
        for i in range(CHAINS)
    ]
    return episodes, float((room == ROOMS).mean())


def explore(seed: int) -> tuple[Learner, LearnerState]:
    """Explores until most chains were explored to their ends, in three rounds on end."""
    learner = Learner(CONFIG, Spaces(action=2, image=None, proprio=ROOMS + 1, tasks=0, discrete=(2,)))
    state, rng = learner.init(jax.random.key(seed)), np.random.default_rng(seed)
    stored, share = play(learner, None, seed)
    shares = [share]
    while len(shares) < ROUNDS and min(shares[-3:]) <= 0.5:
        stream = {name: np.concatenate([each[name] for each in stored]) for name in stored[0]}
        state, _ = learner.update_block(state, windows(stream, CONFIG.batch, CONFIG.length, rng, UPDATES))
        episodes, share = play(learner, state, 1000 * seed + len(shares))
        stored += episodes
        shares.append(share)
    return learner, state


def test_plan2explore_gets_to_the_end_in_most_episodes():
    learner, state = explore(seed=0)
    assert np.mean([play(learner, state, 10_000 + i)[1] for i in range(8)]) > 0.5
