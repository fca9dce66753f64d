"""Planes as MuJoCo draws them: light is computed at the corners of a grid and interpolated, then textured.

While camera, lights and the plane stay as they are, each pixel's colour of a plane (before shadows) stays
too, so it is kept. It is computed when a pixel first shows the plane, and depends on nothing else in the
scene: a picture does not depend on what was drawn before it.
"""

from typing import NamedTuple

import numpy as np

from .kernel import (
    Table,
    Vector,
    add,
    along,
    clamped,
    compiled,
    inlined,
    normalized,
    scale,
    store,
    subtract,
    vector,
)
from .lights import beam, choose_casters, own_light, reflected_light, shadowed
from .shapes import hit_plane
from .tables import (
    COLUMNS,
    ENDLESS,
    EYE,
    LENS,
    MOST_CELLS,
    PIXEL,
    PLANE_INDEX,
    POSITION,
    RASTER,
    RIGHT,
    ROWS,
    SAMPLE_X,
    SAMPLE_Y,
    SAMPLES,
    SHADOWS,
    SIZE,
    TEXTURE,
    TEXTURE_SCALE,
    TEXTURE_SHIFT,
    UP,
    pixel_box,
    ray,
    to_local,
    to_world,
)
from .textures import FIRST_LEVEL, HEIGHT, LEVEL_COUNT, WIDTH, filtered
from .visibility import shows

CORNERS = MOST_CELLS + 1

# Columns of what is kept of a corner and of a pixel; it holds while STAMP is the present one. The colour has
# three columns for each pass in which light comes: pass 0 has all lights without shadows, pass k the k-th
# with them. SHADED is the colour in the present picture, with its shadows.
STAMP, POINT, SHADED, PIXEL_COLOUR = 0, 1, 4, 7
CORNER_LIGHT = 1
VISIBLE_LIGHT = 2e-3  # less of a light than this (of 3) is not worth a shadow test


class PlaneCache(NamedTuple):
    """What is known of each plane for the present camera, lights and plane."""

    corners: np.ndarray  # float64 (plane, corner x, corner y, STAMP and CORNER_LIGHT...)
    pixels: np.ndarray  # float64 (plane, pixel, STAMP, POINT, SHADED and PIXEL_COLOUR...)


def make_plane_cache(planes: int, pixels: int, passes: int) -> PlaneCache:
    """An empty cache. The system gives its memory only as pages are first used."""
    return PlaneCache(
        corners=np.zeros((planes, CORNERS, CORNERS, CORNER_LIGHT + 3 * passes)),
        pixels=np.zeros((planes, pixels, PIXEL_COLOUR + 3 * passes)),
    )


@compiled
def grid(half: float, spacing: float, endless: float) -> tuple[int, float, float]:
    """MuJoCo's division of a plane's side: the number of cells, and the width of outer and inner ones.

    Inner cells are twice the plane's third size wide, an even number of them, and the outer two fill the
    rest; those of an infinite plane are as many as there can be.
    """
    if endless > 0.0:
        width = 2.0 * half / MOST_CELLS
        return MOST_CELLS, width, width
    step = max(spacing, half / (MOST_CELLS - 2))
    inner = int(half / max(step, 1e-15))
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
def grid_cell(x: float, half: float, cells: int, outer: float, inner: float) -> tuple[int, float]:
    """The cell about x, and where in it x lies, from 0 to 1."""
    if x < -half + outer:
        return 0, (x + half) / outer
    if x >= half - outer:
        return cells - 1, (x - half + outer) / max(outer, 1e-12)
    place = (x + half - outer) / inner
    index = min(int(place), cells - 3)
    return 1 + index, place - index


@inlined
def light_corner(
    geoms: Table, g: int, lights: Table, light_count: int, eye: Vector, x: float, y: float,
    corners: np.ndarray, i: int, j: int,
) -> None:  # fmt: skip
    """Stores the light at a point (x, y) of plane g, for each pass, as corner (i, j)."""
    row = corners[int(geoms[g, PLANE_INDEX]), i]
    point = add(vector(geoms, g, POSITION), to_world(geoms, g, (x, y, 0.0)))
    facing = to_world(geoms, g, (0.0, 0.0, 1.0))
    to_eye = normalized(subtract(eye, point))
    unshadowed = own_light(geoms, g, light_count, 1.0)
    column = CORNER_LIGHT
    for light in range(light_count):
        colour = reflected_light(geoms, g, lights, light, point, facing, to_eye, 1.0)
        if lights[light, SHADOWS] > 0.0:
            column += 3
            store(row, j, column, clamped(colour))
        else:
            unshadowed = add(unshadowed, colour)
    store(row, j, CORNER_LIGHT, clamped(unshadowed))


