"""Rays against shapes, compared with walking along the ray and asking whether a point is inside."""

import mujoco
import numba
import numpy as np
import pytest

from mjraycast import shapes, tables
from mjraycast.shapes import BOX, CAPSULE, CYLINDER, ELLIPSOID, PLANE, SPHERE

SIZE = (0.4, 0.7, 0.5)
SOLIDS = {"sphere": SPHERE, "capsule": CAPSULE, "ellipsoid": ELLIPSOID, "cylinder": CYLINDER, "box": BOX}


@numba.njit
def hit(kind, size, origin, direction):
    return shapes.hit(kind, size, origin, direction)


@numba.njit
def crosses_plane(size, origin, direction):
    return shapes.crosses_plane(size, origin, direction)


@numba.njit
def normal(kind, size, point):
    return shapes.normal(kind, size, point)


@numba.njit
def bounding_radius(kind, size):
    return shapes.bounding_radius(kind, size)


@numba.njit
def extent(kind, size, axis):
    return shapes.extent(kind, size, axis)


def size_of(kind):
    """MuJoCo's sizes of a sphere and of tubes have fewer numbers."""
    if kind == SPHERE:
        return (SIZE[0],) * 3
    return (SIZE[0], SIZE[0], SIZE[2]) if kind in (CAPSULE, CYLINDER) else SIZE


def outside(kind, points):
    """A function of points that is negative inside of the shape, 0 on its surface, smooth where that is."""
    x, y, z = np.moveaxis(points, -1, 0)
    radius, half = SIZE[0], SIZE[2]
    if kind == SPHERE:
        return np.sqrt(x**2 + y**2 + z**2) - radius
    if kind == ELLIPSOID:
        return (x / SIZE[0]) ** 2 + (y / SIZE[1]) ** 2 + (z / SIZE[2]) ** 2 - 1
    if kind == BOX:
        return np.max(np.abs(points) - np.array(SIZE), axis=-1)
    if kind == CYLINDER:
        return np.maximum(np.hypot(x, y) - radius, np.abs(z) - half)
    return np.sqrt(x**2 + y**2 + (z - np.clip(z, -half, half)) ** 2) - radius


def random_rays(count, seed=0):
    """Rays from outside of all shapes towards points near their middle."""
    random = np.random.default_rng(seed)
    start = random.normal(size=(count, 3))
    origins = 3 * start / np.linalg.norm(start, axis=1, keepdims=True)
    return origins, random.uniform(-0.8, 0.8, (count, 3)) - origins


@pytest.mark.parametrize("kind", SOLIDS.values(), ids=SOLIDS)
def test_a_ray_enters_where_walking_along_it_first_gets_inside(kind):
    origins, directions = random_rays(300)
    steps = np.linspace(0, 2, 4001)
    walked = outside(kind, origins[:, None] + steps[:, None] * directions[:, None])
    rays = zip(origins, directions, strict=True)
    ours = np.array([hit(kind, size_of(kind), tuple(origin), tuple(direction)) for origin, direction in rays])
    for distance, values in zip(ours, walked, strict=True):
        if np.any(values < -1e-3):
            first = np.argmax(values < 0)
            assert steps[first - 1] - 1e-6 <= distance <= steps[first] + 1e-6
        elif np.all(values > 1e-3):
            assert distance <= 0
    assert np.mean(ours > 0) > 0.2, "too few rays hit for this to be a test"


@pytest.mark.parametrize("kind", SOLIDS.values(), ids=SOLIDS)
def test_normals_point_where_the_shape_ends_fastest(kind):
    origins, directions = random_rays(200, seed=1)
    checked = 0
    for origin, direction in zip(origins, directions, strict=True):
        distance = hit(kind, size_of(kind), tuple(origin), tuple(direction))
        if distance <= 0:
            continue
        point = origin + distance * direction
        steps = 1e-6 * np.eye(3)
        slope = outside(kind, point + steps) - outside(kind, point - steps)
        slope /= np.linalg.norm(slope)
        np.testing.assert_allclose(normal(kind, size_of(kind), tuple(point)), slope, atol=1e-3)
        checked += 1
    assert checked > 20


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("kind", SOLIDS.values(), ids=SOLIDS)
def test_rays_along_an_axis_enter_at_the_end_of_the_shape(kind, axis):
    half = extent(kind, size_of(kind), tuple(np.eye(3)[axis]))
    origin, direction = np.eye(3)[axis] * 2, -np.eye(3)[axis]
    assert hit(kind, size_of(kind), tuple(origin), tuple(direction)) == pytest.approx(2 - half)
    beside = origin + np.roll(np.eye(3)[axis], 1) * 2
    assert hit(kind, size_of(kind), tuple(beside), tuple(direction)) <= 0


