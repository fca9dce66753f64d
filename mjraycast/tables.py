"""The tables that a frame is computed from: geoms, lights and a camera, read from MuJoCo's scene."""

import math
from typing import Any

import mujoco
import numpy as np

from .kernel import Table, Vector, add, compiled, cross, dot, normalized, scale, store, subtract, vector
from .meshes import END, HALF_OF_MESH, HAS_COORDINATES, MIDDLE_OF_MESH, ROOT
from .shapes import BOX, MESH, PLANE, SPHERE, bounding_radius, extent, is_inside

# Columns of the table of geoms. A vector takes three columns, the rotation nine (row after row).
KIND, SIZE, POSITION, ROTATION, RGB, ALPHA = 0, 1, 4, 7, 16, 19
EMISSION, SPECULAR, SHININESS, REFLECTANCE = 20, 21, 22, 23
TEXTURE, TEXTURE_UNIFORM, PLANE_INDEX = 24, 25, 26
TEXTURE_SCALE, TEXTURE_SHIFT, ENDLESS = 27, 29, 31  # for x and y: 2D texture coordinates are scale * x + shift
TRANSPARENT, CASTS_SHADOW, RADIUS, MIDDLE, CUBE_SCALE = 33, 34, 35, 36, 39  # MIDDLE: of the box around the shape
MESH_ROOT, MESH_END, COORDINATES = 42, 43, 44
GEOM_COLUMNS = 45

# Columns of the table of lights.
LIGHT_POSITION, LIGHT_DIRECTION, LIGHT_AMBIENT, LIGHT_DIFFUSE, LIGHT_SPECULAR = 0, 3, 6, 9, 12
ATTENUATION, COS_CUTOFF, SPOT_EXPONENT, DIRECTIONAL, SHADOWS = 15, 18, 19, 20, 21
MAP_HALF_WIDTH, MAP_X, MAP_Y = 22, 23, 26
LIGHT_COLUMNS = 29

# Rows of a camera: its position, its axes, and PIXEL (a pixel's width at depth 1), NEAR and FAR (clipping
# depths), and the picture's number of COLUMNS and ROWS.
EYE, RIGHT, UP, AHEAD, LENS, RASTER = 0, 1, 2, 3, 4, 5
PIXEL, NEAR, FAR = 0, 1, 2
COLUMNS, ROWS = 0, 1
CAMERA_SHAPE = (6, 3)

# Where a pixel's coverage is tested, from its upper left corner: Mesa's four samples, and those of many GPUs.
SAMPLE_X = np.array([0.375, 0.875, 0.125, 0.625])
SAMPLE_Y = np.array([0.875, 0.625, 0.375, 0.125])
SAMPLES = len(SAMPLE_X)

NOTHING = -1  # in place of a geom
SPOT_LIGHT, DIRECTIONAL_LIGHT = 0, 1  # mjtLightType
DECORATION = int(mujoco.mjtCatBit.mjCAT_DECOR)
OPAQUE = 0.995  # MuJoCo draws geoms below this alpha as transparent
SHINIEST = 128.0  # the OpenGL exponent of shininess 1
WIDEST_SHADOW_MAP = 160.0  # degrees
MOST_CELLS = 200  # that MuJoCo divides a side of a plane into
HORIZON = 2.1  # width of an infinite plane, in far clipping depths


@compiled
def to_local(geoms: Table, g: int, a: Vector) -> Vector:
    """A world direction in the frame of geom g."""
    r = ROTATION
    return (
        geoms[g, r] * a[0] + geoms[g, r + 3] * a[1] + geoms[g, r + 6] * a[2],
        geoms[g, r + 1] * a[0] + geoms[g, r + 4] * a[1] + geoms[g, r + 7] * a[2],
        geoms[g, r + 2] * a[0] + geoms[g, r + 5] * a[1] + geoms[g, r + 8] * a[2],
    )


@compiled
def to_world(geoms: Table, g: int, a: Vector) -> Vector:
    """A direction in the frame of geom g, in the world's."""
    r = ROTATION
    return (
        geoms[g, r] * a[0] + geoms[g, r + 1] * a[1] + geoms[g, r + 2] * a[2],
        geoms[g, r + 3] * a[0] + geoms[g, r + 4] * a[1] + geoms[g, r + 5] * a[2],
        geoms[g, r + 6] * a[0] + geoms[g, r + 7] * a[1] + geoms[g, r + 8] * a[2],
    )


