"""Actions as vectors, observations as images and vectors."""

import json

import numpy as np
import pytest
from gymnasium import spaces

from plan2explore.envs.spaces import ActionVector, ObservationParts, is_image, resize, space_from_json, space_to_json

BOX = spaces.Box(np.array([-2.0, 0.0]), np.array([2.0, 1.0]), dtype=np.float32)
DISCRETE = [
    (spaces.Discrete(3), (3,)),
    (spaces.Discrete(3, start=-1), (3,)),
    (spaces.MultiDiscrete([2, 4]), (2, 4)),
    (spaces.MultiBinary(3), (2, 2, 2)),
    (spaces.MultiBinary([2, 2]), (2, 2, 2, 2)),
    (spaces.Tuple([spaces.Discrete(2), spaces.MultiBinary(1)]), (2, 2)),
    (spaces.Dict({"move": spaces.Discrete(4), "jump": spaces.MultiBinary(1)}), (2, 4)),  # in the Dict's order of keys
]


@pytest.mark.parametrize(("space", "choices"), DISCRETE)
def test_discrete_actions_are_one_hot_vectors(space, choices):
    vector = ActionVector(space, "it")
    if isinstance(space, spaces.Dict):
        choices = tuple({"move": 4, "jump": 2}[key] for key in space.spaces)
    assert vector.discrete == choices and vector.size == sum(choices)
    generator = np.random.default_rng(0)
    space.seed(0)
    for _ in range(20):
        hot = vector.sample(generator)
        assert hot.dtype == np.float32 and hot.sum() == len(choices) and set(hot) <= {0, 1}
        native = vector.to_native(hot)
        assert space.contains(native), native
        np.testing.assert_array_equal(vector.to_vector(native), hot)
        np.testing.assert_array_equal(vector.to_vector(space.sample()).sum(), len(choices))
        np.testing.assert_array_equal(vector.to_vector(vector.unflatten(vector.flatten(native))), hot)


def test_of_what_is_not_quite_one_hot_the_largest_number_counts():
    assert ActionVector(spaces.Discrete(3), "it").to_native(np.array([0.1, 0.3, 0.2])) == 1
    assert ActionVector(spaces.MultiDiscrete([2, 2]), "it").to_native(np.array([0.1, -1, 0.2, 0.3])).tolist() == [0, 1]


def test_continuous_actions_are_scaled_to_one():
    vector = ActionVector(spaces.Tuple([BOX, spaces.Box(-4, 4, (1, 2))]), "it")
    assert vector.size == 4 and vector.discrete == ()
    one, two = vector.to_native(np.array([1.0, 0.0, -7.0, 0.5]))
    np.testing.assert_allclose(one, [2.0, 0.5])
    np.testing.assert_allclose(two, [[-4.0, 2.0]])
    np.testing.assert_allclose(vector.to_vector((one, two)), [1.0, 0.0, -1.0, 0.5])


@pytest.mark.parametrize(
    ("space", "answer"),
    [
        (spaces.Tuple([BOX, spaces.Discrete(2)]), "mixes continuous and discrete"),
        (spaces.Box(-np.inf, np.inf, (2,)), "gymnasium.wrappers.TransformAction"),
        (spaces.Text(5), "the agent takes Box, Discrete"),
    ],
)
def test_other_actions_are_refused_in_a_sentence(space, answer):
    with pytest.raises(ValueError, match=answer):
        ActionVector(space, "gymnasium:It-v0")


@pytest.mark.parametrize("shape", [(20, 30), (20, 30, 1), (20, 30, 3), (1, 20, 30), (3, 20, 30)])
def test_bytes_in_two_or_three_axes_are_images(shape):
    space = spaces.Box(0, 255, shape, np.uint8)
    assert is_image(space)
    parts = ObservationParts(space, "it")
    assert parts.has_image and parts.size == 0
    image = np.full(shape, 7, np.uint8)
    small = parts.image(image, 16)
    assert small.shape == (16, 16, 3) and small.dtype == np.uint8 and (small == 7).all()


def test_colours_stay_where_they_are_when_channels_come_first():
    image = np.zeros((3, 10, 12), np.uint8)
    image[2] = 200
    assert resize(image, 8)[..., 2].min() == 200 and not resize(image, 8)[..., :2].any()


def test_a_dict_is_split_into_its_image_and_the_rest():
    image, speed = spaces.Box(0, 255, (16, 16, 3), np.uint8), spaces.Box(-1, 1, (2,), np.float32)
    space = spaces.Dict({"eye": image, "speed": speed, "gear": spaces.Discrete(3), "path": spaces.Sequence(speed)})
    parts = ObservationParts(space, "it")
    assert parts.has_image and parts.size == 5
    observation = {"eye": np.ones((16, 16, 3), np.uint8), "speed": np.array([0.5, -1], np.float32), "gear": 2, "path": ()}
    vector = parts.vector(observation)
    assert sorted(vector.tolist()) == [-1, 0, 0, 0.5, 1]
    rest = parts.unflatten(vector)
    assert rest["gear"] == 2 and rest.keys() == {"speed", "gear"}
    np.testing.assert_array_equal(parts.image(observation, 16), observation["eye"])
    for nothing in (spaces.Sequence(speed), spaces.Text(5), spaces.Dict(a=spaces.Text(5))):
        with pytest.raises(ValueError, match=r"no image, and nothing that gymnasium.spaces can flatten"):
            ObservationParts(nothing, "it")


