"""Planes as MuJoCo draws them: light is computed at the corners of a grid only and interpolated, then textured.

While camera, lights and the plane stay as they are, each pixel's colour of a plane (before shadows) stays too, so it is
kept. It is computed for the pixels that show the plane, and depends on nothing else in the scene: a picture does not
depend on what was drawn before it.
"""

import math
from typing import NamedTuple

import numpy as np

from .kernel import Table, Vector, add, along, clamped, compiled, normalized, store, subtract, vector
from .lights import own_light, reflected_light
from .scene import (
    EYE,
    LENS,
    PIXEL,
    PLANE_INDEX,
    POSITION,
    RIGHT,
    SAMPLE_X,
    SAMPLE_Y,
    SAMPLES,
    SHADOWS,
    SIZE,
    TEXTURE,
    TEXTURE_REPEAT,
    TEXTURE_UNIFORM,
    UP,
    ray,
    to_local,
    to_world,
)
from .shapes import hit_plane
from .textures import FIRST_LEVEL, HEIGHT, LEVEL_COUNT, WIDTH, filtered, repeats_per_metre

MOST_CELLS = 200  # along one side of a plane, in MuJoCo
CORNERS = MOST_CELLS + 1

# Columns of what is kept of a corner and of a pixel; it holds while STAMP is the present one. The colour has three
# columns for each pass in which light comes: pass 0 has all lights without shadows, pass k the k-th with shadows.
STAMP, POINT, PIXEL_COLOUR = 0, 1, 4
CORNER_LIGHT = 1


class PlaneCache(NamedTuple):
    """What is known of each plane for the present camera, lights and plane."""

    corners: np.ndarray  # float64 (plane, corner x, corner y, STAMP and CORNER_LIGHT...)
    pixels: np.ndarray  # float64 (plane, pixel, STAMP, POINT and PIXEL_COLOUR...)


def make_plane_cache(planes: int, pixels: int, passes: int) -> PlaneCache:
    """An empty cache. The system gives its memory only as pages are first used."""
    return PlaneCache(
        corners=np.zeros((planes, CORNERS, CORNERS, CORNER_LIGHT + 3 * passes)),
        pixels=np.zeros((planes, pixels, PIXEL_COLOUR + 3 * passes)),
    )


@compiled
def grid(half: float, spacing: float) -> tuple[int, float, float]:
    """MuJoCo's division of a plane's side: how many cells, the width of the outer cells and of the inner ones.

    Inner cells are twice the plane's third size wide, an even number of them, and the outer two fill the rest.
    """
    step = max(spacing, half / (MOST_CELLS - 2))
    inner = int(math.floor(half / max(step, 1e-15)))
    inner -= inner % 2
    return inner + 2, half - inner * step, 2.0 * step


@compiled
def grid_line(index: int, half: float, cells: int, outer: float, inner: float) -> float:
    """Where a line of the grid lies."""
    if index == 0:
        return -half
    if index == cells:
        return half
    return -half + outer + (index - 1) * inner


@compiled
def grid_cell(x: float, half: float, spacing: float) -> tuple[int, float, float, float]:
    """The cell about x: its index, its two ends, and where between them x lies."""
    cells, outer, inner = grid(half, spacing)
    index = 0
    if x >= -half + outer:
        index = min(1 + int((x + half - outer) / inner), cells - 1)
    low = grid_line(index, half, cells, outer, inner)
    high = grid_line(index + 1, half, cells, outer, inner)
    return index, low, high, (x - low) / max(high - low, 1e-12)


@compiled
def light_corner(
    geoms: Table, g: int, lights: Table, light_count: int, eye: Vector, x: float, y: float, row: Table, j: int
) -> None:
    """Stores the light at a point (x, y) of plane g, for each pass, in row j of a table of corners."""
    point = add(vector(geoms, g, POSITION), to_world(geoms, g, (x, y, 0.0)))
    facing = to_world(geoms, g, (0.0, 0.0, 1.0))
    to_eye = normalized(subtract(eye, point))
    unshadowed = own_light(geoms, g, light_count, 1.0)
    column = CORNER_LIGHT
    for i in range(light_count):
        colour = reflected_light(geoms, g, lights, i, point, facing, to_eye, 1.0)
        if lights[i, SHADOWS] > 0.0:
            column += 3
            store(row, j, column, clamped(colour))
        else:
            unshadowed = add(unshadowed, colour)
    store(row, j, CORNER_LIGHT, clamped(unshadowed))


