"""The suite's worlds: Gymnasium's contract, and the same numbers as dm_control's own environments."""

import numpy as np
import pytest
from dm_control import suite as dm_suite
from gymnasium.utils.env_checker import check_env

from plan2explore import Task, list_tasks, make
from plan2explore.envs import suite
from plan2explore.envs.names import split_name

SMALL = dict(size=16, obs="proprio")


@pytest.mark.filterwarnings("ignore:.*we recommend using a symmetric.*")
@pytest.mark.filterwarnings("ignore:.*minimum value is -infinity.*", "ignore:.*maximum value is infinity.*")
@pytest.mark.filterwarnings("ignore:Setting the shape on a NumPy array:DeprecationWarning")  # dm_control 1.0.50, NumPy 2.5
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["walker_walk", "walker", "reacher", "quadruped_walk"])
def test_gymnasiums_own_checker_passes(name):
    check_env(make(name), skip_render_check=True)


def test_an_episode_has_the_promised_form():
    env = make("walker_walk", size=8)
    observation, info = env.reset(seed=1)
    assert observation["image"].shape == (8, 8, 3) and observation["image"].dtype == np.uint8
    assert observation["proprio"].dtype == np.float32
    assert info["env_steps"] == 0 and info["state"].shape == (1, env.state_size)
    steps, truncated = 0, False
    while not truncated:
        observation, _, terminated, truncated, info = env.step(np.zeros(6, np.float32))
        steps += 1
        assert info["env_steps"] == 2 * steps and not terminated
        assert info["state"].shape == (2, env.state_size) and np.isfinite(info["state"]).all()
    assert steps == 500
    with pytest.raises(RuntimeError, match="call reset"):
        env.step(np.zeros(6, np.float32))


def test_a_repeat_that_does_not_divide_the_episode_ends_it_exactly():
    env = make("pendulum_swingup", action_repeat=7, **SMALL)
    env.reset()
    states, truncated = [], False
    while not truncated:
        _, _, _, truncated, info = env.step(np.zeros(1))
        states.append(info["state"])
    assert info["env_steps"] == 1000 and len(states) == 143
    assert np.isfinite(states[-1][:6]).all() and np.isnan(states[-1][6:]).all()


@pytest.mark.parametrize("name", list_tasks("paper"))
def test_same_rewards_and_observations_as_dm_control(name):
    domain, task = split_name(name)
    theirs = dm_suite.load(domain, task, task_kwargs={"random": 5})
    ours = make(name, **SMALL)
    observation, _ = ours.reset(seed=5)
    step = theirs.reset()
    spec = theirs.action_spec()
    for action in np.random.default_rng(0).uniform(-1, 1, (25, *spec.shape)):
        observation, reward, *_ = ours.step(action)
        control = spec.minimum + (action + 1) / 2 * (spec.maximum - spec.minimum)
        expected = 0.0
        for _ in range(2):
            step = theirs.step(control)
            expected += step.reward
        assert reward == pytest.approx(expected, abs=1e-12)
    flat = np.concatenate([np.ravel(value) for value in step.observation.values()])
    np.testing.assert_array_equal(observation["proprio"], flat.astype(np.float32))


def test_the_cheetahs_extra_tasks_pay_for_what_they_say():
    env = make("cheetah", **SMALL)
    env.reset(seed=0)
    for speed, pitch, rewards in [(-5.0, 0.0, (0.5, 0, 0)), (3.0, 2.0, (0, 0.4, 0)), (0.0, -10.0, (0, 0, 1))]:
        with env.physics.reset_context():
            env.physics.named.data.qvel["rootx"] = speed
            env.physics.named.data.qvel["rooty"] = pitch
        forward = env.physics.speed()
        tasks = [suite.load("cheetah", name).task for name in ("run_backward", "flip_forward", "flip_backward")]
        got = [task.get_reward(env.physics) for task in tasks]
        assert got[0] == pytest.approx(np.clip(-forward / 10, 0, 1))
        assert got[1:] == pytest.approx(rewards[1:])


def test_a_bare_world_has_the_default_tasks_episodes_and_no_reward():
    bare, task = make("reacher", **SMALL), make("reacher_easy", **SMALL)
    first, info = bare.reset(seed=3)
    other, other_info = task.reset(seed=3)
    np.testing.assert_array_equal(first["proprio"], other["proprio"])
    np.testing.assert_array_equal(info["drawn"], other_info["drawn"])
    assert not any(bare.step(action)[1] for action in np.random.default_rng(0).uniform(-1, 1, (200, 2)))
    assert bare._world.task.get_reward(bare.physics) == 0.0  # not even by reaching inside


