"""Light and shadow of single points, compared with OpenGL's equation and with trying every geom."""

import numba
import numpy as np
import pytest

from mjraycast import lights as module
from mjraycast import tables as t
from mjraycast.shapes import CAPSULE, PLANE, SPHERE

NO_MESHES = np.zeros((1, 9))
RANDOM = np.random.default_rng(0)


@numba.njit
def reflected_light(geoms, lights, point, facing, to_eye, tint):
    return module.reflected_light(geoms, 0, lights, 0, point, facing, to_eye, tint)


@numba.njit
def own_light(geoms, light_count):
    return module.own_light(geoms, 0, light_count, 1.0)


@numba.njit
def prepare(geoms, mirror, casters, everything):
    module.list_casters(geoms, len(geoms), mirror, casters, everything)


@numba.njit
def shadowed(geoms, casters, chosen, count, lights, point):
    return module.shadowed(geoms, NO_MESHES, NO_MESHES, casters, chosen, count, module.beam(lights, 0), point, -1)


@numba.njit
def choose(casters, lights, start, end, chosen):
    return module.choose_casters(casters, module.beam(lights, 0), start, end, chosen)


@numba.njit
def occludes(geoms, g, origin, way):
    return module.occludes(geoms, g, origin, way)


def make_geoms(count):
    """Small spheres and capsules about the origin."""
    geoms = np.zeros((count, t.GEOM_COLUMNS))
    for geom in geoms:
        geom[t.KIND] = RANDOM.choice([SPHERE, CAPSULE])
        geom[t.SIZE : t.SIZE + 3] = RANDOM.uniform(0.05, 0.2)
        geom[t.POSITION : t.POSITION + 3] = geom[t.MIDDLE : t.MIDDLE + 3] = RANDOM.uniform(-1, 1, 3)
        geom[t.ROTATION : t.ROTATION + 9] = np.linalg.qr(RANDOM.normal(size=(3, 3)))[0].ravel()
        geom[t.RADIUS] = 2 * geom[t.SIZE]
        geom[t.CASTS_SHADOW] = 1
    geoms[:, t.RGB : t.RGB + 3] = (0.5, 0.25, 1.0)
    geoms[:, t.SPECULAR], geoms[:, t.SHININESS] = 0.5, 64
    return geoms


def make_light(directional=False):
    """A light three metres above the origin, turned towards it, with shadows."""
    light = np.zeros((1, t.LIGHT_COLUMNS))
    light[0, t.LIGHT_POSITION : t.LIGHT_POSITION + 3] = (0.0, 0.5, 3.0)
    light[0, t.LIGHT_DIRECTION : t.LIGHT_DIRECTION + 3] = (0.0, 0.0, -1.0)
    light[0, t.LIGHT_AMBIENT : t.LIGHT_AMBIENT + 3] = 0.1
    light[0, t.LIGHT_DIFFUSE : t.LIGHT_DIFFUSE + 3] = 0.7
    light[0, t.LIGHT_SPECULAR : t.LIGHT_SPECULAR + 3] = 0.3
    light[0, t.ATTENUATION] = 1
    light[0, t.COS_CUTOFF], light[0, t.SPOT_EXPONENT] = np.cos(np.deg2rad(45)), 10
    light[0, t.DIRECTIONAL], light[0, t.SHADOWS], light[0, t.MAP_HALF_WIDTH] = directional, 1, 10
    light[0, t.MAP_X : t.MAP_X + 3], light[0, t.MAP_Y : t.MAP_Y + 3] = (1, 0, 0), (0, 1, 0)
    return light


def test_a_spot_light_follows_opengls_equation():
    geoms, light = make_geoms(1), make_light()
    point, facing = np.array([0.4, 0.3, 0.2]), np.array([0.0, 0.6, 0.8])
    to_eye = np.array([0.8, 0.0, 0.6])
    towards = np.array([0.0, 0.5, 3.0]) - point
    towards /= np.linalg.norm(towards)
    spot = towards[2] ** 10
    halfway = (towards + to_eye) / np.linalg.norm(towards + to_eye)
    matte = (0.1 + 0.7 * (facing @ towards)) * np.array([0.5, 0.25, 1.0])
    expected = spot * (matte + 0.5 * 0.3 * (facing @ halfway) ** 64)
    ours = reflected_light(geoms, light, tuple(point), tuple(facing), tuple(to_eye), 1.0)
    np.testing.assert_allclose(ours, expected, rtol=1e-9)


def test_distance_dims_a_light_and_its_cone_ends():
    geoms, light = make_geoms(1), make_light()
    up = (0.0, 0.0, 1.0)
    near = reflected_light(geoms, light, (0.0, 0.5, 0.0), up, up, 1.0)
    light[0, t.ATTENUATION : t.ATTENUATION + 3] = (1.0, 0.5, 0.25)
    far = reflected_light(geoms, light, (0.0, 0.5, 0.0), up, up, 1.0)
    np.testing.assert_allclose(np.divide(near, far), 1 + 0.5 * 3 + 0.25 * 9)
    assert reflected_light(geoms, light, (0.0, 4.0, 0.0), up, up, 1.0) == (0, 0, 0)


