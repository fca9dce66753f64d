"""Which geom each sample of a picture shows, to the eye or to its mirror image below a reflecting floor."""

from typing import NamedTuple

import numpy as np

from .kernel import Table, Vector, along, compiled, subtract, vector
from .shapes import MISS, PLANE, hit, hit_from_any_side
from .tables import (
    AHEAD,
    COLUMNS,
    EYE,
    KIND,
    LENS,
    NEAR,
    NOTHING,
    PIXEL,
    POSITION,
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
    pixel_box,
    ray,
    to_local,
)


class Layer(NamedTuple):
    """What one camera sees."""

    camera: np.ndarray  # float64 CAMERA_SHAPE
    depth: np.ndarray  # float64 (pixel * SAMPLES,)
    owner: np.ndarray  # int64 (pixel * SAMPLES,): the geom, or NOTHING
    image: np.ndarray  # float64 (pixel, rgb)


@compiled
def cast_rays(geoms: Table, g: int, layer: Layer, mirror: int) -> None:
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
    x0, x1, y0, y1 = pixel_box(geoms, g, camera)
    for y in range(y0, y1):
        for s in range(SAMPLES):
            row = along(ahead, (half_height - y - SAMPLE_Y[s]) * pixel, up)
            for x in range(x0, x1):
                j = (y * columns + x) * SAMPLES + s
                t = hit(kind, shape, origin, along(row, (x + SAMPLE_X[s] - half_width) * pixel, right))
                if near < t < depth[j]:
                    if mirror != NOTHING:
                        direction = ray(camera, x + SAMPLE_X[s], y + SAMPLE_Y[s])
                        if height_above(geoms, mirror, along(eye, t, direction)) < 0.0:
                            continue
                    depth[j] = t
                    owner[j] = g


@compiled
def see(geoms: Table, count: int, layer: Layer, mirror: int) -> None:
    """Finds the opaque geom that each sample of a layer shows."""
    layer.owner[:] = NOTHING
    for g in range(count):
        if g != mirror and geoms[g, TRANSPARENT] == 0.0:
            cast_rays(geoms, g, layer, mirror)


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
def reach(geoms: Table, g: int, eye: Vector, direction: Vector, mirror: int) -> float:
    """Depth of transparent geom g along a ray, planes from both sides; MISS below a mirror."""
    origin = to_local(geoms, g, subtract(eye, vector(geoms, g, POSITION)))
    local = to_local(geoms, g, direction)
    t = hit_from_any_side(int(geoms[g, KIND]), vector(geoms, g, SIZE), origin, local)
    if mirror != NOTHING and height_above(geoms, mirror, along(eye, t, direction)) < 0.0:
        return MISS
    return t
