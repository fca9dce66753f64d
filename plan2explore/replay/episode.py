"""One episode: pixels, actions and, beside them, the physics states from which any reward can be computed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

ActionFunction = Callable[[dict[str, np.ndarray]], np.ndarray]


@dataclass(frozen=True)
class Episode:
    """A stored step `t` holds the observation, the action that led to it and the reward that came with it.

    Action and reward at `t = 0` are zero. `state` keeps a snapshot for each repeated env step; rows that were not
    taken (all but one at `t = 0`, those after an early end) are NaN.
    """

    world: str  # the name given to `make`
    image: np.ndarray  # uint8 (steps, size, size, 3)
    proprio: np.ndarray  # float32 (steps, proprio)
    action: np.ndarray  # float32 (steps, action)
    reward: np.ndarray  # float64 (steps,); zeros in a world without a task
    state: np.ndarray  # float64 (steps, action_repeat, state)
    drawn: np.ndarray  # float64 (drawn,)
    meta: dict[str, Any] = field(default_factory=dict)  # renderer, seed, action_repeat, env_steps, policy, terminated

    def __len__(self) -> int:
        return len(self.action)

    @property
    def env_steps(self) -> int:
        """Env steps that were taken."""
        return env_steps(self.state)

    def last_states(self) -> np.ndarray:
        """The state at the end of every agent step, (steps, state)."""
        taken = ~np.isnan(self.state).all(-1)
        return self.state[np.arange(len(self)), taken.shape[1] - 1 - np.argmax(taken[:, ::-1], 1)]


def env_steps(state: np.ndarray) -> int:
    """Env steps that led to the states of an episode, the first one left out."""
    taken = ~np.isnan(state[1:]).all(-1) if state.shape[-1] else np.ones(state[1:].shape[:2], bool)
    return int(taken.sum())


def record(env: Any, policy: ActionFunction | None = None, seed: int = 0, policy_name: str = "random") -> Episode:
    """Plays one episode, by default with uniform random actions."""
    generator = np.random.default_rng(seed)
    world = env.unwrapped
    policy = policy or (lambda observation: world.random_action(generator))
    observation, info = env.reset(seed=seed)
    first = np.full((world.action_repeat, world.state_size), np.nan)
    first[0] = info["state"][0]
    steps = [(observation, np.zeros(world.flat_action_space.shape, np.float32), 0.0, first)]
    terminated, truncated, drawn = False, False, info["drawn"]
    while not (terminated or truncated):
        action = policy(observation)
        observation, reward, terminated, truncated, info = env.step(action)
        steps.append((observation, world.flat_action(action).astype(np.float32), reward, info["state"]))
    observations, actions, rewards, states = zip(*steps, strict=True)
    meta = {
        "renderer": world.renderer,
        "seed": seed,
        "action_repeat": world.action_repeat,
        "env_steps": info["env_steps"],
        "policy": policy_name,
        "terminated": bool(terminated),
    }
    return Episode(
        world=world.name,
        image=np.stack([observation["image"] for observation in observations]),
        proprio=np.stack([observation["proprio"] for observation in observations]),
        action=np.stack(actions),
        reward=np.array(rewards),
        state=np.stack(states),
        drawn=drawn,
        meta=meta,
    )