def test_several_images_are_tiled():
    grey, colour = spaces.Box(0, 255, (20, 30), np.uint8), spaces.Box(0, 255, (16, 16, 3), np.uint8)
    parts = ObservationParts(spaces.Dict({"a": grey, "b": colour, "c": grey}), "it")
    seen = {
        key: np.full(shape, value, np.uint8)
        for key, shape, value in (("a", (20, 30), 10), ("b", (16, 16, 3), 20), ("c", (20, 30), 30))
    }
    image = parts.image(seen, 12)
    quarters = [image[i : i + 6, j : j + 6] for i in (0, 6) for j in (0, 6)]
    assert image.shape == (12, 12, 3)
    for quarter, value in zip(quarters, (10, 20, 30, 0), strict=True):
        assert (quarter == value).all()


GREY, COLOUR = (20, 30), (20, 30, 3)


@pytest.mark.parametrize(
    ("shape", "frames"),
    [((4, *GREY), 4), ((*GREY, 4), 4), ((2, *COLOUR), 2), ((5, 3, 20, 30), 5), ((4, *GREY, 1), 4), ((2, *GREY, 4), 8)],
)
def test_the_frames_of_a_stack_are_tiled(shape, frames):
    space = spaces.Box(0, 255, shape, np.uint8)
    parts = ObservationParts(space, "it")
    assert is_image(space) and parts.has_image and parts.size == 0
    image = np.ones(shape, np.uint8)
    if shape == (*GREY, 4):
        image *= np.arange(1, 5, dtype=np.uint8)
    else:
        image *= np.arange(1, len(image) + 1, dtype=np.uint8).reshape(-1, *[1] * (len(shape) - 1))
    tiled, side = parts.image(image, 24), 3 if frames > 4 else 2
    tile = 24 // side
    first, second, last = tiled[:tile, :tile], tiled[:tile, tile : 2 * tile], divmod(frames - 1, side)
    assert (first == 1).all() and (second == (1 if frames == 8 else 2)).all()
    assert (tiled[last[0] * tile, last[1] * tile] == image.max()).all()
    assert not tiled[-1, -1].any() or frames == side**2


def test_images_are_found_wherever_they_are_and_texts_left_out():
    image, speed = spaces.Box(0, 255, COLOUR, np.uint8), spaces.Box(-1, 1, (2,), np.float32)
    inner = spaces.Dict(eye=image, deep=spaces.Dict(eye=image), gear=spaces.Discrete(3))
    space = spaces.Dict(pair=spaces.Tuple([image, speed, spaces.Text(9)]), inner=inner, said=spaces.Text(9))
    parts = ObservationParts(space, "it")
    space.seed(0)
    observation = space.sample()
    observation["pair"][0][:], observation["inner"]["eye"][:], observation["inner"]["deep"]["eye"][:] = 1, 2, 3
    vector = parts.vector(observation)
    assert parts.size == vector.size == 2 + 3
    rest = parts.unflatten(vector)
    assert rest.keys() == {"pair", "inner"} and rest["inner"] == {"gear": observation["inner"]["gear"]}
    np.testing.assert_array_equal(rest["pair"][1], observation["pair"][1])  # in its place, the image's being empty
    assert [part.size for part in rest["pair"]] == [0, 2, 0]
    assert sorted(np.unique(parts.image(observation, 16))) == [0, 1, 2, 3]
    assert space_from_json(space_to_json(parts.vector_space)) == parts.vector_space


@pytest.mark.parametrize("shape", [(32, 32, 32), (20, 30, 17), (3, 4, 20, 30, 3), (8, *GREY, 4)])
def test_bytes_that_are_neither_image_nor_vector_are_refused_in_a_sentence(shape):
    with pytest.raises(ValueError, match=r"It-v0 observes uint8 of shape .* neither an image nor a stack of at most 16"):
        ObservationParts(spaces.Tuple([BOX, spaces.Box(0, 255, shape, np.uint8)]), "It-v0")


def test_transparency_of_a_drawing_is_left_out():
    drawn = np.zeros((20, 30, 4), np.uint8)
    drawn[..., 3] = 255
    assert not resize(drawn, 8).any()


def test_numbers_that_are_no_images_are_a_vector():
    symbols, row = spaces.Box(0, 255, (7, 7, 3), np.uint8), spaces.Box(0, 255, (128,), np.uint8)  # MiniGrid's, Atari's RAM
    for space in (symbols, row, spaces.Box(-1, 1, (9, 9, 3), np.float32), spaces.Discrete(4)):
        assert not ObservationParts(space, "it").has_image


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, 1, (3,), np.float32),
        spaces.Box(np.array([-np.inf, 0.1]), np.array([2.5, np.inf]), dtype=np.float64),
        spaces.Box(-np.inf, np.inf, (0,), np.float32),
        spaces.Box(0, 255, (2, 3), np.uint8),
        spaces.Discrete(4, start=-1),
        spaces.MultiDiscrete([2, 3]),
        spaces.MultiBinary((2, 2)),
        spaces.Dict(b=spaces.Discrete(2), a=spaces.Tuple([spaces.Box(0, 1, (1,)), spaces.MultiBinary(3)])),
    ],
)
def test_a_space_comes_back_from_json(space):
    text = json.dumps(space_to_json(space), allow_nan=False)
    assert space_from_json(json.loads(text)) == space


@pytest.mark.parametrize("content", [None, {}, {"kind": "Text"}, {"kind": "Box", "low": "x", "high": [], "shape": 3}])
def test_what_describes_no_space_is_refused(content):
    with pytest.raises(ValueError, match="does not describe a space"):
        space_from_json(content)
    with pytest.raises(ValueError, match="cannot be kept with a data set"):
        space_to_json(spaces.Text(3))