@compiled
def height_above(geoms: Table, g: int, point: Vector) -> float:
    """How far a point lies in front of the plane geom g."""
    return to_local(geoms, g, subtract(point, vector(geoms, g, POSITION)))[2]


@compiled
def ray(camera: Table, x: float, y: float) -> Vector:
    """Direction, at depth 1, through a point of the picture in pixels."""
    u = (x - 0.5 * camera[RASTER, COLUMNS]) * camera[LENS, PIXEL]
    v = (0.5 * camera[RASTER, ROWS] - y) * camera[LENS, PIXEL]
    return (
        camera[AHEAD, 0] + u * camera[RIGHT, 0] + v * camera[UP, 0],
        camera[AHEAD, 1] + u * camera[RIGHT, 1] + v * camera[UP, 1],
        camera[AHEAD, 2] + u * camera[RIGHT, 2] + v * camera[UP, 2],
    )


@compiled
def span(centre: float, half: float, near: float, far: float) -> tuple[float, float]:
    """Interval that [centre - half, centre + half] at depths from near to far covers at depth 1."""
    low = centre - half
    high = centre + half
    return low / (far if low > 0.0 else near), high / (near if high > 0.0 else far)


@compiled
def nearest_depth(geoms: Table, g: int, camera: Table) -> float:
    """The least depth that a point of geom g can have."""
    offset = subtract(vector(geoms, g, MIDDLE), vector(camera, EYE, 0))
    ahead = vector(camera, AHEAD, 0)
    return dot(offset, ahead) - extent(int(geoms[g, KIND]), vector(geoms, g, SIZE), to_local(geoms, g, ahead))


@compiled
def pixel_box(geoms: Table, g: int, camera: Table) -> tuple[int, int, int, int]:
    """Pixels (left, right, top, bottom; ends excluded) that geom g can touch."""
    kind = int(geoms[g, KIND])
    shape = vector(geoms, g, SIZE)
    offset = subtract(vector(geoms, g, MIDDLE), vector(camera, EYE, 0))
    right, up, ahead = vector(camera, RIGHT, 0), vector(camera, UP, 0), vector(camera, AHEAD, 0)
    depth = dot(offset, ahead)
    thickness = extent(kind, shape, to_local(geoms, g, ahead))
    if depth + thickness <= 0.0:
        return 0, 0, 0, 0
    near, far = depth - thickness, depth + thickness
    columns, rows = int(camera[RASTER, COLUMNS]), int(camera[RASTER, ROWS])
    if near <= 1e-3:  # it reaches behind the eye
        if kind == BOX and is_inside(shape, to_local(geoms, g, offset)):
            return 0, 0, 0, 0
        for wide, axis in ((columns, right), (rows, up)):
            slope = 0.5 * wide * camera[LENS, PIXEL]
            for side in (axis, scale(axis, -1.0)):
                inwards = normalized(add(scale(ahead, slope), side))
                if dot(offset, inwards) + extent(kind, shape, to_local(geoms, g, inwards)) < 0.0:
                    return 0, 0, 0, 0
        return 0, columns, 0, rows
    zoom = 1.0 / camera[LENS, PIXEL]
    low, high = span(dot(offset, right), extent(kind, shape, to_local(geoms, g, right)), near, far)
    left_edge = max(0, math.floor(0.5 * columns + low * zoom))
    right_edge = min(columns, math.ceil(0.5 * columns + high * zoom) + 1)
    low, high = span(dot(offset, up), extent(kind, shape, to_local(geoms, g, up)), near, far)
    top_edge = max(0, math.floor(0.5 * rows - high * zoom))
    bottom_edge = min(rows, math.ceil(0.5 * rows - low * zoom) + 1)
    return left_edge, right_edge, top_edge, bottom_edge


