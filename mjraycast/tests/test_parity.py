"""The ray-caster's pictures are OpenGL's: against stored ones everywhere, against OSMesa where it works."""

import itertools
from pathlib import Path

import gym_worlds
import model_worlds
import mujoco
import numpy as np
import pytest
import suite_worlds
from opengl import need_osmesa, run_with_osmesa
from suite_worlds import LEAST_PSNR, LEAST_SSIM, SIZES, WORLDS, World

from mjraycast import Renderer

LIVE_STATES = 4
LEAST_GYMNASIUM_PSNR = 35.0  # decibels; a floor of black and white shows every difference
LEAST_MESH_PSNR = 36.0
LEAST_MODEL_PSNR = 35.0
LIVE_SEED = 100
OTHERS = (World("fish", "swim"), World("swimmer", "swimmer15"))

DRAW_STATES = """
import sys
import numpy as np
import suite_worlds as worlds
from opengl import OpenGLRenderer
drawn = {}
for world in worlds.WORLDS:
    for size in worlds.SIZES:
        states = list(worlds.random_states(world, int(sys.argv[1]), int(sys.argv[2]) + size))
        drawn[f"{world.domain}/{size}"] = worlds.pictures(world, states, size, OpenGLRenderer)
np.savez(sys.argv[3], **drawn)
"""


def assert_alike(ours, theirs, what=""):
    """Mean PSNR and SSIM of pairs of pictures reach what is promised."""
    decibels = np.mean([suite_worlds.psnr(*pair) for pair in zip(ours, theirs, strict=True)])
    similarity = np.mean([suite_worlds.ssim(*pair) for pair in zip(ours, theirs, strict=True)])
    assert decibels >= LEAST_PSNR, what
    assert similarity >= LEAST_SSIM, what


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.domain)
def test_pictures_are_like_osmesas_stored_ones(world, size):
    states, theirs = zip(*suite_worlds.load_references(world.domain, size), strict=True)
    ours = suite_worlds.pictures(world, list(states), size)
    assert_alike(ours, theirs)


def test_the_stored_pictures_show_different_states():
    for world in WORLDS:
        for size in SIZES:
            drawn = [picture for _, picture in suite_worlds.load_references(world.domain, size)]
            assert len(drawn) >= 3
            assert all(picture.shape == (size, size, 3) and picture.std() > 10 for picture in drawn)
            assert len({picture.tobytes() for picture in drawn}) == len(drawn)


def test_pictures_are_like_osmesas_of_other_states(tmp_path):
    need_osmesa()
    path = tmp_path / "pictures.npz"
    run_with_osmesa(DRAW_STATES, LIVE_STATES, LIVE_SEED, path)
    with np.load(path) as theirs:
        for world, size in itertools.product(WORLDS, SIZES):
            states = list(suite_worlds.random_states(world, LIVE_STATES, LIVE_SEED + size))
            ours = suite_worlds.pictures(world, states, size)
            assert_alike(ours, theirs[f"{world.domain}/{size}"], world.domain)


DRAW_EVERYTHING = """
import sys
import gym_worlds
import mujoco
import numpy as np
from opengl import OpenGLRenderer
model = mujoco.MjModel.from_xml_path(sys.argv[1])
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
renderer = OpenGLRenderer(model, 128, 128)
np.save(sys.argv[2], [renderer.render(data, camera) for camera in range(2)])
"""


def test_every_shape_and_look_is_like_osmesas(tmp_path):
    need_osmesa()
    model_path, path = Path(__file__).parent / "everything.xml", tmp_path / "pictures.npy"
    run_with_osmesa(DRAW_EVERYTHING, model_path, path)
    model = mujoco.MjModel.from_xml_path(str(model_path))
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    for camera, theirs in enumerate(np.load(path)):
        ours = Renderer(model, 128, 128).render(data, camera)
        # More edges and marks than any world has, so less than what worlds must reach.
        assert suite_worlds.psnr(ours, theirs) > 31
        assert suite_worlds.ssim(ours, theirs) > 0.96


DRAW_GYMNASIUM = """
import sys
import gym_worlds
import numpy as np
from opengl import OpenGLRenderer
np.savez(sys.argv[1], **{name: gym_worlds.pictures(name, OpenGLRenderer) for name in sys.argv[2:]})
"""


def assert_gymnasium_is_alike(names, path):
    """Mean PSNR of each camera's pictures of each environment."""
    run_with_osmesa(DRAW_GYMNASIUM, path, *names)
    with np.load(path) as file:
        for name in names:
            for camera, (ours, theirs) in enumerate(zip(gym_worlds.pictures(name, Renderer), file[name], strict=True), -1):
                decibels = np.mean([suite_worlds.psnr(*pair) for pair in zip(ours, theirs, strict=True)])
                assert decibels >= LEAST_GYMNASIUM_PSNR, f"{name}, camera {camera}: {decibels:.1f} dB"


def test_gymnasiums_models_are_like_osmesas(tmp_path):
    need_osmesa()
    assert_gymnasium_is_alike(gym_worlds.WORLDS, tmp_path / "pictures.npz")


