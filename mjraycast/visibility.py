"""Which geom each sample of a picture shows, to the eye or to its mirror image below a reflecting floor."""

import math
from typing import NamedTuple

import numpy as np

from .kernel import Table, Vector, add, along, compiled, dot, scale, subtract, vector
from .meshes import hit_mesh
from .shapes import BOX, FAR_AWAY, MESH, MISS, PLANE, box_face, crosses_plane, hit
from .tables import (
    AHEAD,
    COLUMNS,
    EYE,
    KIND,
    LENS,
    MESH_END,
    MESH_ROOT,
    NEAR,
    NOTHING,
    PIXEL,
    POSITION,
    RADIUS,
    RASTER,
    REFLECTANCE,
    RIGHT,
    ROWS,
    SAMPLE_X,
    SAMPLE_Y,
    SAMPLES,
    SIZE,
    TRANSPARENT,
    UP,
    height_above,
    nearest_depth,
    pixel_box,
    ray,
    to_local,
)

GEOM_BITS = 20
GEOM_MASK = (1 << GEOM_BITS) - 1
ENDLESS_HORIZON = 1e30


class Layer(NamedTuple):
    """What one camera sees."""

    camera: np.ndarray  # float64 CAMERA_SHAPE
    depth: np.ndarray  # float64 (pixel * SAMPLES,)
    owner: np.ndarray  # int64 (pixel * SAMPLES,): the geom and which face of it, see `face_code`, or NOTHING
    image: np.ndarray  # float64 (pixel, rgb)


@compiled
def face_code(g: int, face: int) -> int:
    """One number for a face of a geom: a side of a box, a triangle of a mesh, or face 0 of anything else."""
    return (face << GEOM_BITS) | g


@compiled
def meet(
    geoms: Table, g: int, nodes: np.ndarray, triangles: np.ndarray, origin: Vector, direction: Vector, limit: float
) -> tuple[float, int]:
    """Where a ray, in the frame of geom g, enters it before a limit, and by which face; not above 0 when it does not."""
    kind = int(geoms[g, KIND])
    if kind == MESH:
        root, end = int(geoms[g, MESH_ROOT]), int(geoms[g, MESH_END])
        return hit_mesh(nodes, triangles, root, end, origin, direction, limit, False)
    size = vector(geoms, g, SIZE)
    t = hit(kind, size, origin, direction)
    return t, box_face(size, along(origin, t, direction)) if kind == BOX else 0


@compiled
def cast_rays(
    geoms: Table, g: int, nodes: np.ndarray, triangles: np.ndarray, layer: Layer, mirror: int, horizon: float
) -> None:
    """Lets geom g take the samples where it is nearest. With a mirror, only what is above it counts."""
    camera, depth, owner, _ = layer
    kind = int(geoms[g, KIND])
    shape = vector(geoms, g, SIZE)
    eye = vector(camera, EYE, 0)
    origin = to_local(geoms, g, subtract(eye, vector(geoms, g, POSITION)))
    right = to_local(geoms, g, vector(camera, RIGHT, 0))
    up = to_local(geoms, g, vector(camera, UP, 0))
    ahead = to_local(geoms, g, vector(camera, AHEAD, 0))
    pixel, near = camera[LENS, PIXEL], camera[LENS, NEAR]
    columns = int(camera[RASTER, COLUMNS])
    half_width, half_height = 0.5 * camera[RASTER, COLUMNS], 0.5 * camera[RASTER, ROWS]
    root, end = int(geoms[g, MESH_ROOT]), int(geoms[g, MESH_END])
    nearest = nearest_depth(geoms, g, camera)
    offset = subtract(vector(geoms, g, POSITION), eye)
    may_leave = kind == PLANE and math.sqrt(dot(offset, offset)) + geoms[g, RADIUS] > horizon
    x0, x1, y0, y1 = pixel_box(geoms, g, camera)
    for y in range(y0, y1):
        for s in range(SAMPLES):
            row = along(ahead, (half_height - y - SAMPLE_Y[s]) * pixel, up)
            for x in range(x0, x1):
                j = (y * columns + x) * SAMPLES + s
                if depth[j] <= nearest:
                    continue
                direction = along(row, (x + SAMPLE_X[s] - half_width) * pixel, right)
                face = 0
                if kind == MESH:
                    t, face = hit_mesh(nodes, triangles, root, end, origin, direction, depth[j], False)
                else:
                    t = hit(kind, shape, origin, direction)
                if near < t < depth[j]:
                    if mirror != NOTHING or may_leave:
                        way = scale(ray(camera, x + SAMPLE_X[s], y + SAMPLE_Y[s]), t)
                        if mirror != NOTHING and height_above(geoms, mirror, add(eye, way)) < 0.0:
                            continue
                        if may_leave and beyond(horizon, way):
                            continue
                    if kind == BOX:
                        face = box_face(shape, along(origin, t, direction))
                    depth[j] = t
                    owner[j] = face_code(g, face)