@compiled
def read_camera(raw: np.ndarray, columns: int, rows: int, camera: Table) -> None:
    """MuJoCo's camera: halfway between the two eyes of its scene."""
    for k in range(3):
        camera[EYE, k] = 0.5 * (raw[0].pos[k] + raw[1].pos[k])
        camera[AHEAD, k] = 0.5 * (raw[0].forward[k] + raw[1].forward[k])
        camera[UP, k] = 0.5 * (raw[0].up[k] + raw[1].up[k])
    ahead = normalized(vector(camera, AHEAD, 0))
    right = normalized(cross(ahead, vector(camera, UP, 0)))
    store(camera, AHEAD, 0, ahead)
    store(camera, RIGHT, 0, right)
    store(camera, UP, 0, cross(right, ahead))
    near = raw[0].frustum_near
    camera[LENS, PIXEL] = (raw[0].frustum_top - raw[0].frustum_bottom) / (near * rows)
    camera[LENS, NEAR] = near
    camera[LENS, FAR] = raw[0].frustum_far
    camera[RASTER, COLUMNS] = columns
    camera[RASTER, ROWS] = rows


@compiled
def mirror_camera(camera: Table, geoms: Table, g: int, mirrored: Table) -> None:
    """The camera as seen in the plane geom g: rays from it are the reflected rays."""
    facing = to_world(geoms, g, (0.0, 0.0, 1.0))
    eye = vector(camera, EYE, 0)
    store(mirrored, EYE, 0, add(eye, scale(facing, -2.0 * height_above(geoms, g, eye))))
    for axis in range(RIGHT, LENS):
        a = vector(camera, axis, 0)
        store(mirrored, axis, 0, add(a, scale(facing, -2.0 * dot(facing, a))))
    store(mirrored, LENS, 0, vector(camera, LENS, 0))
    store(mirrored, RASTER, 0, vector(camera, RASTER, 0))


@compiled
def read_plane(geom: Any, far: float, geoms: Table, g: int) -> None:
    """The size of a plane, which MuJoCo centres at the eye where it is infinite, and how its texture lies on it."""
    half_turn = -0.5 if geom.size[0] <= 0.0 or geom.size[1] <= 0.0 else 0.0
    for k in range(2):
        towards = 1.0 if k == 0 else -1.0
        repeat = geom.texrepeat[k]
        endless = geom.size[k] <= 0.0
        geoms[g, ENDLESS + k] = endless
        if endless:
            step = 2.0 / repeat if geom.matid >= 0 and repeat > 0.0 else HORIZON * far / (MOST_CELLS - 2)
            geoms[g, SIZE + k] = 0.5 * HORIZON * far + step
            geoms[g, TEXTURE_SCALE + k] = 0.5 * repeat * towards
            geoms[g, TEXTURE_SHIFT + k] = half_turn
        else:
            scaled = 0.5 * repeat / (1.0 if geom.texuniform else geom.size[k])
            geoms[g, TEXTURE_SCALE + k] = scaled * towards
            geoms[g, TEXTURE_SHIFT + k] = scaled * geom.size[k] + half_turn


@compiled
def read_mesh(geom: Any, mesh: np.ndarray, geoms: Table, g: int) -> None:
    """The tree of a mesh and the box around it, and how a texture lies on it. Its own `size` only scales textures."""
    geoms[g, MESH_ROOT] = mesh[ROOT]
    geoms[g, MESH_END] = mesh[END]
    geoms[g, COORDINATES] = mesh[HAS_COORDINATES]
    middle = (mesh[MIDDLE_OF_MESH], mesh[MIDDLE_OF_MESH + 1], mesh[MIDDLE_OF_MESH + 2])
    store(geoms, g, MIDDLE, add(vector(geoms, g, POSITION), to_world(geoms, g, middle)))
    for k in range(3):
        geoms[g, SIZE + k] = mesh[HALF_OF_MESH + k]
        geoms[g, CUBE_SCALE + k] = geom.size[k] if geom.texuniform else 1.0
    for k in range(2):
        repeat = geom.texrepeat[k] if geom.texrepeat[k] > 0.0 else 1.0
        if mesh[HAS_COORDINATES] > 0.0:
            geoms[g, TEXTURE_SCALE + k] = repeat * (geom.size[k] if geom.texuniform else 1.0)
            geoms[g, TEXTURE_SHIFT + k] = 0.0
        else:
            towards = 0.5 if k == 0 else -0.5
            geoms[g, TEXTURE_SCALE + k] = towards * repeat / (1.0 if geom.texuniform else geom.size[k])
            geoms[g, TEXTURE_SHIFT + k] = -0.5