@compiled
def local_lens(geoms: Table, g: int, camera: Table) -> tuple[Vector, Vector, Vector, Vector]:
    """In the frame of geom g: the eye, the ray through the picture's upper left corner, and a pixel's step right and up."""
    right = scale(to_local(geoms, g, vector(camera, RIGHT, 0)), camera[LENS, PIXEL])
    up = scale(to_local(geoms, g, vector(camera, UP, 0)), camera[LENS, PIXEL])
    eye = to_local(geoms, g, subtract(vector(camera, EYE, 0), vector(geoms, g, POSITION)))
    return eye, to_local(geoms, g, ray(camera, 0.0, 0.0)), right, up


@inlined
def plane_texture(
    geoms: Table, g: int, texels: np.ndarray, index: np.ndarray, lens: tuple[Vector, Vector, Vector, Vector],
    x: int, y: int, rows: int, local: Vector,
) -> Vector:  # fmt: skip
    """Texture of plane g at a point that a pixel shows; white without a texture.

    Rasterisers choose one mip level for each two by two pixels, by differences between their centres.
    """
    texture = int(geoms[g, TEXTURE])
    if texture < 0:
        return 1.0, 1.0, 1.0
    first = index[texture, FIRST_LEVEL]
    eye, upper_left, right, up = lens
    lower = y + (rows - 1 - y) % 2  # OpenGL counts rows from below
    a = along(along(upper_left, x - x % 2 + 0.5, right), -(lower + 0.5), up)
    b, c = add(a, right), add(a, up)
    wide = index[first, WIDTH] * geoms[g, TEXTURE_SCALE] * eye[2]
    high = index[first, HEIGHT] * geoms[g, TEXTURE_SCALE + 1] * eye[2]
    da, db, dc = 1.0 / a[2], 1.0 / b[2], 1.0 / c[2]
    across_s, across_t = wide * (b[0] * db - a[0] * da), high * (b[1] * db - a[1] * da)
    upward_s, upward_t = wide * (c[0] * dc - a[0] * da), high * (c[1] * dc - a[1] * da)
    density = max(across_s * across_s + across_t * across_t, upward_s * upward_s + upward_t * upward_t)
    s = local[0] * geoms[g, TEXTURE_SCALE] + geoms[g, TEXTURE_SHIFT]
    t = local[1] * geoms[g, TEXTURE_SCALE + 1] + geoms[g, TEXTURE_SHIFT + 1]
    return filtered(texels, index, first, index[texture, LEVEL_COUNT], s, t, density, True)


@inlined
def light_cell(
    geoms: Table, g: int, lights: Table, light_count: int, eye: Vector, i: int, j: int,
    x_grid: tuple[int, float, float], y_grid: tuple[int, float, float], corners: np.ndarray, now: float,
) -> None:  # fmt: skip
    """Lights those corners of cell (i, j) of plane g that are not lit yet."""
    plane = int(geoms[g, PLANE_INDEX])
    for a in range(i, i + 2):
        for b in range(j, j + 2):
            if corners[plane, a, b, STAMP] != now:
                corners[plane, a, b, STAMP] = now
                x = grid_line(a, geoms[g, SIZE], x_grid[0], x_grid[1], x_grid[2])
                y = grid_line(b, geoms[g, SIZE + 1], y_grid[0], y_grid[1], y_grid[2])
                light_corner(geoms, g, lights, light_count, eye, x, y, corners, a, b)


@inlined
def interpolate_cell(
    plane: int, i: int, j: int, x: float, y: float, texture: Vector, corners: np.ndarray, pixel: int,
    pixels: np.ndarray,
) -> None:  # fmt: skip
    """Stores a pixel's colour for each pass: its texture's times the light at (x, y) in its cell."""
    # OpenGL splits the cell into two triangles: one with the corner (0, 0), the other with (1, 1).
    a = 0
    if x + y > 1.0:
        a, x, y = 1, 1.0 - x, 1.0 - y
    rest = 1.0 - x - y
    for k in range(0, corners.shape[3] - CORNER_LIGHT, 3):
        for channel in range(3):
            c = CORNER_LIGHT + k + channel
            light = (
                rest * corners[plane, i + a, j + a, c]
                + x * corners[plane, i + 1 - a, j + a, c]
                + y * corners[plane, i + a, j + 1 - a, c]
            )
            pixels[plane, pixel, PIXEL_COLOUR + k + channel] = light * texture[channel]