@pytest.mark.parametrize("kind", SOLIDS.values(), ids=SOLIDS)
def test_from_inside_a_shape_is_invisible(kind):
    for direction in np.random.default_rng(2).normal(size=(50, 3)):
        assert hit(kind, size_of(kind), (0.05, 0.02, -0.1), tuple(direction)) <= 0


@pytest.mark.parametrize("kind", SOLIDS.values(), ids=SOLIDS)
def test_bounds_hold_the_shape_and_touch_it(kind):
    points = np.random.default_rng(3).uniform(-1, 1, (200_000, 3))
    inside = points[outside(kind, points) <= 0]
    reach = np.linalg.norm(inside, axis=1).max()
    assert reach <= bounding_radius(kind, size_of(kind)) <= reach + 0.1
    for axis in ((1.0, 0.0, 0.0), (0.0, 0.6, 0.8), (0.48, 0.6, 0.64)):
        assert (inside @ axis).max() <= extent(kind, size_of(kind), axis) + 1e-12


def test_a_plane_is_seen_from_above_and_within_its_edges_only():
    down, up = (0.1, 0.0, -1.0), (0.1, 0.0, 1.0)
    assert hit(PLANE, SIZE, (0.0, 0.0, 2.0), down) == pytest.approx(2)
    assert hit(PLANE, SIZE, (0.3, 0.0, 2.0), down) <= 0  # beyond the edge at 0.4
    assert hit(PLANE, SIZE, (0.0, 0.0, -2.0), up) <= 0
    assert hit(PLANE, SIZE, (0.0, 0.0, 2.0), up) <= 0
    assert crosses_plane(SIZE, (0.0, 0.0, -2.0), up) == pytest.approx(2)
    assert crosses_plane(SIZE, (0.0, 0.0, 2.0), down) == pytest.approx(2)
    assert crosses_plane(SIZE, (0.0, 0.0, 2.0), up) <= 0
    assert normal(PLANE, SIZE, (0.1, 0.1, 0.0)) == (0, 0, 1)


def test_the_numbers_of_shapes_are_mujocos():
    for name, kind in {**SOLIDS, "plane": PLANE}.items():
        assert kind == getattr(mujoco.mjtGeom, f"mjGEOM_{name.upper()}")


@numba.njit
def pixel_box(geoms, g, camera):
    return tables.pixel_box(geoms, g, camera)


@pytest.mark.parametrize(
    ("eye", "pixels"), [((0.3, -0.2, 0.9), (0, 0, 0, 0)), ((1.5, 0.0, 0.0), (0, 8, 0, 6)), ((0.0, 0.0, 9.0), (3, 6, 2, 5))]
)
def test_a_box_around_the_eye_takes_no_pixels(eye, pixels):
    geoms, camera = np.zeros((1, tables.GEOM_COLUMNS)), np.zeros(tables.CAMERA_SHAPE)
    geoms[0, tables.KIND], geoms[0, tables.SIZE : tables.SIZE + 3] = BOX, 1
    geoms[0, tables.ROTATION : tables.ROTATION + 9] = np.eye(3).ravel()
    camera[tables.EYE], camera[tables.LENS, tables.PIXEL], camera[tables.RASTER, :2] = eye, 0.25, (8, 6)
    camera[tables.RIGHT], camera[tables.UP], camera[tables.AHEAD] = np.eye(3) * [1, 1, -1]
    assert pixel_box(geoms, 0, camera) == pixels
