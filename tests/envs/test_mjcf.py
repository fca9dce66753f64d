"""Model files as worlds."""

import re
import sys
from pathlib import Path

import mujoco
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from plan2explore import Task, VectorEnv, make, record, relabel
from plan2explore.envs.base import EnvError

MODELS = Path(__file__).parents[2] / "examples" / "models"
QUICK = dict(size=16, obs="proprio", episode=40)


@pytest.fixture
def robots(monkeypatch):
    monkeypatch.syspath_prepend(str(MODELS))
    import robots

    yield robots
    del sys.modules["robots"]


def model_of(tmp_path: Path, body: str, rest: str = "") -> Path:
    path = tmp_path / "model.xml"
    path.write_text(f"<mujoco><worldbody><body>{body}</body></worldbody>{rest}</mujoco>")
    return path


@pytest.mark.filterwarnings("ignore:.*we recommend using a symmetric.*")
@pytest.mark.filterwarnings("ignore:.*minimum value is -infinity.*", "ignore:.*maximum value is infinity.*")
@pytest.mark.parametrize("model", ["arm", "rover", "cart"])
def test_gymnasiums_own_checker_passes(model):
    check_env(make(mjcf=MODELS / f"{model}.xml", size=16, obs="proprio"), skip_render_check=True)


def pull_right(observation):
    """Until the cart is at its end and the bob swings against the bumper."""
    return np.array([-1.0, 1.0])


@pytest.mark.parametrize(
    ("model", "reward", "policy", "actions", "proprio"),
    [("arm", "touch", None, 4, 11 + 10), ("rover", "spin", None, 2, 9 + 8), ("cart", "ring", pull_right, 2, 3 + 3)],
)
def test_rewards_afterwards_are_those_that_were_received(model, reward, policy, actions, proprio, robots):
    path, task = MODELS / f"{model}.xml", Task(reward, reward=getattr(robots, reward))
    live, bare = (record(make(mjcf=path, task=each, **QUICK), policy, seed=1) for each in (task, None))
    assert live.action.shape == (21, actions) and live.proprio.shape == (21, proprio) and not bare.reward.any()
    np.testing.assert_array_equal(live.state, bare.state)
    np.testing.assert_allclose(relabel(bare, task), live.reward, atol=1e-6)
    assert np.ptp(live.reward[1:]) > 0
    if model == "cart":  # a process of its own knows the model and the reward too
        np.testing.assert_array_equal(relabel([bare, bare], task, workers=2)[1], live.reward)


def test_actuators_are_scaled_to_their_ranges_and_an_env_step_is_a_fiftieth_of_a_second():
    env = make(mjcf=MODELS / "cart.xml", action_repeat=1, **QUICK)
    env.reset(seed=0)
    env.step(np.array([-1, 0.5]))
    assert env.physics.data.ctrl.tolist() == [0, 0.75] and env.physics.data.time == pytest.approx(0.02)
    assert make(mjcf=MODELS / "cart.xml", substeps=1, **QUICK).fps == pytest.approx(100)


def test_controls_without_a_range_go_from_minus_one_to_one(tmp_path):
    motors = "<actuator><motor joint='a'/><motor joint='a' ctrlrange='0 4'/></actuator>"
    env = make(mjcf=model_of(tmp_path, "<joint name='a'/><geom size='.1'/>", motors), **QUICK)
    env.reset(seed=0)
    env.step(np.array([-0.5, -0.5]))
    assert env.physics.data.ctrl.tolist() == [-0.5, 1]


def test_sensors_that_are_named_are_observed():
    sensors = ["cart position", "bob position"]
    env = make(mjcf=MODELS / "cart.xml", sensors=sensors, **QUICK)
    seen = env.reset(seed=0)[0]["proprio"]
    assert seen.tolist() == pytest.approx([0, 0, 0, 0.4])
    assert make(env.name, obs="proprio").reset(seed=0)[0]["proprio"].shape == (4,)
    with pytest.raises(ValueError, match="has no sensor 'cart speed'; it has left length, pendulum length, cart position"):
        make(mjcf=MODELS / "cart.xml", sensors=["cart speed"])


def test_episodes_start_at_a_key_frame_or_as_a_function_says(tmp_path, robots):
    arm = MODELS / "arm.xml"
    env = make(mjcf=arm, **QUICK)
    env.reset(seed=0)
    assert env.physics.named.data.qpos["elbow"].item() == 1.2
    env = make(mjcf=arm, reset=robots.scatter, **QUICK)
    starts = [env.reset(seed=seed)[0]["proprio"][4:6].tolist() for seed in (0, 1, 0)]
    assert starts[0] == starts[2] != starts[1] and starts[0][0] > 0.1
    assert env.name == f"mjcf:{arm}?episode=40&reset=robots:scatter"
    keys = "<actuator><motor joint='a'/></actuator><keyframe><key/><key name='up' qpos='3'/></keyframe>"
    path = model_of(tmp_path, "<joint name='a'/><geom size='.1'/>", keys)
    assert make(mjcf=path, keyframe="up", **QUICK).reset()[0]["proprio"].tolist() == [3, 0]
    assert make(mjcf=path, keyframe=1, **QUICK).reset()[0]["proprio"].tolist() == [3, 0]
    with pytest.raises(ValueError, match="has no key frame 'down'; it has 0, up"):
        make(mjcf=path, keyframe="down")


