"""Meshes: triangles in a tree of boxes, made once for a model, and rays against them.

A tree's nodes are stored as they are visited, each with the node to go on with where its box is missed: so a ray needs no
stack.
"""

import hashlib
from typing import NamedTuple

import mujoco
import numpy as np

from .kernel import Vector, compiled, cross, dot, inlined, subtract
from .shapes import MESH

LEAF = 4  # triangles at most
SMOOTH = 0.8  # MuJoCo takes a face's own normal where a corner's differs by more than this cosine

# Columns of a mesh, of a node, of a triangle's place (its first corner and two edges) and of its look.
ROOT, END, MIDDLE_OF_MESH, HALF_OF_MESH, HAS_COORDINATES, MESH_COLUMNS = 0, 1, 2, 5, 8, 9
LOW, HIGH, SKIP, FIRST, COUNT, NODE_COLUMNS = 0, 3, 6, 7, 8, 9
CORNER, EDGE_1, EDGE_2, CORNER_COLUMNS = 0, 3, 6, 9
NORMALS, COORDINATES, LOOK_COLUMNS = 0, 9, 15

PARALLEL = 1e-30
INSIDE = -1e-9  # a ray through a common edge meets at least one of its triangles
NO_TRIANGLE = -1


class Meshes(NamedTuple):
    """All meshes that a model may show."""

    table: np.ndarray  # float64 (mesh, MESH_COLUMNS)
    nodes: np.ndarray  # float64 (node, NODE_COLUMNS)
    corners: np.ndarray  # float64 (triangle, CORNER_COLUMNS)
    looks: np.ndarray  # float64 (triangle, LOOK_COLUMNS)


