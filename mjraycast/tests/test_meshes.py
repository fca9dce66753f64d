"""Meshes: the tree finds what a search through all triangles finds, and corners are what MuJoCo draws."""

from pathlib import Path

import mujoco
import numba
import numpy as np
import pytest

from mjraycast import meshes as module

ARM = Path(__file__).parent / "arm.xml"


@numba.njit
def hit_mesh(nodes, corners, root, end, origin, direction, limit, any_side):
    return module.hit_mesh(nodes, corners, root, end, origin, direction, limit, any_side)


@numba.njit
def blocks(nodes, corners, root, end, origin, direction, limit):
    return module.blocks(nodes, corners, root, end, origin, direction, limit)


@numba.njit
def triangle_weights(corners, k, point):
    return module.triangle_weights(corners, k, point)


@pytest.fixture(scope="module")
def ring():
    """The model, its meshes, and the rows of the ring, which is not convex."""
    model = mujoco.MjModel.from_xml_path(str(ARM))
    meshes = module.build_meshes(model)
    row = meshes.table[model.mesh("ring").id]
    return model, meshes, int(row[module.ROOT]), int(row[module.END])


def rays(count):
    """Rays from around a mesh of a few decimetres, most of them towards it."""
    random = np.random.default_rng(0)
    for _ in range(count):
        origin = random.normal(size=3)
        yield origin, random.normal(scale=0.1, size=3) - origin


def search(points, origin, direction, any_side):
    """Distance to the nearest of triangles (triangle, corner, xyz), by a matrix inverse for each; inf without one."""
    nearest = np.inf
    for a, b, c in points:
        matrix = np.stack([b - a, c - a, -direction], axis=1)
        if abs(np.linalg.det(matrix)) < 1e-14 or (not any_side and np.dot(np.cross(b - a, c - a), direction) >= 0):
            continue
        u, v, t = np.linalg.solve(matrix, origin - a)
        if u >= 0 and v >= 0 and u + v <= 1 and t > 0:
            nearest = min(nearest, t)
    return nearest


@pytest.mark.parametrize("any_side", [False, True])
def test_rays_meet_the_nearest_triangle(ring, any_side):
    model, meshes, root, end = ring
    points, _ = module.triangles_of(model, model.mesh("ring").id)
    found = 0
    for origin, direction in rays(60):
        t, triangle = hit_mesh(meshes.nodes, meshes.corners, root, end, tuple(origin), tuple(direction), 1e30, any_side)
        expected = search(points, origin, direction, any_side)
        if expected == np.inf:
            assert triangle == module.NO_TRIANGLE
            continue
        found += 1
        assert t == pytest.approx(expected)
        weights = triangle_weights(meshes.corners, triangle, tuple(origin + t * direction))
        assert sum(weights) == pytest.approx(1)
        assert min(weights) > -1e-6
        near = hit_mesh(meshes.nodes, meshes.corners, root, end, tuple(origin), tuple(direction), 0.99 * t, any_side)
        assert near[1] == module.NO_TRIANGLE, "something was found beyond the limit"
    assert 10 < found < 60


def test_a_mesh_blocks_what_is_behind_it(ring):
    model, meshes, root, end = ring
    points, _ = module.triangles_of(model, model.mesh("ring").id)
    for origin, direction in rays(40):
        expected = search(points, origin, direction, any_side=True)
        blocked = blocks(meshes.nodes, meshes.corners, root, end, tuple(origin), tuple(direction), 2.0)
        assert blocked == (expected < 2.0)


def test_trees_hold_every_triangle_once_in_boxes_around_them(ring):
    model, meshes, *_ = ring
    for mesh in range(model.nmesh):
        root, end = (int(meshes.table[mesh, column]) for column in (module.ROOT, module.END))
        leaves = [node for node in meshes.nodes[root:end] if node[module.COUNT]]
        assert sum(node[module.COUNT] for node in leaves) == model.mesh_facenum[mesh]
        for node in leaves:
            rows = meshes.corners[int(node[module.FIRST]) : int(node[module.FIRST] + node[module.COUNT])]
            a = rows[:, :3]
            every = np.concatenate([a, a + rows[:, 3:6], a + rows[:, 6:9]])
            assert np.all(every >= node[:3] - 1e-9)
            assert np.all(every <= node[3:6] + 1e-9)


def test_sharp_edges_have_the_normals_of_their_faces(ring):
    model, *_ = ring
    points, looks = module.triangles_of(model, model.mesh("pedestal").id)
    flat = np.cross(points[:, 1] - points[:, 0], points[:, 2] - points[:, 0])
    flat /= np.linalg.norm(flat, axis=1, keepdims=True)
    np.testing.assert_allclose(looks[:, :9].reshape(-1, 3, 3), np.repeat(flat[:, None], 3, axis=1), atol=1e-6)


def test_only_meshes_that_are_drawn_are_built():
    xml = """<mujoco><asset>
    <mesh name='a' vertex='0 0 0 1 0 0 0 1 0 0 0 1'/><mesh name='b' builtin='sphere' params='1'/></asset>
    <worldbody><geom type='mesh' mesh='a'/><geom type='mesh' mesh='b' group='3'/></worldbody></mujoco>"""
    table = module.build_meshes(mujoco.MjModel.from_xml_string(xml)).table
    assert table[0, module.ROOT] > 0
    assert table[1, module.ROOT] == 0