def test_mazes_of_gymnasium_robotics_are_like_osmesas(tmp_path):
    pytest.importorskip("gymnasium_robotics")
    need_osmesa()
    assert_gymnasium_is_alike(gym_worlds.MAZES, tmp_path / "pictures.npz")


def arm_pictures(renderer, size):
    """The arm of meshes in four states by the free camera and by its own two."""
    model = mujoco.MjModel.from_xml_path(str(Path(__file__).parent / "arm.xml"))
    data, drawer, random = mujoco.MjData(model), renderer(model, size, size), np.random.default_rng(0)
    drawn = []
    for _ in range(4):
        mujoco.mj_forward(model, data)
        drawn += [drawer.render(data, camera) for camera in (-1, "front", "hand")]
        data.qpos[:] = random.uniform(-1.2, 1.2, model.nq)
    return np.stack(drawn)


DRAW_ARM = """
import sys
import numpy as np
from opengl import OpenGLRenderer
from test_parity import arm_pictures
np.savez(sys.argv[1], **{size: arm_pictures(OpenGLRenderer, int(size)) for size in ("64", "128")})
"""


def test_meshes_infinite_planes_and_haze_are_like_osmesas(tmp_path):
    need_osmesa()
    path = tmp_path / "pictures.npz"
    run_with_osmesa(DRAW_ARM, path)
    with np.load(path) as file:
        for size in (64, 128):
            pairs = list(zip(arm_pictures(Renderer, size), file[str(size)], strict=True))
            assert min(suite_worlds.psnr(*pair) for pair in pairs) >= LEAST_MESH_PSNR
            assert np.mean([suite_worlds.ssim(*pair) for pair in pairs]) >= LEAST_SSIM


DRAW_MODELS = """
import sys
import model_worlds as models
import numpy as np
from opengl import OpenGLRenderer
drawn = {f"{name}/{size}": models.pictures(name, models.states(name), size, OpenGLRenderer)
         for name in models.MODELS for size in (64, 128)}
np.savez(sys.argv[1], **drawn)
"""


def assert_each_is_alike(name, ours, theirs):
    """The PSNR of every picture of a model, whatever the camera."""
    for state, camera in np.ndindex(ours.shape[:2]):
        decibels = suite_worlds.psnr(ours[state, camera], theirs[state, camera])
        assert decibels >= LEAST_MODEL_PSNR, f"{name}, camera {camera - 1}, state {state}: {decibels:.1f} dB"


@pytest.mark.parametrize("name", model_worlds.MODELS)
def test_the_example_models_are_like_osmesas_stored_pictures(name):
    positions, theirs = model_worlds.load_references(name)
    assert len({picture.tobytes() for picture in theirs.reshape(-1, 64, 64, 3)}) == theirs.shape[0] * theirs.shape[1] >= 4
    assert_each_is_alike(name, model_worlds.pictures(name, positions, 64, Renderer), theirs)


def test_the_example_models_are_like_osmesas_in_each_picture(tmp_path):
    need_osmesa()
    path = tmp_path / "pictures.npz"
    run_with_osmesa(DRAW_MODELS, path)
    with np.load(path) as file:
        for name, size in itertools.product(model_worlds.MODELS, (64, 128)):
            ours = model_worlds.pictures(name, model_worlds.states(name), size, Renderer)
            assert_each_is_alike(name, ours, file[f"{name}/{size}"])


DRAW_OTHERS = """
import sys
import numpy as np
import suite_worlds as worlds
from opengl import OpenGLRenderer
from test_parity import LIVE_SEED, LIVE_STATES, OTHERS
drawn = {world.task: worlds.pictures(world, list(worlds.random_states(world, LIVE_STATES, LIVE_SEED)), 64, OpenGLRenderer)
         for world in OTHERS}
np.savez(sys.argv[1], **drawn)
"""


def test_other_models_of_the_suite_are_like_osmesas(tmp_path):
    need_osmesa()
    path = tmp_path / "pictures.npz"
    run_with_osmesa(DRAW_OTHERS, path)
    with np.load(path) as file:
        for world in OTHERS:
            ours = suite_worlds.pictures(world, list(suite_worlds.random_states(world, LIVE_STATES, LIVE_SEED)), 64)
            decibels = np.mean([suite_worlds.psnr(*pair) for pair in zip(ours, file[world.task], strict=True)])
            assert decibels >= LEAST_MODEL_PSNR, f"{world.domain} {world.task}: {decibels:.1f} dB"


def test_a_wrong_picture_would_be_noticed():
    world = WORLDS[3]
    (state, theirs), (other, _) = suite_worlds.load_references(world.domain, 64)[:2]
    ours, wrong = suite_worlds.pictures(world, [state, other], 64)
    assert_alike([ours], [theirs])
    for broken in (wrong, ours[::-1], ours[..., ::-1], np.roll(ours, 1, axis=1)):
        with pytest.raises(AssertionError):
            assert_alike([broken], [theirs])
