"""The colour of a geom in a pixel: where it is computed, how the surface faces there, light and texture."""

import numpy as np

from .kernel import (
    Table,
    Vector,
    add,
    along,
    clamped,
    compiled,
    dot,
    inlined,
    normalized,
    scale,
    subtract,
    vector,
)
from .lights import CASTER, beam, own_light, reflected_light, shadowed
from .planes import plane_texture
from .shapes import BOX, CAPSULE, PLANE, hit, normal, sign
from .tables import (
    COLUMNS,
    EYE,
    KIND,
    LENS,
    NEAR,
    PIXEL,
    POSITION,
    RASTER,
    RIGHT,
    SAMPLE_X,
    SAMPLE_Y,
    SHADOWS,
    SIZE,
    TEXTURE,
    TEXTURE_UNIFORM,
    UP,
    ray,
    to_local,
    to_world,
)
from .textures import FIRST_LEVEL, WIDTH, cube_colour

# OpenGL extends a surface's shading to the pixel's centre even where that lies outside of the surface. The
# normal then turns away from the eye by about this part; on geoms thinner than THIN pixels by less. Fitted to
# Mesa.
SILHOUETTE_TILT = 0.9
THIN, THIN_TILT = 0.3, 0.36


@inlined
def surface_ray(
    geoms: Table, g: int, camera: Table, pixel: int, sample: int, sample_depth: float
) -> tuple[float, Vector, float]:
    """Where a pixel computes the colour of geom g: depth and ray, and how far the normal is to be tilted.

    At the pixel's centre where the geom covers it, else at a sample that it covers.
    """
    kind = int(geoms[g, KIND])
    columns = int(camera[RASTER, COLUMNS])
    x, y = pixel % columns, pixel // columns
    direction = ray(camera, x + 0.5, y + 0.5)
    origin = to_local(geoms, g, subtract(vector(camera, EYE, 0), vector(geoms, g, POSITION)))
    depth = hit(kind, vector(geoms, g, SIZE), origin, to_local(geoms, g, direction))
    if depth > camera[LENS, NEAR]:
        return depth, direction, 0.0
    tilt = 0.0
    if kind not in (PLANE, BOX):
        thick = geoms[g, SIZE] > THIN * camera[LENS, PIXEL] * sample_depth
        tilt = SILHOUETTE_TILT if thick else THIN_TILT
    return sample_depth, ray(camera, x + SAMPLE_X[sample], y + SAMPLE_Y[sample]), tilt


@inlined
def surface(geoms: Table, g: int, eye: Vector, point: Vector, tilt: float) -> tuple[Vector, Vector, Vector]:
    """A point of geom g in its own frame, the way the surface faces there, and the direction to the eye."""
    local = to_local(geoms, g, subtract(point, vector(geoms, g, POSITION)))
    facing = to_world(geoms, g, normal(int(geoms[g, KIND]), vector(geoms, g, SIZE), local))
    to_eye = normalized(subtract(eye, point))
    if tilt > 0.0:
        facing = normalized(along(facing, -tilt * dot(facing, to_eye), to_eye))
    return local, facing, to_eye


@inlined
def lit(
    geoms: Table, g: int, lights: Table, light_count: int, point: Vector, facing: Vector, to_eye: Vector,
    tint: float,
) -> Vector:  # fmt: skip
    """The light that a point of geom g sends to the eye, without shadows; `tint` scales g's colour."""
    total = own_light(geoms, g, light_count, tint)
    for i in range(light_count):
        total = add(total, reflected_light(geoms, g, lights, i, point, facing, to_eye, tint))
    return clamped(total)


@inlined
def lit_with_shadows(
    geoms: Table, g: int, lights: Table, light_count: int, casters: Table, everything: np.ndarray,
    point: Vector, facing: Vector, to_eye: Vector,
) -> Vector:  # fmt: skip
    """The light that a point of geom g sends to the eye.

    Each light with shadows is a pass of its own, as in MuJoCo, and adds to the picture what it lights up.
    """
    unshadowed = own_light(geoms, g, light_count, 1.0)
    total = (0.0, 0.0, 0.0)
    all_casters = int(casters[0, CASTER])
    for i in range(light_count):
        colour = reflected_light(geoms, g, lights, i, point, facing, to_eye, 1.0)
        if lights[i, SHADOWS] == 0.0:
            unshadowed = add(unshadowed, colour)
        elif colour[0] + colour[1] + colour[2] > 0.0 and not shadowed(
            geoms, casters, everything, all_casters, beam(lights, i), point, g
        ):
            total = add(total, clamped(colour))
    return add(total, clamped(unshadowed))


@compiled
def cube_texture(geoms: Table, g: int, texels: np.ndarray, index: np.ndarray, local: Vector, pixel_width: float) -> Vector:
    """A cube texture at a point of geom g; `pixel_width` is a pixel's width at the point's depth."""
    texture = int(geoms[g, TEXTURE])
    sx, sy, sz = vector(geoms, g, SIZE)
    x, y, z = local[0] / sx, local[1] / sy, local[2] / sz
    if geoms[g, KIND] == CAPSULE and abs(local[2]) > sz:  # MuJoCo draws the ends as half spheres of their own
        z = local[2] / sx + sign(local[2]) * (1.0 - sz / sx)
    if geoms[g, TEXTURE_UNIFORM] > 0.0:
        x, y, z = x * sx, y * sy, z * sz
    finest = index[index[texture, FIRST_LEVEL], WIDTH]
    return cube_colour(texels, index, texture, (x, y, z), 0.5 * finest * pixel_width / sx)


@inlined
def texture_colour(
    geoms: Table, g: int, camera: Table, texels: np.ndarray, index: np.ndarray, local: Vector,
    direction: Vector, depth: float,
) -> Vector:  # fmt: skip
    """The texture of geom g where a ray meets it; white without one."""
    if geoms[g, TEXTURE] < 0.0:
        return 1.0, 1.0, 1.0
    pixel_width = camera[LENS, PIXEL] * depth
    if geoms[g, KIND] != PLANE:
        return cube_texture(geoms, g, texels, index, local, pixel_width)
    right = to_local(geoms, g, scale(vector(camera, RIGHT, 0), pixel_width))
    up = to_local(geoms, g, scale(vector(camera, UP, 0), pixel_width))
    return plane_texture(geoms, g, texels, index, local, to_local(geoms, g, direction), right, up)
