"""The quick reward is dm_control's, bit by bit."""

import numpy as np
import pytest

from plan2explore.envs import suite
from plan2explore.envs.cartpole import _original, get_reward


@pytest.mark.parametrize("task", ["balance", "balance_sparse", "swingup", "swingup_sparse", "two_poles"])
def test_same_reward_as_dm_controls_function(task):
    world = suite.load("cartpole", task)
    world.reset()
    physics, generator = world.physics, np.random.default_rng(0)
    rewards = set()
    for _ in range(500):
        with physics.reset_context():
            physics.data.qpos[:] = generator.normal(0, 1.5, physics.model.nq)
            physics.data.qvel[:] = generator.normal(0, 4, physics.model.nv)
        physics.data.ctrl[:] = generator.uniform(-1.2, 1.2, physics.model.nu)
        expected = _original(world.task, physics, world.task._sparse)
        assert get_reward(world.task, physics, world.task._sparse) == expected
        assert world.task.get_reward(physics) == expected  # installed
        rewards.add(float(expected))
    assert len(rewards) > (1 if "sparse" in task else 400)
