"""Gymnasium environments in the form of the suite's worlds."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from plan2explore import RewardError, Task, make, record, relabel

pytest.importorskip("pygame")


@pytest.mark.filterwarnings("ignore")
def test_gymnasiums_own_checker_passes():
    check_env(make("gymnasium:Pendulum-v1"), skip_render_check=True)


def test_pendulum_repeats_scales_and_draws():
    env = make("gymnasium:Pendulum-v1", size=48)
    theirs = gymnasium.make("Pendulum-v1")
    observation, info = env.reset(seed=2)
    expected, _ = theirs.reset(seed=2)
    np.testing.assert_allclose(observation["proprio"], expected)
    assert observation["image"].shape == (48, 48, 3) and observation["image"].std() > 5
    steps, truncated = 0, False
    while not truncated:
        observation, reward, _, truncated, info = env.step(np.array([0.5]))
        first, second = theirs.step(np.array([1.0], np.float32)), theirs.step(np.array([1.0], np.float32))
        assert reward == pytest.approx(first[1] + second[1])
        np.testing.assert_allclose(observation["proprio"], second[0])
        steps += 1
    assert steps == 100 and info["env_steps"] == 200


def test_rewards_afterwards_get_observation_action_and_next_observation():
    def own_cost(observation, action, after):
        angle = np.arctan2(observation[1], observation[0])
        return -(angle**2 + 0.1 * observation[2] ** 2 + 0.001 * action[0] ** 2)

    env = make("gymnasium:Pendulum-v1", size=16)
    episode = record(env, seed=0)
    task = Task("own cost", reward=own_cost)
    np.testing.assert_allclose(relabel(episode, task), episode.reward, atol=1e-3)  # observations are float32
    live = record(make("gymnasium:Pendulum-v1", size=16, task=task), seed=0)
    np.testing.assert_allclose(relabel(live, task), live.reward, atol=1e-6)


def test_same_first_episode_for_the_same_seed():
    one, two = make("gymnasium:Pendulum-v1", size=16, seed=3), make("gymnasium:Pendulum-v1", size=16, seed=3)
    np.testing.assert_array_equal(one.reset()[0]["proprio"], two.reset()[0]["proprio"])
    assert not np.array_equal(one.reset()[0]["proprio"], two._last)


def test_what_cannot_be_done_is_said():
    with pytest.raises(ValueError, match="bounded Box"):
        make("gymnasium:CartPole-v1")
    with pytest.raises(ValueError, match="cannot make 'Pendulumm-v1'"):
        make("gymnasium:Pendulumm-v1")
    with pytest.raises(ValueError, match="draws itself"):
        make("gymnasium:Pendulum-v1", renderer="raycast")
    episode = record(make("gymnasium:Pendulum-v1", size=16), seed=0)
    with pytest.raises(ValueError, match="belongs to the suite"):
        relabel(episode, Task.named("pendulum_swingup"))
    with pytest.raises(RewardError, match="step 1, episode 0"):
        relabel(episode, Task("bad", reward=lambda observation, action, after: np.inf))
