"""Gymnasium environments in the form of the suite's worlds."""

import os
import signal
import subprocess
import sys

import gymnasium
import mujoco
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from plan2explore import RewardError, Task, VectorEnv, make, record, relabel
from plan2explore.envs.base import EnvError
from plan2explore.envs.registered import import_modules

pytest.importorskip("pygame")
WINDOWS = ("DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "SDL_VIDEODRIVER", "SDL_NO_SIGNAL_HANDLERS")


@pytest.mark.filterwarnings("ignore")
def test_gymnasiums_own_checker_passes():
    check_env(make("gymnasium:Pendulum-v1"), skip_render_check=True)


def test_pendulum_repeats_scales_and_draws():
    env = make("gymnasium:Pendulum-v1", size=48, seed=2)
    theirs = gymnasium.make("Pendulum-v1")
    observation, info = env.reset()
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
    assert not np.allclose(env.reset()[0]["proprio"], expected)


def test_an_episode_has_no_more_env_steps_than_can_be_counted():
    assert make(f"gymnasium:Pendulum-v1?max_episode_steps={10**400}", size=8).episode == 10**9


def test_a_polite_kill_ends_a_process_that_draws_with_pygame(tmp_path):
    code = """
import os, signal
from plan2explore import make
env = make("gymnasium:Pendulum-v1", size=8)
env.reset()
os.kill(os.getpid(), signal.SIGTERM)
env.step([0.0])
"""
    environment = {name: value for name, value in os.environ.items() if name not in WINDOWS}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGTERM, "")


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


def test_what_cannot_be_done_is_said():
    with pytest.raises(ValueError, match="cannot make 'Pendulumm-v1'"):
        make("gymnasium:Pendulumm-v1")
    with pytest.raises(ValueError, match="draws itself"):
        make("gymnasium:Pendulum-v1", renderer="raycast")
    with pytest.raises(ValueError, match="draws itself: no cameras"):
        make("gymnasium:Pendulum-v1", camera="top")
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


def test_stacks_nested_images_and_texts_are_recorded_and_relabelled():
    class Nested(Screen):
        observation_space = spaces.Dict(
            stack=spaces.Box(0, 255, (4, 20, 20), np.uint8),
            inner=spaces.Dict(place=spaces.Box(-1, 1, (2,)), said=spaces.Text(8)),
            pair=spaces.Tuple([spaces.Box(0, 255, (20, 20, 3), np.uint8), spaces.Discrete(3)]),
        )

        def reset(self, *, seed=None, options=None):
            self.observation_space.seed(seed)
            return self.observation_space.sample(), {}

        def step(self, action):
            return self.observation_space.sample(), 0.0, False, False, {}

    def reward(observation, action, after):
        return after["inner"]["place"][0] * after["pair"][1] + ("said" in after["inner"]) + len(after["pair"][0])

    gymnasium.register("Nested-v0", entry_point=Nested, max_episode_steps=6)
    task = Task("place", reward=reward)
    live = record(make("gymnasium:Nested-v0", size=18, task=task, action_repeat=1), seed=0)
    assert live.proprio.shape == (7, 2 + 3) and live.image.std((1, 2, 3)).all()
    np.testing.assert_allclose(relabel(live, task), live.reward, atol=1e-6)
    assert np.ptp(live.reward[1:]) > 0


def test_without_pixels_an_environment_is_not_asked_to_draw(monkeypatch):
    env = make("gymnasium:Pendulum-v1", size=16, obs="proprio")
    monkeypatch.setattr(env._inner.unwrapped, "render", lambda: pytest.fail("drawn"))
    assert not env.reset(seed=0)[0]["image"].any() and not env.step(np.zeros(1))[0]["image"].any()


# ---- MuJoCo inside ----


def height_and_speed(physics):
    return physics.data.xpos[-1].sum() + physics.data.geom_xpos[-1, 2] + 0.1 * physics.data.qvel[0]


def difference(observation, action, after):
    before, now = (each["observation"] if isinstance(each, dict) else each for each in (observation, after))
    return now[0] - before[0] + action[0]


MUJOCO = ["Hopper-v5", "Ant-v5", "Humanoid-v5", "HalfCheetah-v5", "Pusher-v5", "PointMaze_UMaze-v3", "AntMaze_UMaze-v5"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MUJOCO)
def test_rewards_of_physics_afterwards_are_those_that_were_received(name):
    if "Maze" in name:
        import_modules(["gymnasium_robotics"])
    short = dict(obs="proprio", env_args={"max_episode_steps": 40})
    bare = record(make(f"gymnasium:{name}", **short), seed=0)
    for task in (Task("height and speed", reward=height_and_speed), Task("observed", reward=difference)):
        live = record(make(f"gymnasium:{name}", task=task, **short), seed=0)
        assert len(live) > 3 and np.ptp(live.reward[1:]) > 0
        np.testing.assert_array_equal(live.state, bare.state)  # the reward has disturbed nothing
        np.testing.assert_allclose(relabel(bare, task), live.reward, atol=1e-6)