def test_workers_know_a_start_that_was_defined_anywhere():
    def high(physics, rng):
        physics.named.data.qpos["bob z"] = 0.25

    env = make(mjcf=MODELS / "cart.xml", reset=high, **QUICK)
    with VectorEnv(env.name, 1, 1, size=16, obs="proprio") as vector:
        assert vector.reset().proprio[0, 2] == 0.25


def test_every_camera_and_a_free_one_draw():
    envs = [make(mjcf=MODELS / "cart.xml", size=16, camera=camera) for camera in ("side", "free", 0)]
    images = [env.reset(seed=0)[0]["image"] for env in envs]
    assert images[0].std() > 5 and (images[0] != images[1]).any()
    np.testing.assert_array_equal(images[0], images[2])


def test_a_compiled_model_is_a_world(tmp_path):
    source, path = MODELS / "rover.xml", tmp_path / "rover.mjb"
    mujoco.mj_saveModel(mujoco.MjModel.from_xml_path(str(source)), str(path))
    ours, theirs = (record(make(mjcf=file, **QUICK), seed=0) for file in (path, source))
    np.testing.assert_array_equal(ours.proprio, theirs.proprio)


LINK = "<inertial><mass value='1'/><inertia ixx='1' ixy='0' ixz='0' iyy='1' iyz='0' izz='1'/></inertial>"
URDF = f"""<robot name="arm"><link name="base">{LINK}</link><link name="shoulder_link">{LINK}</link>
<joint name="shoulder" type="continuous"><parent link="base"/><child link="shoulder_link"/><axis xyz="0 0 1"/></joint>
<transmission name="t"><joint name="shoulder"/><actuator name="m"/></transmission></robot>"""


def test_a_urdf_has_no_actuators_and_is_attached_to_an_mjcf_as_the_docs_show(tmp_path):
    (tmp_path / "robot.urdf").write_text(URDF)
    with pytest.raises(ValueError, match=r"robot.urdf has no actuators.* A URDF never has any: attach it to an MJCF"):
        make(mjcf=tmp_path / "robot.urdf")
    (shown,) = re.findall(r"```xml\n(.*?)```", (MODELS.parents[1] / "docs" / "own_model.md").read_text(), re.DOTALL)
    (tmp_path / "robot.xml").write_text(shown)
    env = make(mjcf=tmp_path / "robot.xml", **QUICK)
    assert env.action_space.shape == (1,) and env.reset()[0]["proprio"].shape == (2,)


def test_what_cannot_be_done_is_said(tmp_path):
    with pytest.raises(ValueError, match=r"There is no file .*nowhere.xml"):
        make("mjcf:nowhere.xml")
    with pytest.raises(ValueError, match="has no actuators"):
        make(mjcf=model_of(tmp_path, "<joint/><geom size='.1'/>"))
    with pytest.raises(ValueError, match=r"MuJoCo cannot load .*model.xml: XML Error"):
        make(mjcf=model_of(tmp_path, "<nothing/>"))
    with pytest.raises(ValueError, match="takes no argument 'gravity'; it takes episode, substeps, keyframe, sensors, re"):
        make(mjcf=MODELS / "cart.xml", gravity=1)
    for what, most in (("episode", 10**9), ("substeps", 10**6)):
        for wrong in (0, most + 1, 10**400, 1.5, True):
            with pytest.raises(ValueError, match=rf"^{what} is a whole number from 1 to {most}; got {str(wrong)[:40]}$"):
                make(f"mjcf:{MODELS / 'cart.xml'}?{what}={wrong}")
    with pytest.raises(ValueError, match="a name, or a model file as mjcf=, and not both"):
        make("walker", mjcf=MODELS / "cart.xml")
    with pytest.raises(TypeError, match="no argument 'episode' without mjcf="):
        make("walker", episode=10)


def test_a_simulation_that_explodes_is_the_models_own_error(tmp_path):
    motor = "<option timestep='.1'/><actuator><motor joint='a' gear='1e9'/></actuator>"
    env = make(mjcf=model_of(tmp_path, "<joint name='a' type='slide'/><geom size='.001'/>", motor), substeps=50, **QUICK)
    env.reset(seed=0)
    with pytest.raises(EnvError, match="became unstable at env step"):
        for _ in range(20):
            env.step(np.ones(1))