@compiled
def beyond(horizon: float, way: Vector) -> bool:
    """Whether a point, seen from the eye, lies outside of the cylinder that MuJoCo draws the sky on."""
    return way[0] * way[0] + way[1] * way[1] > horizon * horizon or abs(way[2]) > horizon


@compiled
def see(
    geoms: Table, count: int, nodes: np.ndarray, triangles: np.ndarray, layer: Layer, mirror: int, horizon: float,
    order: np.ndarray, nearest: np.ndarray,
) -> None:  # fmt: skip
    """Finds the opaque geom that each sample of a layer shows. What is near comes first: it hides the others.

    `order` and `nearest` are room for as many numbers as there are geoms.
    """
    layer.owner[:] = NOTHING
    found = 0
    for g in range(count):
        if g == mirror or geoms[g, TRANSPARENT] > 0.0:
            continue
        depth = nearest_depth(geoms, g, layer.camera)
        place = found
        while place > 0 and nearest[place - 1] > depth:
            nearest[place], order[place] = nearest[place - 1], order[place - 1]
            place -= 1
        nearest[place], order[place] = depth, g
        found += 1
    for k in range(found):
        cast_rays(geoms, order[k], nodes, triangles, layer, mirror, horizon)


@compiled
def find_mirror(geoms: Table, count: int) -> int:
    """The one geom that MuJoCo lets reflect: the first reflecting plane, or NOTHING."""
    for g in range(count):
        if geoms[g, REFLECTANCE] > 0.0 and geoms[g, KIND] == PLANE and geoms[g, TRANSPARENT] == 0.0:
            return g
    return NOTHING


@compiled
def samples_like(owner: np.ndarray, pixel: int, sample: int) -> int:
    """How many samples of a pixel have the same owner as `sample`; 0 if an earlier sample has it too."""
    first = pixel * SAMPLES
    g = owner[first + sample]
    for s in range(sample):
        if owner[first + s] == g:
            return 0
    same = 1
    for s in range(sample + 1, SAMPLES):
        if owner[first + s] == g:
            same += 1
    return same


@compiled
def shows(owner: np.ndarray, pixel: int, g: int) -> bool:
    """Whether any of a pixel's samples shows geom g."""
    first = pixel * SAMPLES
    found = False
    for s in range(SAMPLES):
        found |= owner[first + s] == g
    return found


@compiled
def reach(
    geoms: Table, g: int, nodes: np.ndarray, triangles: np.ndarray, eye: Vector, direction: Vector, mirror: int
) -> tuple[float, int]:
    """Depth and face of transparent geom g along a ray, planes from both sides; MISS below a mirror."""
    origin = to_local(geoms, g, subtract(eye, vector(geoms, g, POSITION)))
    local = to_local(geoms, g, direction)
    if geoms[g, KIND] == PLANE:
        t, face = crosses_plane(vector(geoms, g, SIZE), origin, local), 0
    else:
        t, face = meet(geoms, g, nodes, triangles, origin, local, FAR_AWAY)
    if mirror != NOTHING and height_above(geoms, mirror, along(eye, t, direction)) < 0.0:
        return MISS, 0
    return t, face