def test_a_surface_that_is_turned_away_gets_ambient_light_only():
    geoms, light = make_geoms(1), make_light(directional=True)
    down = (0.0, 0.0, -1.0)
    ours = reflected_light(geoms, light, (0.0, 0.0, 0.0), down, down, 0.5)
    np.testing.assert_allclose(ours, 0.5 * 0.1 * np.array([0.5, 0.25, 1.0]))


def test_mujoco_adds_light_only_where_there_is_none():
    geoms = make_geoms(1)
    geoms[0, t.EMISSION] = 0.2
    np.testing.assert_allclose(own_light(geoms, 1), 0.2 * np.array([0.5, 0.25, 1.0]))
    np.testing.assert_allclose(own_light(geoms, 0), 0.5 * np.array([0.5, 0.25, 1.0]))


@pytest.mark.parametrize("directional", [False, True])
def test_shadows_are_where_any_geom_is_in_the_way(directional):
    geoms, light = make_geoms(8), make_light(directional)
    casters, everything = np.zeros((9, module.CASTER_COLUMNS)), np.zeros(9, np.int64)
    prepare(geoms, -1, casters, everything)
    answers = []
    for _ in range(500):
        point = np.array([*RANDOM.uniform(-1.5, 1.5, 2), -1.2])
        origin = np.array([point[0], point[1], 3.0]) if directional else np.array([0.0, 0.5, 3.0])
        expected = any(occludes(geoms, g, tuple(origin), tuple(point - origin)) for g in range(8))
        assert shadowed(geoms, casters, everything, 8, light, tuple(point)) == expected
        answers.append(expected)
    assert 0.05 < np.mean(answers) < 0.95


@pytest.mark.parametrize("directional", [False, True])
def test_casters_chosen_for_a_line_are_all_that_it_needs(directional):
    geoms, light = make_geoms(12), make_light(directional)
    casters = np.zeros((13, module.CASTER_COLUMNS))
    everything, chosen = np.zeros(13, np.int64), np.zeros(13, np.int64)
    prepare(geoms, -1, casters, everything)
    kept = []
    for _ in range(100):
        start, end = (np.array([*RANDOM.uniform(-1.5, 1.5, 2), -1.2]) for _ in range(2))
        count = choose(casters, light, tuple(start), tuple(end), chosen)
        kept.append(count)
        for part in np.linspace(0, 1, 20):
            point = tuple(start + part * (end - start))
            assert shadowed(geoms, casters, chosen, count, light, point) == shadowed(
                geoms, casters, everything, 12, light, point
            )
    assert np.mean(kept) < 8, "hardly any caster was left out"


def test_points_outside_of_the_shadow_map_are_lit():
    geoms, light = make_geoms(1), make_light()
    geoms[0, t.POSITION : t.POSITION + 3] = geoms[0, t.MIDDLE : t.MIDDLE + 3] = (0.0, 0.5, 1.0)
    casters, everything = np.zeros((2, module.CASTER_COLUMNS)), np.zeros(2, np.int64)
    prepare(geoms, -1, casters, everything)
    assert shadowed(geoms, casters, everything, 1, light, (0.0, 0.5, -1.0))
    light[0, t.LIGHT_POSITION + 2] = -3.0  # the point is behind the light now
    assert not shadowed(geoms, casters, everything, 1, light, (0.0, 0.5, -1.0))
    light = make_light()
    light[0, t.MAP_HALF_WIDTH] = 0.1
    beside = (0.45, 0.5, -1.0)
    geoms[0, t.SIZE : t.SIZE + 3], geoms[0, t.RADIUS] = 0.4, 0.8
    prepare(geoms, -1, casters, everything)
    assert not shadowed(geoms, casters, everything, 1, light, beside)
    light[0, t.MAP_HALF_WIDTH] = 1.0
    assert shadowed(geoms, casters, everything, 1, light, beside)


def test_mirrors_and_decorations_cast_no_shadows():
    geoms = make_geoms(4)
    geoms[1, t.KIND] = PLANE
    geoms[2, t.CASTS_SHADOW] = 0
    casters, everything = np.zeros((5, module.CASTER_COLUMNS)), np.zeros(5, np.int64)
    prepare(geoms, 1, casters, everything)
    assert casters[0, module.CASTER] == 2
    assert casters[1:3, module.CASTER].tolist() == [0, 3]
    centres = casters[1:3, module.CENTRE : module.CENTRE + 3] - casters[0, module.CENTRE : module.CENTRE + 3]
    reach = np.linalg.norm(centres, axis=1) + casters[1:3, module.REACH]
    assert casters[0, module.REACH] == pytest.approx(reach.max())