def test_a_task_can_be_observed_as_another_of_its_domain():
    """finger_spin observes 9 numbers, finger_turn_easy 12; reward and start stay the task's own."""
    as_world, own = make("finger_spin", observe_as="finger", **SMALL), make("finger_spin", **SMALL)
    first, info = as_world.reset(seed=3)
    assert first["proprio"].shape == (12,) and own.reset(seed=3)[0]["proprio"].shape == (9,)
    np.testing.assert_array_equal(info["state"], own.reset(seed=3)[1]["state"])
    assert make("finger_turn_hard", observe_as="finger_spin", **SMALL).observation_space["proprio"].shape == (9,)
    rewards = [[env.step(np.ones(2))[1] for _ in range(100)] for env in (as_world, own)]
    assert rewards[0] == rewards[1]
    with pytest.raises(ValueError, match="another body"):
        make("finger_spin", observe_as="walker")


def test_the_users_own_reward_is_paid_while_stepping():
    task = Task("height", reward=lambda physics: physics.named.data.xpos["torso", "z"])
    env = make("walker", task=task, **SMALL)
    env.reset(seed=0)
    assert 1.0 < env.step(np.zeros(6))[1] < 3.0
    with pytest.raises(ValueError, match="has a task already"):
        make("walker_walk", task=task)
    with pytest.raises(ValueError, match="make\\('walker_run'\\)"):
        make("walker", task=Task.named("walker_run"))


def test_same_seed_same_episode_and_other_seed_another():
    def play(env, seed):
        start, info = env.reset(seed=seed)
        steps = [env.step(action) for action in np.random.default_rng(0).uniform(-1, 1, (10, 2))]
        return [start["image"], info["drawn"], *(s[0]["image"] for s in steps), *(s[4]["state"] for s in steps)]

    env = make("reacher_hard", size=32)
    first, again, other = play(env, 4), play(env, 4), play(env, 5)
    fresh = play(make("reacher_hard", size=32, seed=9), 4)
    for a, b, c in zip(first, again, fresh, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)
    assert not np.array_equal(first[-1], other[-1]) and not np.array_equal(first[1], other[1])
    seeded, _ = make("reacher_hard", size=32, seed=4).reset()
    np.testing.assert_array_equal(seeded["image"], first[0])


def test_images_are_drawn_into_the_buffer_that_is_given():
    env = make("cartpole_swingup", size=32)
    buffer = np.zeros((32, 32, 3), np.uint8)
    env.image_buffer = buffer
    observation, _ = env.reset(seed=0)
    assert observation["image"] is buffer and buffer.std() > 0


def test_without_pixels_nothing_is_drawn_until_it_is_asked_for(monkeypatch):
    env = make("cartpole_swingup", size=32, obs="proprio")
    drawn = []
    render = env._renderer.render
    monkeypatch.setattr(env._renderer, "render", lambda *given: drawn.append(1) or render(*given))
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation) and not observation["image"].any()
    assert not env.step(np.ones(1))[0]["image"].any() and not drawn
    assert env.render().std() > 0 and drawn
    with pytest.raises(ValueError, match="obs is one of pixels, proprio, both; got 'images'"):
        make("cartpole_swingup", obs="images")


def test_wrong_actions_are_refused_and_large_ones_clipped():
    env = make("cartpole_swingup", **SMALL)
    env.reset(seed=0)
    for wrong in (np.zeros(2), np.array([np.nan]), 0.0):
        with pytest.raises(ValueError, match="finite numbers in"):
            env.step(wrong)
    env.step(np.array([7.0]))
    assert env.physics.control() == pytest.approx([1.0])


@pytest.mark.parametrize("name", [n for n in list_tasks() if not n.startswith("dog")])
def test_all_that_a_task_draws_is_stored(name):
    """Whatever differs in the model between two episodes is among the fields that are kept."""

    def numbers(model):
        fields = (key for key in dir(model) if not key.startswith("_"))
        arrays = {key: getattr(model, key) for key in fields}
        return {key: np.array(a) for key, a in arrays.items() if isinstance(a, np.ndarray) and a.dtype.kind == "f"}

    world = suite.load(*split_name(name))
    seen = []
    for seed in (1, 2, 3):
        world.task.random.seed(seed)
        world.reset()
        seen.append(numbers(world.physics.model.ptr))
    changed = {key for later in seen[1:] for key in seen[0] if not np.array_equal(seen[0][key], later[key])}
    assert changed <= set(world.fields)