@compiled
def read_geoms(raw: np.ndarray, count: int, camera: Table, meshes: np.ndarray, geoms: Table) -> int:
    """Copies the scene's geoms into the table. Answers the first that cannot be drawn, or NOTHING."""
    eye = vector(camera, EYE, 0)
    for g in range(count):
        geom = raw[g]
        kind = geom.type
        if not (kind == PLANE or SPHERE <= kind <= MESH) or (kind == PLANE and geom.dataid < 0):
            return g
        if kind == MESH and (geom.dataid % 2 == 1 or meshes[geom.dataid // 2, ROOT] == 0.0):  # odd: a convex hull
            return g
        geoms[g, KIND] = kind
        for k in range(3):
            geoms[g, SIZE + k] = geom.size[k]
            geoms[g, POSITION + k] = geom.pos[k]
        for k in range(9):
            geoms[g, ROTATION + k] = geom.mat[k]
        for k in range(4):
            geoms[g, RGB + k] = geom.rgba[k]
        geoms[g, EMISSION] = geom.emission
        geoms[g, SPECULAR] = geom.specular
        geoms[g, SHININESS] = geom.shininess * SHINIEST
        geoms[g, REFLECTANCE] = geom.reflectance
        geoms[g, TEXTURE] = geom.texid
        geoms[g, TEXTURE_UNIFORM] = geom.texuniform
        geoms[g, PLANE_INDEX] = geom.dataid
        for k in range(3):
            geoms[g, MIDDLE + k] = geom.pos[k]
            geoms[g, CUBE_SCALE + k] = 1.0 if geom.texuniform else 1.0 / max(geom.size[k], 1e-12)
        if kind == PLANE:
            read_plane(geom, camera[LENS, FAR], geoms, g)
        elif kind == MESH:
            read_mesh(geom, meshes[geom.dataid // 2], geoms, g)
        geoms[g, RADIUS] = bounding_radius(kind, vector(geoms, g, SIZE))
        geoms[g, CASTS_SHADOW] = geom.category != DECORATION
        behind = kind == PLANE and height_above(geoms, g, eye) < 0.0
        geoms[g, TRANSPARENT] = geom.rgba[3] < OPAQUE or behind
    return NOTHING


@compiled
def shadow_map_up(direction: Vector) -> Vector:
    """The axis that MuJoCo turns up in a light's shadow map."""
    up = cross(direction, (-1.0, 0.0, 0.0))
    return normalized(up if dot(up, up) > 0.01 else cross(direction, (0.0, 1.0, 0.0)))


@compiled
def read_lights(raw: np.ndarray, count: int, shadow_clip: float, shadow_scale: float, lights: Table) -> int:
    """Copies the scene's lights into the table and answers their number. Without a `shadow_clip` there are no shadows.

    As MuJoCo's OpenGL, it leaves out lights that are neither spots nor directional.
    """
    i = 0
    for light in raw[:count]:
        if light.type not in (SPOT_LIGHT, DIRECTIONAL_LIGHT):
            continue
        for k in range(3):
            lights[i, LIGHT_POSITION + k] = light.pos[k]
            lights[i, LIGHT_DIRECTION + k] = light.dir[k]
            lights[i, LIGHT_AMBIENT + k] = light.ambient[k]
            lights[i, LIGHT_DIFFUSE + k] = light.diffuse[k]
            lights[i, LIGHT_SPECULAR + k] = light.specular[k]
            lights[i, ATTENUATION + k] = light.attenuation[k]
        directional = light.type == DIRECTIONAL_LIGHT
        lights[i, COS_CUTOFF] = np.cos(np.deg2rad(light.cutoff))
        lights[i, SPOT_EXPONENT] = light.exponent
        lights[i, DIRECTIONAL] = directional
        lights[i, SHADOWS] = light.castshadow and shadow_clip > 0.0
        opening = min(2.0 * light.cutoff * shadow_scale, WIDEST_SHADOW_MAP)
        lights[i, MAP_HALF_WIDTH] = shadow_clip if directional else np.tan(np.deg2rad(opening) / 2.0)
        upwards = shadow_map_up(vector(lights, i, LIGHT_DIRECTION))
        store(lights, i, MAP_X, cross(vector(lights, i, LIGHT_DIRECTION), upwards))
        store(lights, i, MAP_Y, upwards)
        i += 1
    return i
