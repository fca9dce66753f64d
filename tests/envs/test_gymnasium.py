"""Gymnasium environments in the form of the suite's worlds."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from plan2explore import RewardError, Task, VectorEnv, make, record, relabel

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
    with pytest.raises(ValueError, match="cannot make 'Pendulumm-v1'"):
        make("gymnasium:Pendulumm-v1")
    with pytest.raises(ValueError, match="draws itself"):
        make("gymnasium:Pendulum-v1", renderer="raycast")
    episode = record(make("gymnasium:Pendulum-v1", size=16), seed=0)
    with pytest.raises(ValueError, match="belongs to the suite"):
        relabel(episode, Task.named("pendulum_swingup"))
    with pytest.raises(RewardError, match="step 1, episode 0"):
        relabel(episode, Task("bad", reward=lambda observation, action, after: np.inf))


@pytest.mark.filterwarnings("ignore")
def test_discrete_actions_are_taken_as_they_are_and_as_vectors():
    check_env(make("gymnasium:CartPole-v1"), skip_render_check=True)
    env, theirs = make("gymnasium:CartPole-v1", size=16, action_repeat=1, obs="proprio"), gymnasium.make("CartPole-v1")
    assert env.discrete == (2,) and env.action_size == 2 and env.action_space == theirs.action_space and env.terminates
    env.reset(seed=0), theirs.reset(seed=0)
    for native, vector in ((1, [0, 1]), (0, [1, 0]), (np.int64(1), [0.2, 0.7])):
        expected = theirs.step(int(native))[0]
        first = env.step(native)
        np.testing.assert_allclose(first[0]["proprio"], expected)
        assert first[4]["state"][0, 4:].tolist() == [1 - native, native]
        second = env.step(np.array(vector, np.float32))
        np.testing.assert_allclose(second[0]["proprio"], theirs.step(int(native))[0])
    for wrong in (2, -1, np.zeros(3, np.float32), np.array([np.nan, 0.0])):
        with pytest.raises(ValueError, match=r"is of Discrete\(2\)"):
            env.step(wrong)


def test_random_episodes_of_discrete_actions_are_relabelled():
    task = Task("right", reward=lambda observation, action, after: float(action) + float(after[0] > observation[0]))
    live = record(make("gymnasium:CartPole-v1", size=16, obs="proprio", task=task), seed=0)
    again = record(make("gymnasium:CartPole-v1", size=16, obs="proprio"), seed=0)
    assert (live.action[1:].sum(1) == 1).all() and not live.action[0].any() and 0 < live.action[1:, 0].mean() < 1
    np.testing.assert_array_equal(live.action, again.action)
    np.testing.assert_allclose(relabel(again, task), live.reward)
    by_hand = record(make("gymnasium:CartPole-v1", size=16, obs="proprio"), policy=lambda observation: 1)
    assert (by_hand.action[1:] == [0, 1]).all()


def test_many_of_them_take_one_hot_vectors():
    with VectorEnv("gymnasium:CartPole-v1", 2, 1, size=16, obs="proprio") as vector:
        assert vector.action_space.shape == (2,)
        vector.reset()
        batch = vector.step(np.array([[1, 0], [0, 1]], np.float32))
        assert batch.state[0, 0, 4:].tolist() == [1, 0] and batch.state[1, 0, 4:].tolist() == [0, 1]


class Screen(gymnasium.Env):
    """Observes an image, grey, and a number; draws nothing."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    observation_space = spaces.Dict({"screen": spaces.Box(0, 255, (1, 20, 24), np.uint8), "lives": spaces.Discrete(3)})
    action_space = spaces.MultiBinary(2)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return {"screen": np.full((1, 20, 24), 9, np.uint8), "lives": 2}, {}

    def step(self, action):
        return {"screen": np.full((1, 20, 24), 100 * action[0], np.uint8), "lives": 1}, 0.0, bool(action[1]), False, {}


gymnasium.register("Screen-v0", entry_point=Screen)


def test_an_observed_image_is_the_image_and_the_rest_the_vector():
    env = make("gymnasium:Screen-v0", size=16, action_repeat=1)
    observation, info = env.reset(seed=0)
    assert (observation["image"] == 9).all() and observation["proprio"].tolist() == [0, 0, 1]
    assert info["state"].shape == (1, 3 + 4)  # without the image
    observation, _, terminated, _, _ = env.step(np.array([1, 0], np.int8))
    assert (observation["image"] == 100).all() and not terminated and (env.render() == 100).all()
    assert env.step(np.array([1, 0, 0, 1], np.float32))[2]
    task = Task("lives", reward=lambda observation, action, after: observation["lives"] - after["lives"] + action[0])
    live = record(make("gymnasium:Screen-v0", size=16, task=task), seed=1)
    np.testing.assert_allclose(relabel(live, task), live.reward)


def test_without_pixels_an_environment_is_not_asked_to_draw(monkeypatch):
    env = make("gymnasium:Pendulum-v1", size=16, obs="proprio")
    monkeypatch.setattr(env._inner.unwrapped, "render", lambda: pytest.fail("drawn"))
    assert not env.reset(seed=0)[0]["image"].any() and not env.step(np.zeros(1))[0]["image"].any()