@compiled
def fill_plane(
    geoms: Table, g: int, lights: Table, light_count: int, camera: Table, owner: np.ndarray,
    texels: np.ndarray, index: np.ndarray, corners: np.ndarray, pixels: np.ndarray, now: float,
) -> None:  # fmt: skip
    """Computes the colours of plane g, before shadows, at the pixels that show it and are not computed yet.

    A pixel's colour is that at its centre, or at the first of its samples that the plane covers.
    """
    plane = int(geoms[g, PLANE_INDEX])
    eye = vector(camera, EYE, 0)
    shape = vector(geoms, g, SIZE)
    origin = to_local(geoms, g, subtract(eye, vector(geoms, g, POSITION)))
    x_grid, y_grid = grid(shape[0], shape[2], geoms[g, ENDLESS]), grid(shape[1], shape[2], geoms[g, ENDLESS + 1])
    columns, rows = int(camera[RASTER, COLUMNS]), int(camera[RASTER, ROWS])
    lens = local_lens(geoms, g, camera)
    x0, x1, y0, y1 = pixel_box(geoms, g, camera)
    for y in range(y0, y1):
        for x in range(x0, x1):
            pixel = y * columns + x
            if pixels[plane, pixel, STAMP] == now or not shows(owner, pixel, g):
                continue
            direction = to_local(geoms, g, ray(camera, x + 0.5, y + 0.5))
            depth = hit_plane(shape, origin, direction)
            sample = 0
            while depth <= 0.0 and sample < SAMPLES:
                through = ray(camera, x + SAMPLE_X[sample], y + SAMPLE_Y[sample])
                direction = to_local(geoms, g, through)
                depth = hit_plane(shape, origin, direction)
                sample += 1
            local = along(origin, depth, direction)
            texture = plane_texture(geoms, g, texels, index, lens, x, y, rows, local)
            i, place_x = grid_cell(local[0], shape[0], x_grid[0], x_grid[1], x_grid[2])
            j, place_y = grid_cell(local[1], shape[1], y_grid[0], y_grid[1], y_grid[2])
            light_cell(geoms, g, lights, light_count, eye, i, j, x_grid, y_grid, corners, now)
            interpolate_cell(plane, i, j, place_x, place_y, texture, corners, pixel, pixels)
            point = add(vector(geoms, g, POSITION), to_world(geoms, g, local))
            for k in range(3):
                pixels[plane, pixel, POINT + k] = point[k]
            pixels[plane, pixel, STAMP] = now


@compiled
def kept(pixels: np.ndarray, plane: int, pixel: int, column: int) -> Vector:
    """Three numbers of what is kept of a plane's pixel."""
    return pixels[plane, pixel, column], pixels[plane, pixel, column + 1], pixels[plane, pixel, column + 2]


@compiled
def row_ends(owner: np.ndarray, g: int, y: int, columns: int) -> tuple[int, int]:
    """First and last pixel of a row that show geom g; the last before the first when none does."""
    first, last = (y + 1) * columns, y * columns - 1
    for pixel in range(y * columns, (y + 1) * columns):
        if shows(owner, pixel, g):
            first = min(first, pixel)
            last = pixel
    return first, last


@compiled
def shadow_plane(
    geoms: Table, g: int, nodes: np.ndarray, triangles: np.ndarray, lights: Table, light_count: int, casters: Table,
    chosen: np.ndarray, owner: np.ndarray, y0: int, y1: int, columns: int, pixels: np.ndarray,
) -> None:  # fmt: skip
    """Adds, at the pixels that show plane g, the light of those lights that nothing keeps away."""
    plane = int(geoms[g, PLANE_INDEX])
    for y in range(y0, y1):
        first, last = row_ends(owner, g, y, columns)
        if last < first:
            continue
        for pixel in range(first, last + 1):
            for k in range(3):
                pixels[plane, pixel, SHADED + k] = pixels[plane, pixel, PIXEL_COLOUR + k]
        column = PIXEL_COLOUR
        for i in range(light_count):
            if lights[i, SHADOWS] == 0.0:
                continue
            column += 3
            ends = kept(pixels, plane, first, POINT), kept(pixels, plane, last, POINT)
            light = beam(lights, i)
            count = choose_casters(casters, light, ends[0], ends[1], chosen)
            for pixel in range(first, last + 1):
                colour = kept(pixels, plane, pixel, column)
                if not shows(owner, pixel, g) or colour[0] + colour[1] + colour[2] <= VISIBLE_LIGHT:
                    continue
                point = kept(pixels, plane, pixel, POINT)
                if not shadowed(geoms, nodes, triangles, casters, chosen, count, light, point, g):
                    for k in range(3):
                        pixels[plane, pixel, SHADED + k] += pixels[plane, pixel, column + k]
