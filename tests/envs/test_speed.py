"""What replaces parts of dm_control gives the same numbers."""

import functools

import numpy as np
import pytest

from plan2explore.envs import speed, suite
from plan2explore.envs.speed import cartpole_reward, own_cartpole, own_convert_key, own_tolerance, tolerance


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
        expected = own_cartpole(world.task, physics, world.task._sparse)
        assert cartpole_reward(world.task, physics, world.task._sparse) == expected
        assert world.task.get_reward(physics) == expected  # installed
        rewards.add(float(expected))
    assert len(rewards) > (1 if "sparse" in task else 400)


BOUNDS = [(0.0, 0.0), (1.0, 2.0), (-0.5, np.inf), (-np.inf, 0.3)]


@pytest.mark.parametrize("sigmoid", ["gaussian", "linear", "quadratic", "long_tail", "cosine", "tanh_squared"])
@pytest.mark.parametrize("margin", [0.0, 0.7, 3.0])
@pytest.mark.parametrize("bounds", BOUNDS)
def test_same_value_as_dm_control(sigmoid, margin, bounds):
    for x in np.random.default_rng(0).normal(0, 3, 40):
        for value in (0.1, 0.5):
            expected = own_tolerance(x, bounds, margin, sigmoid, value)
            assert tolerance(x, bounds, margin, sigmoid, value) == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("shape", [(1,), (3,), (2, 2), (40,)])
def test_arrays_keep_their_shape(shape):
    x = np.random.default_rng(1).normal(0, 2, shape)
    result = tolerance(x, (0.2, 0.4), 1.0, "quadratic", 0.0)
    assert result.shape == shape
    np.testing.assert_allclose(result, own_tolerance(x, (0.2, 0.4), 1.0, "quadratic", 0.0), atol=1e-14)


def test_not_a_number_and_wrong_arguments_go_to_dm_control():
    assert np.isnan(tolerance(np.nan, (0, 1), 1.0)) == np.isnan(own_tolerance(np.nan, (0, 1), 1.0))
    for arguments in [dict(bounds=(1, 0)), dict(margin=-1.0), dict(margin=1.0, sigmoid="bell")]:
        with pytest.raises(ValueError):
            tolerance(0.5, **arguments)


KEYS = [
    ("xpos", ("torso", "z")),
    ("xpos", "torso"),
    ("xpos", (["torso", "right_foot"], "z")),
    ("xpos", (["torso"], ["x", "z"])),
    ("xmat", (slice(2, None), "zz")),
    ("xpos", (1, 2)),
    ("xpos", 1),
    ("qpos", "rootz"),
    ("sensordata", "torso_subtreelinvel"),
    ("xpos", (np.array([1, 2]), "z")),
    ("xpos", (True, 2)),
    ("xpos", ([True, False] * 4, 2)),
    ("xpos", (1, [0, 2])),
    ("xpos", ("torso", [0, 2])),
    ("xpos", [1, 2]),
    ("xpos", ([0, 2], [2, 0])),
    ("qpos", [0, 2]),
    ("qpos", ["rootz", "rootx"]),
    ("xpos", slice(None)),
]


@functools.cache
def walkers():
    worlds = [suite.load("walker", task) for task in ("walk", "run")]
    for world in worlds:
        world.reset()
    return worlds


@pytest.mark.parametrize(("field", "key"), KEYS)
def test_same_element_the_first_time_and_again(field, key):
    for world in walkers():
        named = getattr(world.physics.named.data, field)
        expected = named._field[own_convert_key(named, key)]
        for _ in range(3):
            np.testing.assert_array_equal(named[key], expected)


def test_a_list_that_changes_later_changes_nothing():
    physics = walkers()[0].physics
    columns = ["x", "z"]
    physics.named.data.xpos["torso", columns]
    columns[0] = "y"
    np.testing.assert_array_equal(physics.named.data.xpos["torso", ["x", "z"]], physics.named.data.xpos["torso"][[0, 2]])


def test_fields_with_other_names_do_not_share():
    walker, cheetah = walkers()[0], suite.load("cheetah", "run")
    cheetah.reset()
    for world in (walker, cheetah, walker):
        data = world.physics.named.data
        row = world.physics.model.name2id("torso", "body")
        np.testing.assert_array_equal(data.xpos["torso"], world.physics.data.xpos[row])
        np.testing.assert_array_equal(data.xquat["torso"], world.physics.data.xquat[row])


def test_unknown_names_are_still_refused():
    for _ in range(2):
        with pytest.raises(KeyError):
            walkers()[0].physics.named.data.xpos["wing"]


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(speed, "MOST", 3)
    physics = walkers()[0].physics
    for row, body in enumerate(("world", "torso", "right_thigh", "right_leg", "right_foot", "left_thigh")):
        np.testing.assert_array_equal(physics.named.data.xpos[body], physics.data.xpos[row])
        assert len(speed._known) <= 3