def test_an_environment_with_mujoco_behind_plays_as_it_does_alone():
    env, theirs = make("gymnasium:Hopper-v5", action_repeat=1, size=16), gymnasium.make("Hopper-v5")
    env.reset(seed=3), theirs.reset(seed=3)
    for action in np.random.default_rng(0).uniform(-1, 1, (8, 3)).astype(np.float32):
        observation, reward, terminated, *_ = env.step(action)  # draws from a simulation beside it
        expected = theirs.step(action)
        np.testing.assert_array_equal(observation["proprio"], expected[0].astype(np.float32))
        assert reward == expected[1] and terminated == expected[2]


def test_frames_are_ray_cast_and_drawn_again_from_stored_states(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "disabled")
    env = make("gymnasium:Hopper-v5", size=32)
    assert env.renderer == "raycast" and env.draws_states
    episode = record(env, seed=0)
    assert episode.image[0].std() > 10 and (episode.image[0] != episode.image[-1]).any()
    last = episode.state[:, -1].copy()
    last[0] = episode.state[0, 0]
    taken = ~np.isnan(last).any(1)
    np.testing.assert_array_equal(env.draw(last[taken], episode.drawn), episode.image[taken])
    assert make("gymnasium:Hopper-v5", size=32, obs="proprio").renderer == "none"


@pytest.mark.filterwarnings("ignore:.*Overriding environment")
def test_what_a_reset_writes_into_the_model_is_kept_with_the_episode():
    class Target(gymnasium.Env):
        metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
        observation_space, action_space = spaces.Box(-1, 1, (1,)), spaces.Box(-1, 1, (1,))

        def __init__(self):  # it does not take a render mode
            site, ball = "<site name='goal' pos='0 0 1'/>", "<body><joint/><geom size='.1'/></body>"
            text = f"<mujoco><worldbody>{site}{ball}</worldbody></mujoco>"
            self.model = mujoco.MjModel.from_xml_string(text)
            self.data = mujoco.MjData(self.model)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.model.site("goal").pos[0] = self.np_random.uniform()
            return np.zeros(1, np.float32), {}

        def step(self, action):
            mujoco.mj_step(self.model, self.data)
            return np.zeros(1, np.float32), 0.0, False, False, {}

    gymnasium.register("Target-v0", entry_point=Target, max_episode_steps=3)
    task = Task("goal", reward=lambda physics: physics.named.data.site_xpos["goal", "x"])
    live = [record(make("gymnasium:Target-v0", obs="proprio", action_repeat=1, task=task), seed=seed) for seed in (0, 1)]
    assert live[0].reward[1] != live[1].reward[1] and live[0].reward[1] > 0
    for episode, rewards in zip(live, relabel(live, task), strict=True):
        np.testing.assert_array_equal(rewards, episode.reward)


def test_the_camera_is_chosen_by_name_or_number():
    one, two = (make("gymnasium:Humanoid-v5", size=16, camera=camera) for camera in (0, 1))
    assert (one.reset(seed=0)[0]["image"] != two.reset(seed=0)[0]["image"]).any()
    named = make("gymnasium:Humanoid-v5", size=16, camera="track")
    np.testing.assert_array_equal(named.reset(seed=0)[0]["image"], one.render())
    with pytest.raises(ValueError, match=r"Camera 'front' is not in the model: choose -1 \(free\), 0 \(track\), 1"):
        make("gymnasium:Humanoid-v5", camera="front", obs="proprio")


# ---- arguments, packages, and the environment's own errors ----


def test_arguments_are_part_of_the_name():
    env = make("gymnasium:Pendulum-v1", env_args={"g": 1.5}, obs="proprio")
    assert env.name == "gymnasium:Pendulum-v1?g=1.5" and env._inner.unwrapped.g == 1.5
    episode = record(env, seed=0)
    assert episode.world == env.name and make(episode.world, obs="proprio")._inner.unwrapped.g == 1.5
    with pytest.raises(ValueError, match=r"Pendulum-v1\?gravity=2: .*unexpected keyword argument 'gravity'"):
        make("gymnasium:Pendulum-v1", env_args={"gravity": 2})


