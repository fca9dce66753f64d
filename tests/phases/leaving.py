"""A Gymnasium world whose episodes terminate early: most of them have fewer steps than a training sequence."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Leaving(gymnasium.Env):
    """Terminates after 2 to 9 steps, by chance; the sizes of its spaces are those of the cartpole."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012
    observation_space = spaces.Box(-np.inf, np.inf, (5,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(2, 10))
        return self.observe(), {}

    def step(self, action):
        self.left -= 1
        return self.observe(), 1.0, self.left == 0, False, {}

    def observe(self):
        return np.full(5, self.left / 10, np.float32)

    def render(self):
        return np.full((8, 8, 3), self.left, np.uint8)


gymnasium.register("Leaving-v0", entry_point=Leaving, max_episode_steps=8)
