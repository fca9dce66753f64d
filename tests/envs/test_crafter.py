"""The adapter of Crafter, which speaks Gym's old interface."""

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from plan2explore import Task, make, record, relabel
from plan2explore.envs.gymnasium import make_inner

pytest.importorskip("crafter")


@pytest.mark.filterwarnings("ignore")
def test_gymnasiums_own_checker_passes():
    check_env(make_inner("gymnasium:Crafter-v1", None).unwrapped, skip_render_check=True)


def test_a_seed_decides_the_world_and_episodes_are_cut_off():
    env = make_inner("gymnasium:Crafter-v1?length=3", "rgb_array")
    images = [env.reset(seed=seed)[0]["image"] for seed in (0, 1, 0)]
    assert (images[0] == images[2]).all() and (images[0] != images[1]).any()
    ends = [env.step(0)[2:4] for _ in range(3)]
    assert ends == [(False, False), (False, False), (False, True)]
    np.testing.assert_array_equal(env.step(0)[0]["image"], env.render())


def test_death_terminates():
    env = make_inner("gymnasium:Crafter-v1", None)
    env.reset(seed=0)
    env.unwrapped._env._player.health = 0
    assert env.step(0)[2:4] == (True, False)


def test_achievements_can_be_rewarded_afterwards():
    inner = make_inner("gymnasium:Crafter-v1", None).unwrapped

    def unlocked(before, action, after):
        return float((after["achievements"] - before["achievements"]).sum())

    task = Task("unlocked", reward=unlocked)
    name = "gymnasium:Crafter-v1?max_episode_steps=100"
    live = record(make(name, action_repeat=1, size=16, obs="proprio", task=task), seed=4)
    assert live.proprio.shape[1] == len(inner.items) + 22 and live.action.shape[1] == 17
    assert live.reward.sum() > 0
    np.testing.assert_array_equal(relabel(live, task), live.reward)
