"""Crafter (Hafner 2021), whose package speaks Gym's old interface, for Gymnasium: `gymnasium:Crafter-v1`."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class CrafterEnv(gymnasium.Env[Any, Any]):
    """Observes the image, and beside it what rewards and scores ask for: the inventory, and how often each of the 22
    achievements was unlocked in this episode. Crafter's own reward is the environment's; an exploration does not see it.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 (Gymnasium's own form)

    def __init__(self, render_mode: str | None = None, length: int = 10_000) -> None:
        import crafter

        self.render_mode = render_mode
        self._length = length
        self._env: Any = crafter.Env(length=None, seed=0)
        self.achievements: list[str] = sorted(crafter.constants.achievements)
        self.items: list[str] = sorted(crafter.constants.items)
        self.action_space = spaces.Discrete(self._env.action_space.n)
        self.observation_space = spaces.Dict(
            {
                "image": spaces.Box(0, 255, (64, 64, 3), np.uint8),
                "inventory": spaces.Box(0, 9, (len(self.items),), np.float32),
                "achievements": spaces.Box(0, np.inf, (len(self.achievements),), np.float32),
            }
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """A new world; the same for the same seed."""
        super().reset(seed=seed)
        self._env._seed, self._env._episode = int(self.np_random.integers(2**31 - 1)), 0
        self._steps = 0
        return self._observe(self._env.reset()), {}

    def step(self, action: int) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        """Ends when the player dies; is cut off after `length` steps."""
        image, reward, dead, _ = self._env.step(int(action))
        self._steps += 1
        return self._observe(image), float(reward), bool(dead), self._steps >= self._length, {}

    def _observe(self, image: np.ndarray) -> dict[str, np.ndarray]:
        self._image, player = image, self._env._player
        inventory = np.array([player.inventory[name] for name in self.items], np.float32)
        achievements = np.array([player.achievements[name] for name in self.achievements], np.float32)
        return {"image": image, "inventory": inventory, "achievements": achievements}

    def render(self) -> np.ndarray:
        """The image that is observed. To draw it again would change the noise of the nights to come."""
        return self._image
