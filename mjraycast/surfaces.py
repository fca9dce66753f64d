"""The colour of a geom in a pixel: where it is computed, how the surface faces there, light and texture."""

import math

import numpy as np

from .kernel import (
    Table,
    Vector,
    add,
    along,
    clamped,
    compiled,
    cross,
    dot,
    inlined,
    multiply,
    normalized,
    scale,
    subtract,
    vector,
)
from .lights import CASTER, beam, own_light, reflected_light, shadowed
from .meshes import COORDINATES as TRIANGLE_COORDINATES
from .meshes import CORNER, EDGE_1, EDGE_2, NORMALS, triangle_weights
from .planes import local_lens, plane_texture
from .shapes import BOX, CAPSULE, MESH, PLANE, box_normal, hit, normal, sign
from .tables import (
    COLUMNS,
    COORDINATES,
    CUBE_SCALE,
    EYE,
    KIND,
    LENS,
    NEAR,
    PIXEL,
    POSITION,
    RASTER,
    RIGHT,
    ROWS,
    SAMPLE_X,
    SAMPLE_Y,
    SHADOWS,
    SIZE,
    TEXTURE,
    TEXTURE_SCALE,
    TEXTURE_SHIFT,
    UP,
    ray,
    to_local,
    to_world,
)
from .textures import FIRST_LEVEL, FLAT, FORM, HEIGHT, LEVEL_COUNT, WIDTH, cube_colour, filtered

Place = tuple[float, float]
Corners = tuple[Vector, Vector, Vector]
# Where light is computed: the number of points (1 or 3), their weights, the points, and the ways that they face.
Patch = tuple[int, Vector, Corners, Corners]

QUADS = 4  # along a side of a box, in MuJoCo

# OpenGL extends a round surface's shading to the pixel's centre even where that lies outside of the surface. The
# normal then turns away from the eye by about this part; on geoms thinner than THIN pixels by less. Fitted to
# Mesa.
SILHOUETTE_TILT = 0.9
THIN, THIN_TILT = 0.3, 0.36
GRAZING = 0.1  # the least cosine between ray and surface that a texture's density is computed for


@compiled
def box_patch(size: Vector, face: int, local: Vector) -> tuple[Vector, Corners]:
    """The triangle of a box's face about a point: MuJoCo divides each face into QUADS by QUADS quadrilaterals.

    Answers the weights of its corners at the point, which may lie outside of it, and the corners.
    """
    axis = face // 2
    first, second = (1, 2) if axis == 0 else (0, 2) if axis == 1 else (0, 1)
    step_x, step_y = 2.0 * size[first] / QUADS, 2.0 * size[second] / QUADS
    x, y = (local[first] + size[first]) / step_x, (local[second] + size[second]) / step_y
    i, j = min(max(math.floor(x), 0), QUADS - 1), min(max(math.floor(y), 0), QUADS - 1)
    x, y = x - i, y - j
    is_flipped = face in (0, 3, 4)  # where quadrilaterals are divided along the other diagonal
    if is_flipped:
        y = 1.0 - y
    near, far = 0, 1
    if x + y > 1.0:
        near, far, x, y = 1, 0, 1.0 - x, 1.0 - y
    near_y, far_y = (1 - near, 1 - far) if is_flipped else (near, far)
    x_near, x_far = (i + near) * step_x - size[first], (i + far) * step_x - size[first]
    y_near, y_far = (j + near_y) * step_y - size[second], (j + far_y) * step_y - size[second]
    height = size[axis] * (2.0 * (face % 2) - 1.0)
    corners = (
        on_face_of_box(axis, height, x_near, y_near),
        on_face_of_box(axis, height, x_far, y_near),
        on_face_of_box(axis, height, x_near, y_far),
    )
    return (1.0 - x - y, x, y), corners


@compiled
def on_face_of_box(axis: int, height: float, x: float, y: float) -> Vector:
    """A point of a face from its two coordinates there."""
    if axis == 0:
        return height, x, y
    return (x, height, y) if axis == 1 else (x, y, height)