def build_tree(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The nodes of a tree over boxes, numbered from 0, and the order in which its leaves have them."""
    nodes: list[list[float]] = []
    order: list[int] = []
    centres = low + high

    def visit(items: np.ndarray) -> None:
        node = [*low[items].min(axis=0), *high[items].max(axis=0), 0, len(order), 0]
        nodes.append(node)
        if len(items) <= LEAF:
            node[COUNT] = len(items)
            order.extend(items)
        else:
            axis = np.ptp(centres[items], axis=0).argmax()
            halves = items[np.argpartition(centres[items, axis], len(items) // 2)]
            visit(halves[: len(items) // 2])
            visit(halves[len(items) // 2 :])
        node[SKIP] = len(nodes)

    visit(np.arange(len(low)))
    return np.array(nodes), np.array(order)


def triangles_of(model: mujoco.MjModel, mesh: int) -> tuple[np.ndarray, np.ndarray]:
    """A mesh's triangles as MuJoCo draws them: their corners (triangle, corner, xyz) and their looks."""
    first, count = model.mesh_faceadr[mesh], model.mesh_facenum[mesh]
    faces = slice(first, first + count)
    points = model.mesh_vert[model.mesh_vertadr[mesh] + model.mesh_face[faces]].astype(float)
    normals = model.mesh_normal[model.mesh_normaladr[mesh] + model.mesh_facenormal[faces]].astype(float)
    looks = np.zeros((count, LOOK_COLUMNS))
    if model.mesh_texcoordadr[mesh] >= 0:
        places = model.mesh_texcoord[model.mesh_texcoordadr[mesh] + model.mesh_facetexcoord[faces]]
        looks[:, COORDINATES:] = places.reshape(count, 6)
    else:
        flat = np.cross(points[:, 1] - points[:, 0], points[:, 2] - points[:, 0])
        flat /= np.linalg.norm(flat, axis=1, keepdims=True) + 1e-30
        apart = np.einsum("fck,fk->fc", normals, flat) < SMOOTH
        normals = np.where(apart[..., None], flat[:, None], normals)
    looks[:, NORMALS:COORDINATES] = normals.reshape(count, 9)
    return points, looks


def drawn_meshes(model: mujoco.MjModel) -> np.ndarray:
    """Meshes of the geoms that MuJoCo draws by default."""
    groups = mujoco.MjvOption().geomgroup
    is_drawn = groups[np.clip(model.geom_group, 0, len(groups) - 1)].astype(bool)
    return np.unique(model.geom_dataid[is_drawn & (model.geom_type == MESH)])


def build_meshes(model: mujoco.MjModel) -> Meshes:
    """The trees of all meshes that a model draws."""
    table = np.zeros((max(model.nmesh, 1), MESH_COLUMNS))
    nodes, corners, looks = [np.zeros((1, NODE_COLUMNS))], [np.zeros((1, CORNER_COLUMNS))], [np.zeros((1, LOOK_COLUMNS))]
    node_count = triangle_count = 1
    for mesh in drawn_meshes(model):
        points, look = triangles_of(model, mesh)
        tree, order = build_tree(points.min(axis=1), points.max(axis=1))
        points, look = points[order], look[order]
        tree[:, SKIP] += node_count
        tree[:, FIRST] += triangle_count
        low, high = tree[0, LOW:HIGH], tree[0, HIGH:SKIP]
        with_coordinates = model.mesh_texcoordadr[mesh] >= 0
        table[mesh] = [node_count, node_count + len(tree), *(low + high) / 2, *(high - low) / 2, with_coordinates]
        nodes.append(tree)
        corners.append(np.concatenate([points[:, 0], points[:, 1] - points[:, 0], points[:, 2] - points[:, 0]], axis=1))
        looks.append(look)
        node_count += len(tree)
        triangle_count += len(points)
    return Meshes(table, np.concatenate(nodes), np.concatenate(corners), np.concatenate(looks))


def meshes_digest(model: mujoco.MjModel) -> bytes:
    """Bytes that are the same for models with the same meshes."""
    digest = hashlib.blake2b()
    for part in (model.mesh_vert, model.mesh_face, model.mesh_normal, model.mesh_texcoord, drawn_meshes(model)):
        digest.update(part.tobytes())
    return digest.digest()


@compiled
def inverse(value: float) -> float:
    """1 / value, large where value is 0."""
    return 1.0 / value if abs(value) > 1e-15 else 1e15


@inlined
def meets_box(nodes: np.ndarray, n: int, origin: Vector, inverses: Vector, limit: float) -> bool:
    """Whether a ray meets a node's box before a distance."""
    near, far = 0.0, limit
    for k in range(3):
        a = (nodes[n, LOW + k] - origin[k]) * inverses[k]
        b = (nodes[n, HIGH + k] - origin[k]) * inverses[k]
        near = max(near, min(a, b))
        far = min(far, max(a, b))
    return near <= far


@inlined
def meets_triangle(corners: np.ndarray, k: int, origin: Vector, direction: Vector, any_side: bool) -> float:
    """Distance to a triangle, seen from its front only or from any side; -1 without a hit (Möller and Trumbore)."""
    edge_1 = (corners[k, EDGE_1], corners[k, EDGE_1 + 1], corners[k, EDGE_1 + 2])
    edge_2 = (corners[k, EDGE_2], corners[k, EDGE_2 + 1], corners[k, EDGE_2 + 2])
    p = cross(direction, edge_2)
    determinant = dot(edge_1, p)
    if determinant < PARALLEL and (not any_side or determinant > -PARALLEL):
        return -1.0
    scale = 1.0 / determinant
    offset = subtract(origin, (corners[k, CORNER], corners[k, CORNER + 1], corners[k, CORNER + 2]))
    u = dot(offset, p) * scale
    if u < INSIDE:
        return -1.0
    q = cross(offset, edge_1)
    v = dot(direction, q) * scale
    if v < INSIDE or u + v > 1.0 - INSIDE:
        return -1.0
    return dot(edge_2, q) * scale


@compiled
def hit_mesh(
    nodes: np.ndarray, corners: np.ndarray, root: int, end: int, origin: Vector, direction: Vector, limit: float,
    any_side: bool,
) -> tuple[float, int]:  # fmt: skip
    """Distance to a mesh's nearest triangle before a limit, and the triangle; -1 and NO_TRIANGLE without one."""
    inverses = (inverse(direction[0]), inverse(direction[1]), inverse(direction[2]))
    nearest, found = limit, NO_TRIANGLE
    n = root
    while n < end:
        if not meets_box(nodes, n, origin, inverses, nearest):
            n = int(nodes[n, SKIP])
            continue
        first = int(nodes[n, FIRST])
        for k in range(first, first + int(nodes[n, COUNT])):
            t = meets_triangle(corners, k, origin, direction, any_side)
            if 0.0 < t < nearest:
                nearest, found = t, k
        n += 1
    return (nearest, found) if found != NO_TRIANGLE else (-1.0, NO_TRIANGLE)


@compiled
def blocks(
    nodes: np.ndarray, corners: np.ndarray, root: int, end: int, origin: Vector, direction: Vector, limit: float
) -> bool:
    """Whether any triangle of a mesh lies on a ray before a limit."""
    inverses = (inverse(direction[0]), inverse(direction[1]), inverse(direction[2]))
    n = root
    while n < end:
        if not meets_box(nodes, n, origin, inverses, limit):
            n = int(nodes[n, SKIP])
            continue
        first = int(nodes[n, FIRST])
        for k in range(first, first + int(nodes[n, COUNT])):
            if 0.0 < meets_triangle(corners, k, origin, direction, True) < limit:
                return True
        n += 1
    return False


@compiled
def triangle_weights(corners: np.ndarray, k: int, point: Vector) -> Vector:
    """Weights of a triangle's corners at a point of its plane, also outside of the triangle."""
    edge_1 = (corners[k, EDGE_1], corners[k, EDGE_1 + 1], corners[k, EDGE_1 + 2])
    edge_2 = (corners[k, EDGE_2], corners[k, EDGE_2 + 1], corners[k, EDGE_2 + 2])
    offset = subtract(point, (corners[k, CORNER], corners[k, CORNER + 1], corners[k, CORNER + 2]))
    a, b, c = dot(edge_1, edge_1), dot(edge_1, edge_2), dot(edge_2, edge_2)
    d, e = dot(offset, edge_1), dot(offset, edge_2)
    scale = 1.0 / max(a * c - b * b, PARALLEL)
    u, v = (c * d - b * e) * scale, (a * e - b * d) * scale
    return 1.0 - u - v, u, v
