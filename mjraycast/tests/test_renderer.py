"""The ray-caster as an object: where it draws, what its pictures depend on, what it refuses."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mujoco
import numpy as np
import pytest
import suite_worlds
from dm_control import suite
from suite_worlds import WORLDS

from mjraycast import Renderer, UnsupportedModelError, frames, scene


class Bound(Renderer):
    """Draws one camera of one world."""

    def __init__(self, physics, camera=0, size=64):
        super().__init__(physics.model.ptr, size, size)
        self.data, self.camera = physics.data.ptr, camera

    def draw(self, out=None):
        return self.render(self.data, self.camera, out)

    @property
    def buffers(self):
        return next(iter(self._frames.values()))


def make(world, size=64, seed=0):
    """A world at the start of an episode, and its renderer."""
    env = suite_worlds.load(world, seed)
    env.reset()
    return env, Bound(env.physics, world.camera, size)


def world_of(domain):
    return next(world for world in WORLDS if world.domain == domain)


def test_it_draws_into_the_array_that_it_is_given():
    _, renderer = make(world_of("cheetah"))
    shared = np.full((3, 64, 64, 3), 7, np.uint8)
    answer = renderer.draw(shared[1])
    assert answer.base is shared
    assert np.all(shared[0] == 7)
    assert np.all(shared[2] == 7)
    np.testing.assert_array_equal(shared[1], renderer.draw())


@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros((64, 64), np.uint8),
        np.zeros((64, 64, 3), np.float32),
        np.zeros((32, 64, 3), np.uint8),
        np.zeros((64, 64, 6), np.uint8)[..., ::2],
    ],
    ids=["shape", "type", "size", "strides"],
)
def test_it_refuses_arrays_that_it_cannot_draw_into(wrong):
    _, renderer = make(world_of("cheetah"))
    with pytest.raises(ValueError, match=r"C-contiguous uint8 array of shape \(64, 64, 3\)"):
        renderer.draw(wrong)


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.domain)
def test_a_picture_depends_on_the_state_only(world):
    env, renderer = make(world)
    states = list(suite_worlds.random_states(world, 4, seed=7))
    first, again = [], []
    for pictures in (first, again):
        for state in states:
            suite_worlds.set_state(env.physics, state)
            pictures.append(renderer.draw())
    for state, picture, later in zip(reversed(states), reversed(first), reversed(again), strict=True):
        frames._known.clear()  # so that the other renderer begins with empty buffers
        other, fresh = make(world)
        suite_worlds.set_state(other.physics, state)
        np.testing.assert_array_equal(later, picture)
        np.testing.assert_array_equal(fresh.draw(), picture)
    assert len({picture.tobytes() for picture in first}) == len(states)


@pytest.mark.parametrize("domain", ["walker", "cartpole", "reacher"])  # cameras that follow and that stay, targets
def test_renderers_that_share_buffers_do_not_disturb_each_other(domain):
    world = world_of(domain)
    states = list(suite_worlds.random_states(world, 3, seed=5))
    alone = []
    for state in states:
        frames._known.clear()
        env, renderer = make(world)
        suite_worlds.set_state(env.physics, state)
        alone.append(renderer.draw())
    pairs = [make(world, seed=seed) for seed in range(3)]
    for (env, _), state in zip(pairs, states, strict=True):
        suite_worlds.set_state(env.physics, state)
    for _ in range(2):
        for (_, renderer), picture in zip(pairs, alone, strict=True):
            np.testing.assert_array_equal(renderer.draw(), picture)
    assert len({renderer.buffers for _, renderer in pairs}) == 1


def test_threads_can_draw_at_the_same_time():
    pairs = [make(world_of("cheetah"), seed=seed) for seed in range(4)]
    alone = [renderer.draw() for _, renderer in pairs]
    with ThreadPoolExecutor(4) as pool:
        many = list(pool.map(lambda pair: [pair[1].draw() for _ in range(50)], pairs))
    for pictures, picture in zip(many, alone, strict=True):
        for each in pictures:
            np.testing.assert_array_equal(each, picture)


def test_other_textures_have_other_buffers():
    env, renderer = make(world_of("cheetah"))
    renderer.draw()
    env.physics.model.tex_data[:] = 255 - env.physics.model.tex_data
    other = Bound(env.physics)
    assert np.any(other.draw() != renderer.draw())
    assert other.buffers is not renderer.buffers


# What tasks of the suite change in the model at the start of an episode, and more.
CHANGES = {
    "reacher's target": ("reacher", "geom_pos", "target", (0.1, -0.05, 0.01)),
    "a target's size": ("reacher", "geom_size", "target", (0.04, 0.04, 0.04)),
    "finger's target": ("finger", "site_pos", "target", (0.1, 0.0, 0.3)),
    "a site's size": ("finger", "site_size", "target", (0.08, 0.08, 0.08)),
    "a site's colour": ("finger", "site_rgba", "target", (0.0, 1.0, 0.0, 1.0)),
    "swimmer's target": ("swimmer", "geom_pos", "target", (0.1, 0.1, 0.05)),
    "a light's place": ("swimmer", "light_pos", "target_light", (1.0, -1.0, 2.0)),
    "a light's colour": ("cheetah", "light_diffuse", 0, (0.9, 0.1, 0.1)),
    "a geom's colour": ("cheetah", "geom_rgba", "torso", (0.0, 0.0, 1.0, 1.0)),
    "a plane's size": ("cheetah", "geom_size", "ground", (100.0, 0.4, 0.5)),
    "a plane's place": ("cheetah", "geom_pos", "ground", (0.0, 0.0, 0.1)),
    "a camera's place": ("pendulum", "cam_pos", 0, (0.1, -2.5, 1.0)),
    "a camera's angle": ("pendulum", "cam_fovy", 0, 60.0),
}


@pytest.mark.parametrize(("domain", "field", "name", "value"), CHANGES.values(), ids=CHANGES)
def test_changes_of_the_model_show_in_the_next_picture(domain, field, name, value):
    env, renderer = make(world_of(domain))
    physics, model = env.physics, env.physics.model
    mujoco.mj_forward(model.ptr, physics.data.ptr)
    before = renderer.draw()
    index = name if isinstance(name, int) else model.name2id(name, field.split("_")[0])
    if field == "geom_rgba":
        model.geom_matid[index] = -1  # a material would hide the geom's own colour
        before = renderer.draw()
    getattr(model, field)[index] = value
    mujoco.mj_forward(model.ptr, physics.data.ptr)
    after = renderer.draw()
    assert np.any(after != before)
    np.testing.assert_array_equal(after, Bound(physics, world_of(domain).camera).draw())


def test_episodes_draw_new_targets():
    env, renderer = make(world_of("reacher"))
    target = env.physics.model.name2id("target", "geom")
    places, pictures = set(), set()
    for _ in range(4):
        env.reset()
        places.add(tuple(env.physics.model.geom_pos[target]))
        env.physics.data.qpos[:] = 0
        mujoco.mj_forward(env.physics.model.ptr, env.physics.data.ptr)
        pictures.add(renderer.draw().tobytes())
    assert len(places) == len(pictures) == 4


def test_what_cannot_be_drawn_ends_the_drawing():
    _, renderer = make(world_of("cheetah"))
    options = renderer._source.options
    options.flags[mujoco.mjtVisFlag.mjVIS_JOINT] = True  # joints are drawn as arrows
    with pytest.raises(RuntimeError, match=r"arrow.*it needs OpenGL"):
        renderer.draw()
    options.flags[mujoco.mjtVisFlag.mjVIS_JOINT] = False
    renderer.draw()


def test_a_scene_without_room_ends_the_drawing(monkeypatch, capfd):
    monkeypatch.setattr(scene, "most_geoms", lambda model: 5)
    with pytest.raises(RuntimeError, match="more than 5 geoms"):
        make(world_of("cheetah"))[1].draw()


def test_another_layout_of_mujocos_scene_is_noticed(monkeypatch):
    model = suite.load("cheetah", "run").physics.model.ptr
    elements = mujoco.MjvScene(model, 10).geoms
    right = scene.layout("mjvGeom")
    with pytest.raises(scene.SceneLayoutError, match="no field colour"):
        scene.view("mjvGeom", elements, ("colour",))
    longer = np.dtype({"names": right.names, "formats": [right[n] for n in right.names], "itemsize": 260})
    monkeypatch.setattr(scene, "layout", lambda struct: longer)
    with pytest.raises(scene.SceneLayoutError, match=r"not 260 bytes long.*draw with OpenGL"):
        scene.view("mjvGeom", elements, ("pos",))


def test_fields_in_another_order_are_noticed(monkeypatch):
    physics = suite.load("cheetah", "run").physics
    source = scene.Scene(physics.model.ptr)
    names = list(scene.layout("mjvGeom").names)
    first, second = names.index("emission"), names.index("shininess")
    names[first], names[second] = names[second], names[first]
    right = scene.layout("mjvGeom")
    swapped = np.dtype({"names": names, "formats": [right[n] for n in right.names]}, align=True)
    monkeypatch.setattr(scene, "layout", lambda struct: swapped)
    with pytest.raises(scene.SceneLayoutError, match="field emission is"):
        scene.view("mjvGeom", source.scene.geoms, scene.GEOM_FIELDS)


def test_a_model_without_anything_is_black():
    model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><camera pos='0 0 1'/></worldbody></mujoco>")
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    assert np.all(Renderer(model, 16, 16).render(data, 0) == 0)


def test_a_wide_picture_has_a_square_one_in_its_middle():
    env, _ = make(world_of("walker"))
    model, data = env.physics.model.ptr, env.physics.data.ptr
    whole = Renderer(model, 96, 64).render(data, "side")
    assert whole.shape == (64, 96, 3)
    for width, edge in ((64, 16), (40, 28)):
        part = Renderer(model, width, 64).render(data, "side")
        assert np.mean(whole[:, edge : 96 - edge] != part) < 1e-3  # another order of rounding


def test_cameras_are_named_numbered_free_or_given():
    env, renderer = make(world_of("walker"))
    data = env.physics.data.ptr
    np.testing.assert_array_equal(renderer.render(data, "side"), renderer.render(data, 0))
    free = renderer.render(data)
    np.testing.assert_array_equal(free, renderer.render(data, -1))
    assert np.any(free != renderer.render(data, 0))
    own = mujoco.MjvCamera()
    mujoco.mjv_defaultFreeCamera(env.physics.model.ptr, own)
    np.testing.assert_array_equal(free, renderer.render(data, own))
    own.azimuth += 40.0
    assert np.any(free != renderer.render(data, own))


def test_a_camera_that_is_not_there_is_answered_with_those_that_are():
    env, renderer = make(world_of("walker"))
    for wrong in ("front", 2, -2):
        with pytest.raises(ValueError, match=rf"Camera {wrong!r} .*-1 \(free\), 0 \(side\), 1 \(back\)"):
            renderer.render(env.physics.data.ptr, wrong)


def test_an_empty_picture_is_refused():
    with pytest.raises(ValueError, match="0 x 64 pixels is empty"):
        Renderer(mujoco.MjModel.from_xml_string("<mujoco/>"), 0, 64)


def test_what_cannot_be_drawn_is_refused_at_the_start():
    with pytest.raises(UnsupportedModelError, match=r"\(skin\): it needs OpenGL"):
        Renderer(suite.load("dog", "run").physics.model.ptr)


def test_the_package_knows_nothing_of_the_one_that_it_was_made_for():
    sources = Path(frames.__file__).parent.glob("*.py")
    assert not [path.name for path in sources if "plan2explore" in path.read_text()]