@compiled
def mesh_patch(triangles: np.ndarray, looks: np.ndarray, k: int, local: Vector) -> tuple[Vector, Corners, Corners]:
    """Weights of a triangle's corners at a point of its plane, the corners, and the normals there."""
    corner = vector(triangles, k, CORNER)
    corners = (corner, add(corner, vector(triangles, k, EDGE_1)), add(corner, vector(triangles, k, EDGE_2)))
    normals = (vector(looks, k, NORMALS), vector(looks, k, NORMALS + 3), vector(looks, k, NORMALS + 6))
    return triangle_weights(triangles, k, local), corners, normals


@compiled
def placed(geoms: Table, g: int, corners: Corners) -> Corners:
    """Points of geom g in the world."""
    middle = vector(geoms, g, POSITION)
    return (
        add(middle, to_world(geoms, g, corners[0])),
        add(middle, to_world(geoms, g, corners[1])),
        add(middle, to_world(geoms, g, corners[2])),
    )


@compiled
def turned(geoms: Table, g: int, normals: Corners) -> Corners:
    """Directions in the frame of geom g, in the world's."""
    return to_world(geoms, g, normals[0]), to_world(geoms, g, normals[1]), to_world(geoms, g, normals[2])


@compiled
def flat_surface(
    geoms: Table, g: int, face: int, triangles: np.ndarray, looks: np.ndarray, camera: Table, x: int, y: int, sample: int,
    sample_depth: float,
) -> tuple[float, Vector, Vector, Vector, Patch]:  # fmt: skip
    """As `surface`, for boxes, meshes and planes.

    OpenGL extends a flat face to the pixel's centre, and computes light at the corners of the triangles that it draws:
    so do we where these are large, on boxes and meshes.
    """
    kind = int(geoms[g, KIND])
    eye = vector(camera, EYE, 0)
    direction = ray(camera, x + 0.5, y + 0.5)
    size = vector(geoms, g, SIZE)
    origin = to_local(geoms, g, subtract(eye, vector(geoms, g, POSITION)))
    flat, distance = (0.0, 0.0, 1.0), -origin[2]
    if kind == BOX:
        flat = box_normal(face)
        distance = size[face // 2] - dot(flat, origin)
    elif kind == MESH:
        flat = normalized(cross(vector(triangles, face, EDGE_1), vector(triangles, face, EDGE_2)))
        distance = dot(flat, subtract(vector(triangles, face, CORNER), origin))
    through = to_local(geoms, g, direction)
    depth = distance / (dot(flat, through) - 1e-12)
    if not 0.5 * sample_depth < depth < 2.0 * sample_depth:
        depth, direction = sample_depth, ray(camera, x + SAMPLE_X[sample], y + SAMPLE_Y[sample])
        through = to_local(geoms, g, direction)
    local = along(origin, depth, through)
    facing = to_world(geoms, g, flat)
    if kind == BOX:
        weights, corners = box_patch(size, face, local)
        return depth, direction, local, facing, (3, weights, placed(geoms, g, corners), (facing, facing, facing))
    if kind == MESH:
        weights, corners, normals = mesh_patch(triangles, looks, face, local)
        return depth, direction, local, facing, (3, weights, placed(geoms, g, corners), turned(geoms, g, normals))
    point = along(eye, depth, direction)
    return depth, direction, local, facing, (1, (1.0, 0.0, 0.0), (point, point, point), (facing, facing, facing))


@inlined
def surface(
    geoms: Table, g: int, face: int, triangles: np.ndarray, looks: np.ndarray, camera: Table, pixel: int, sample: int,
    sample_depth: float,
) -> tuple[float, Vector, Vector, Vector, Patch]:  # fmt: skip
    """Where a pixel computes the colour of a face of geom g: depth and ray, the point in the geom's frame, the way that
    the surface faces there, and what to compute light for.

    At the pixel's centre where the geom covers it, else at a sample that it covers.
    """
    kind = int(geoms[g, KIND])
    columns = int(camera[RASTER, COLUMNS])
    x, y = pixel % columns, pixel // columns
    if kind in (BOX, MESH, PLANE):
        return flat_surface(geoms, g, face, triangles, looks, camera, x, y, sample, sample_depth)
    eye = vector(camera, EYE, 0)
    size = vector(geoms, g, SIZE)
    direction = ray(camera, x + 0.5, y + 0.5)
    origin = to_local(geoms, g, subtract(eye, vector(geoms, g, POSITION)))
    through = to_local(geoms, g, direction)
    depth = hit(kind, size, origin, through)
    tilt = 0.0
    if depth <= camera[LENS, NEAR]:
        thick = size[0] > THIN * camera[LENS, PIXEL] * sample_depth
        tilt = SILHOUETTE_TILT if thick else THIN_TILT
        depth, direction = sample_depth, ray(camera, x + SAMPLE_X[sample], y + SAMPLE_Y[sample])
        through = to_local(geoms, g, direction)
    local = along(origin, depth, through)
    facing = to_world(geoms, g, normal(kind, size, local))
    if tilt > 0.0:
        to_eye = normalized(scale(direction, -1.0))
        facing = normalized(along(facing, -tilt * dot(facing, to_eye), to_eye))
    point = along(eye, depth, direction)
    return depth, direction, local, facing, (1, (1.0, 0.0, 0.0), (point, point, point), (facing, facing, facing))


@compiled
def above_zero(colour: Vector) -> Vector:
    """A colour without the negative parts that it can have outside of its triangle."""
    return max(colour[0], 0.0), max(colour[1], 0.0), max(colour[2], 0.0)


@inlined
def lit(geoms: Table, g: int, lights: Table, light_count: int, patch: Patch, eye: Vector, tint: float) -> Vector:
    """The light that a patch of geom g sends to the eye, without shadows; `tint` scales g's colour."""
    count, weights, points, normals = patch
    result = (0.0, 0.0, 0.0)
    for k in range(count):
        to_eye = normalized(subtract(eye, points[k]))
        total = own_light(geoms, g, light_count, tint)
        for i in range(light_count):
            total = add(total, reflected_light(geoms, g, lights, i, points[k], normals[k], to_eye, tint))
        result = along(result, weights[k], clamped(total))
    return above_zero(result)


@inlined
def lit_with_shadows(
    geoms: Table, g: int, nodes: np.ndarray, triangles: np.ndarray, lights: Table, light_count: int, casters: Table,
    everything: np.ndarray, patch: Patch, point: Vector, eye: Vector,
) -> Vector:  # fmt: skip
    """The light that a point of geom g sends to the eye.

    Each light with shadows is a pass of its own, as in MuJoCo, and adds to the picture what it lights up.
    """
    count, weights, points, normals = patch
    all_casters = int(casters[0, CASTER])
    result = (0.0, 0.0, 0.0)
    for k in range(count):
        to_eye = normalized(subtract(eye, points[k]))
        unshadowed = own_light(geoms, g, light_count, 1.0)
        for i in range(light_count):
            if lights[i, SHADOWS] == 0.0:
                unshadowed = add(unshadowed, reflected_light(geoms, g, lights, i, points[k], normals[k], to_eye, 1.0))
        result = along(result, weights[k], clamped(unshadowed))
    result = above_zero(result)
    for i in range(light_count):
        if lights[i, SHADOWS] == 0.0:
            continue
        colour = (0.0, 0.0, 0.0)
        for k in range(count):
            to_eye = normalized(subtract(eye, points[k]))
            reflected = reflected_light(geoms, g, lights, i, points[k], normals[k], to_eye, 1.0)
            colour = along(colour, weights[k], clamped(reflected))
        if colour[0] + colour[1] + colour[2] > 0.0 and not shadowed(
            geoms, nodes, triangles, casters, everything, all_casters, beam(lights, i), point, g
        ):
            result = add(result, above_zero(colour))
    return result


@compiled
def surface_step(geoms: Table, g: int, step: Vector, direction: Vector, facing: Vector) -> Vector:
    """How a point of geom g moves on its surface, in its own frame, when its ray is moved by a step."""
    slope = dot(facing, direction)
    slope = min(slope, -GRAZING)  # a ray that meets the surface comes from its outside
    return to_local(geoms, g, along(step, -dot(facing, step) / slope, direction))


@compiled
def cube_texture(
    geoms: Table, g: int, texels: np.ndarray, index: np.ndarray, local: Vector, right: Vector, up: Vector
) -> Vector:
    """A cube texture at a point of geom g; `right` and `up` lead to where the next pixels see it."""
    scaling = vector(geoms, g, CUBE_SCALE)
    x, y, z = multiply(local, scaling)
    sx, sz = geoms[g, SIZE], geoms[g, SIZE + 2]
    if geoms[g, KIND] == CAPSULE and abs(local[2]) > sz:  # MuJoCo draws the ends as half spheres of their own
        stretch = scaling[2] * sz / sx
        scaling = (scaling[0], scaling[1], stretch)
        z = (local[2] + sign(local[2]) * (sx - sz)) * stretch
    texture = int(geoms[g, TEXTURE])
    return cube_colour(texels, index, texture, (x, y, z), multiply(right, scaling), multiply(up, scaling))


@compiled
def mesh_coordinates(geoms: Table, g: int, triangles: np.ndarray, looks: np.ndarray, k: int, local: Vector) -> Place:
    """2D texture coordinates at a point of triangle k of mesh g: its own, or MuJoCo's projection along z."""
    s, t = local[0], local[1]
    if geoms[g, COORDINATES] > 0.0:
        u, v, w = triangle_weights(triangles, k, local)
        c = TRIANGLE_COORDINATES
        s = u * looks[k, c] + v * looks[k, c + 2] + w * looks[k, c + 4]
        t = u * looks[k, c + 1] + v * looks[k, c + 3] + w * looks[k, c + 5]
    return (
        s * geoms[g, TEXTURE_SCALE] + geoms[g, TEXTURE_SHIFT],
        t * geoms[g, TEXTURE_SCALE + 1] + geoms[g, TEXTURE_SHIFT + 1],
    )


@compiled
def mesh_texture(
    geoms: Table, g: int, triangles: np.ndarray, looks: np.ndarray, k: int, texels: np.ndarray, index: np.ndarray,
    local: Vector, right: Vector, up: Vector,
) -> Vector:  # fmt: skip
    """A 2D texture at a point of triangle k of mesh g; `right` and `up` lead to where the next pixels see it."""
    texture = int(geoms[g, TEXTURE])
    first = index[texture, FIRST_LEVEL]
    s, t = mesh_coordinates(geoms, g, triangles, looks, k, local)
    density = 0.0
    for step in (right, up):
        s_there, t_there = mesh_coordinates(geoms, g, triangles, looks, k, add(local, step))
        ds, dt = (s_there - s) * index[first, WIDTH], (t_there - t) * index[first, HEIGHT]
        density = max(density, ds * ds + dt * dt)
    return filtered(texels, index, first, index[texture, LEVEL_COUNT], s, t, density, True)


@inlined
def texture_colour(
    geoms: Table, g: int, face: int, triangles: np.ndarray, looks: np.ndarray, camera: Table, texels: np.ndarray,
    index: np.ndarray, pixel: int, local: Vector, facing: Vector, direction: Vector, depth: float,
) -> Vector:  # fmt: skip
    """The texture of geom g where a pixel's ray meets it; white without one."""
    if geoms[g, TEXTURE] < 0.0:
        return 1.0, 1.0, 1.0
    if geoms[g, KIND] == PLANE:
        columns, rows = int(camera[RASTER, COLUMNS]), int(camera[RASTER, ROWS])
        lens = local_lens(geoms, g, camera)
        return plane_texture(geoms, g, texels, index, lens, pixel % columns, pixel // columns, rows, local)
    width = camera[LENS, PIXEL] * depth
    right = surface_step(geoms, g, scale(vector(camera, RIGHT, 0), width), direction, facing)
    up = surface_step(geoms, g, scale(vector(camera, UP, 0), width), direction, facing)
    if index[int(geoms[g, TEXTURE]), FORM] == FLAT:
        return mesh_texture(geoms, g, triangles, looks, face, texels, index, local, right, up)
    return cube_texture(geoms, g, texels, index, local, right, up)