@compiled
def plane_texture(
    geoms: Table, g: int, camera: Table, texels: np.ndarray, index: np.ndarray, local: Vector, direction: Vector,
    depth: float,
) -> Vector:  # fmt: skip
    """Texture of plane g where a ray meets it, both in the plane's frame; white without a texture."""
    texture = int(geoms[g, TEXTURE])
    if texture < 0:
        return 1.0, 1.0, 1.0
    s = repeats_per_metre(geoms[g, TEXTURE_REPEAT], geoms[g, SIZE], geoms[g, TEXTURE_UNIFORM])
    t = repeats_per_metre(geoms[g, TEXTURE_REPEAT + 1], geoms[g, SIZE + 1], geoms[g, TEXTURE_UNIFORM])
    first = index[texture, FIRST_LEVEL]
    step = depth * camera[LENS, PIXEL]
    wide = step * s * index[first, WIDTH]
    high = step * t * index[first, HEIGHT]
    density = 0.0
    for axis in (RIGHT, UP):  # how far the point on the plane moves from one pixel to the next
        move = to_local(geoms, g, vector(camera, axis, 0))
        along_ray = move[2] / direction[2]
        density = max(density, abs(move[0] - along_ray * direction[0]) * wide)
        density = max(density, abs(move[1] - along_ray * direction[1]) * high)
    x, y = (geoms[g, SIZE] + local[0]) * s, (geoms[g, SIZE + 1] - local[1]) * t
    return filtered(texels, index, first, index[texture, LEVEL_COUNT], x, y, density, True)


@compiled
def interpolate_corners(
    geoms: Table, g: int, lights: Table, light_count: int, eye: Vector, local: Vector, texture: Vector,
    pixel: int, corners: np.ndarray, pixels: np.ndarray, now: float,
) -> None:  # fmt: skip
    """Stores a pixel's colour, for each pass: its texture's colour times the light between its cell's corners."""
    plane = int(geoms[g, PLANE_INDEX])
    spacing = geoms[g, SIZE + 2]
    i, left, right, x = grid_cell(local[0], geoms[g, SIZE], spacing)
    j, low, high, y = grid_cell(local[1], geoms[g, SIZE + 1], spacing)
    for a in range(2):
        for b in range(2):
            if corners[plane, i + a, j + b, STAMP] != now:
                corners[plane, i + a, j + b, STAMP] = now
                row = corners[plane, i + a]
                corner_x, corner_y = right if a else left, high if b else low
                light_corner(geoms, g, lights, light_count, eye, corner_x, corner_y, row, j + b)
    # OpenGL splits the cell into two triangles: one with the corner (0, 0), the other with (1, 1).
    a = b = 0
    if x + y > 1.0:
        a = b = 1
        x, y = 1.0 - x, 1.0 - y
    for k in range(corners.shape[3] - CORNER_LIGHT):
        base = corners[plane, i + a, j + b, CORNER_LIGHT + k]
        slope_x = corners[plane, i + 1 - a, j + b, CORNER_LIGHT + k] - base
        slope_y = corners[plane, i + a, j + 1 - b, CORNER_LIGHT + k] - base
        tint = texture[0] if k % 3 == 0 else texture[1] if k % 3 == 1 else texture[2]
        pixels[plane, pixel, PIXEL_COLOUR + k] = tint * (base + x * slope_x + y * slope_y)


@compiled
def fill_plane_pixel(
    geoms: Table, g: int, lights: Table, light_count: int, camera: Table, texels: np.ndarray, index: np.ndarray,
    x: int, y: int, size: int, corners: np.ndarray, pixels: np.ndarray, now: float,
) -> None:  # fmt: skip
    """Computes pixel (x, y) of plane g: at the pixel's centre, or at its first sample that the plane covers."""
    eye = vector(camera, EYE, 0)
    shape = vector(geoms, g, SIZE)
    origin = to_local(geoms, g, subtract(eye, vector(geoms, g, POSITION)))
    half = 0.5 * size
    direction = to_local(geoms, g, ray(camera, x + 0.5, y + 0.5, half))
    depth = hit_plane(shape, origin, direction)
    sample = 0
    while depth <= 0.0 and sample < SAMPLES:
        direction = to_local(geoms, g, ray(camera, x + SAMPLE_X[sample], y + SAMPLE_Y[sample], half))
        depth = hit_plane(shape, origin, direction)
        sample += 1
    local = along(origin, depth, direction)
    texture = plane_texture(geoms, g, camera, texels, index, local, direction, depth)
    pixel = y * size + x
    interpolate_corners(geoms, g, lights, light_count, eye, local, texture, pixel, corners, pixels, now)
    plane = int(geoms[g, PLANE_INDEX])
    point = add(vector(geoms, g, POSITION), to_world(geoms, g, local))
    pixels[plane, pixel, POINT], pixels[plane, pixel, POINT + 1], pixels[plane, pixel, POINT + 2] = point
    pixels[plane, pixel, STAMP] = now
