"""The ray-caster as an object: where it draws, what its pictures depend on, what it refuses."""

from concurrent.futures import ThreadPoolExecutor

import mujoco
import numpy as np
import pytest
import render_worlds
from dm_control import suite
from render_worlds import WORLDS

from plan2explore.envs.render import frames, make_renderer, scene
from plan2explore.envs.render.raycast import RaycastRenderer


def make(world, size=64, seed=0):
    """A world at the start of an episode, and its renderer."""
    env = render_worlds.load(world, seed)
    env.reset()
    physics = env.physics
    return env, make_renderer(physics.model.ptr, physics.data.ptr, world.camera, size, "raycast")


def world_of(domain):
    return next(world for world in WORLDS if world.domain == domain)


def test_it_draws_into_the_array_that_it_is_given():
    _, renderer = make(world_of("cheetah"))
    shared = np.full((3, 64, 64, 3), 7, np.uint8)
    answer = renderer.render(shared[1])
    assert answer.base is shared
    assert np.all(shared[0] == 7)
    assert np.all(shared[2] == 7)
    np.testing.assert_array_equal(shared[1], renderer.render())
    assert renderer.name == "raycast"
    renderer.close()


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
        renderer.render(wrong)


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.domain)
def test_a_picture_depends_on_the_state_only(world):
    env, renderer = make(world)
    states = list(render_worlds.random_states(world, 4, seed=7))
    first, again = [], []
    for pictures in (first, again):
        for state in states:
            render_worlds.set_state(env.physics, state)
            pictures.append(renderer.render())
    for state, picture, later in zip(reversed(states), reversed(first), reversed(again), strict=True):
        frames._known.clear()  # so that the other renderer begins with empty buffers
        other, fresh = make(world)
        render_worlds.set_state(other.physics, state)
        np.testing.assert_array_equal(later, picture)
        np.testing.assert_array_equal(fresh.render(), picture)
    assert len({picture.tobytes() for picture in first}) == len(states)


@pytest.mark.parametrize("domain", ["walker", "cartpole", "reacher"])  # cameras that follow and that stay, targets
def test_renderers_that_share_buffers_do_not_disturb_each_other(domain):
    world = world_of(domain)
    states = list(render_worlds.random_states(world, 3, seed=5))
    alone = []
    for state in states:
        frames._known.clear()
        env, renderer = make(world)
        render_worlds.set_state(env.physics, state)
        alone.append(renderer.render())
    pairs = [make(world, seed=seed) for seed in range(3)]
    assert len({renderer._frames for _, renderer in pairs}) == 1
    for (env, _), state in zip(pairs, states, strict=True):
        render_worlds.set_state(env.physics, state)
    for _ in range(2):
        for (_, renderer), picture in zip(pairs, alone, strict=True):
            np.testing.assert_array_equal(renderer.render(), picture)


def test_threads_can_draw_at_the_same_time():
    pairs = [make(world_of("cheetah"), seed=seed) for seed in range(4)]
    alone = [renderer.render() for _, renderer in pairs]
    with ThreadPoolExecutor(4) as pool:
        many = list(pool.map(lambda pair: [pair[1].render() for _ in range(50)], pairs))
    for pictures, picture in zip(many, alone, strict=True):
        for each in pictures:
            np.testing.assert_array_equal(each, picture)


def test_other_textures_have_other_buffers():
    env, renderer = make(world_of("cheetah"))
    env.physics.model.tex_data[:] = 255 - env.physics.model.tex_data
    model, data = env.physics.model.ptr, env.physics.data.ptr
    other = make_renderer(model, data, 0, 64, "raycast")
    assert other._frames is not renderer._frames
    assert np.any(other.render() != renderer.render())


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
    before = renderer.render()
    index = name if isinstance(name, int) else model.name2id(name, field.split("_")[0])
    if field == "geom_rgba":
        model.geom_matid[index] = -1  # a material would hide the geom's own colour
        before = renderer.render()
    getattr(model, field)[index] = value
    mujoco.mj_forward(model.ptr, physics.data.ptr)
    after = renderer.render()
    assert np.any(after != before)
    fresh = RaycastRenderer(model.ptr, physics.data.ptr, world_of(domain).camera, 64)
    if field != "cam_fovy":  # the sky's finest levels are chosen for the first angle
        np.testing.assert_array_equal(after, fresh.render())
    assert np.mean(np.abs(after.astype(int) - fresh.render())) < 0.1


def test_episodes_draw_new_targets():
    env, renderer = make(world_of("reacher"))
    target = env.physics.model.name2id("target", "geom")
    places, pictures = set(), set()
    for _ in range(4):
        env.reset()
        places.add(tuple(env.physics.model.geom_pos[target]))
        env.physics.data.qpos[:] = 0
        mujoco.mj_forward(env.physics.model.ptr, env.physics.data.ptr)
        pictures.add(renderer.render().tobytes())
    assert len(places) == len(pictures) == 4


def test_what_cannot_be_drawn_ends_the_drawing():
    _, renderer = make(world_of("cheetah"))
    options = renderer._source._arguments[2]
    options.flags[mujoco.mjtVisFlag.mjVIS_JOINT] = True  # joints are drawn as arrows
    with pytest.raises(RuntimeError, match=r"arrow.*renderer='gl'"):
        renderer.render()
    options.flags[mujoco.mjtVisFlag.mjVIS_JOINT] = False
    renderer.render()


def test_a_scene_without_room_ends_the_drawing(monkeypatch, capfd):
    monkeypatch.setattr(scene, "most_geoms", lambda model: 5)
    with pytest.raises(RuntimeError, match="more than 5 geoms"):
        make(world_of("cheetah"))[1].render()


def test_another_layout_of_mujocos_scene_is_noticed(monkeypatch):
    model = suite.load("cheetah", "run").physics.model.ptr
    elements = mujoco.MjvScene(model, 10).geoms
    right = scene.layout("mjvGeom")
    with pytest.raises(scene.SceneLayoutError, match="no field colour"):
        scene.view("mjvGeom", elements, ("colour",))
    longer = np.dtype({"names": right.names, "formats": [right[n] for n in right.names], "itemsize": 260})
    monkeypatch.setattr(scene, "layout", lambda struct: longer)
    with pytest.raises(scene.SceneLayoutError, match=r"not 260 bytes long.*renderer='gl'"):
        scene.view("mjvGeom", elements, ("pos",))


def test_fields_in_another_order_are_noticed(monkeypatch):
    physics = suite.load("cheetah", "run").physics
    source = scene.SceneSource(physics.model.ptr, physics.data.ptr, 0)
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
    assert np.all(make_renderer(model, data, 0, 16, "raycast").render() == 0)