def test_a_name_without_its_package_says_who_registers_it(monkeypatch):
    monkeypatch.delitem(gymnasium.registry, "PointMaze_UMaze-v3", raising=False)
    with pytest.raises(ValueError, match=r"registered by the package gymnasium_robotics: .*add --import gymnasium_robotics"):
        make("gymnasium:PointMaze_UMaze-v3")
    with pytest.raises(ValueError, match="package panda_gym: pip install panda-gym, and add --import panda_gym"):
        make("gymnasium:PandaReach-v3")
    with pytest.raises(ValueError, match="add --import MODULE"):
        make("gymnasium:Nowhere-v0")


class Faulty(gymnasium.Env):
    """Leaves, raises, or returns what it is told to."""

    observation_space, action_space = spaces.Box(-1, 1, (2,)), spaces.Discrete(2)

    def __init__(self, leaves="nowhere", start=0.0, number=0.0, reward=0.0):
        self.leaves, self.start, self.number, self.reward = leaves, float(start), float(number), reward
        self.at("its constructor")

    def at(self, where):
        if where == self.leaves:
            sys.exit("no licence")

    def reset(self, *, seed=None, options=None):
        self.at("reset")
        self.steps = 0
        return np.full(2, self.start, np.float32), {}

    def step(self, action):
        self.at("env step 1")
        self.steps += 1
        reward = {}[7] if self.steps > 1 else self.reward
        return np.array([0, self.number], np.float32), reward, False, False, {}


gymnasium.register("Faulty-v0", entry_point=Faulty)
LEFT = r"itself raised SystemExit in {}: no licence at test_gymnasium.py:\d+"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        *(({"leaves": where}, LEFT.format(where)) for where in ("its constructor", "reset", "env step 1")),
        ({}, r"gymnasium:Faulty-v0 itself raised KeyError in env step 2: 7 at test_gymnasium.py:\d+"),
        ({"start": "inf"}, r"itself returned an observation that is not finite in reset: \[inf inf\]"),
        ({"number": "nan"}, r"itself returned an observation that is not finite in env step 1: \[ 0. nan\]"),
        ({"reward": "nan"}, "itself returned the reward nan in env step 1"),
        ({"reward": "much"}, "itself raised ValueError in env step 1: could not convert string to float: 'much'$"),
    ],
)
def test_what_an_environment_raises_or_nobody_can_learn_from_is_its_own_error(arguments, said):
    with pytest.raises(EnvError, match=said):
        env = make("gymnasium:Faulty-v0", obs="proprio", env_args=arguments)
        env.reset(seed=0), env.step(1)


@pytest.mark.filterwarnings("ignore")
def test_it_is_so_in_a_worker_too_and_when_it_cannot_draw():
    said = r"gymnasium:Faulty-v0 itself raised KeyError in env step 2: 7 at test_gymnasium.py:\d+ .environment 0"
    with VectorEnv("gymnasium:Faulty-v0", 2, 1, obs="proprio") as vector, pytest.raises(EnvError, match=said):
        vector.reset()
        vector.step(np.zeros((2, 2), np.float32))
    with pytest.raises(EnvError, match=r"in render: .* cannot draw is explored by its vector: --obs proprio"):
        make("gymnasium:Faulty-v0", size=16).reset(seed=0)


def test_a_module_that_calls_sys_exit_cannot_be_imported(tmp_path, monkeypatch):
    (tmp_path / "leaving_worlds.py").write_text("raise SystemExit('no licence')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ValueError, match="--import leaving_worlds: SystemExit: no licence"):
        import_modules(["leaving_worlds"])


def test_workers_know_what_a_function_has_registered_and_take_one_hot_vectors():
    class Local(Screen):
        observation_space = spaces.Box(0, 1, (3,), np.float32)

        def reset(self, *, seed=None, options=None):
            return np.full(3, 0.5, np.float32), {}

        def step(self, action):
            return np.array([*action, 0], np.float32), 0.0, False, False, {}

    gymnasium.register("Local-v0", entry_point=Local)
    with VectorEnv("gymnasium:Local-v0", 2, 1, size=16, obs="proprio") as vector:
        assert vector.action_space.shape == (4,)
        assert vector.reset().proprio.tolist() == [[0.5] * 3] * 2
        batch = vector.step(np.array([[1, 0, 0, 1], [0, 1, 0.7, 0.2]], np.float32))
        assert batch.proprio.tolist() == [[0, 1, 0], [1, 0, 0]]
        assert batch.state[:, 0, 3:].tolist() == [[1, 0, 0, 1], [0, 1, 1, 0]]
