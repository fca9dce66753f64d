"""Remembered names index what dm_control's own lookup does."""

import numpy as np
import pytest

from plan2explore.envs import indexing, suite

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


@pytest.mark.parametrize(("field", "key"), KEYS)
def test_same_element_the_first_time_and_again(field, key):
    for world in (suite.load("walker", "walk"), suite.load("walker", "run")):
        world.reset()
        named = getattr(world.physics.named.data, field)
        expected = named._field[indexing._original(named, key)]
        for _ in range(3):
            np.testing.assert_array_equal(named[key], expected)


def test_a_list_that_changes_later_changes_nothing():
    physics = suite.load("walker", "walk").physics
    columns = [0, 2]
    physics.named.data.xpos["torso", columns]
    columns[0] = 1
    np.testing.assert_array_equal(physics.named.data.xpos["torso", [0, 2]], physics.named.data.xpos["torso"][[0, 2]])


def test_fields_with_other_names_do_not_share():
    walker, cheetah = suite.load("walker", "walk"), suite.load("cheetah", "run")
    for world in (walker, cheetah, walker):
        world.reset()
        data = world.physics.named.data
        row = world.physics.model.name2id("torso", "body")
        np.testing.assert_array_equal(data.xpos["torso"], world.physics.data.xpos[row])
        np.testing.assert_array_equal(data.xquat["torso"], world.physics.data.xquat[row])


def test_unknown_names_are_still_refused():
    world = suite.load("walker", "walk")
    for _ in range(2):
        with pytest.raises(KeyError):
            world.physics.named.data.xpos["wing"]


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(indexing, "MOST", 3)
    physics = suite.load("walker", "walk").physics
    for body in range(1, 7):
        np.testing.assert_array_equal(physics.named.data.xpos[body], physics.data.xpos[body])
        assert len(indexing._known) <= 3
