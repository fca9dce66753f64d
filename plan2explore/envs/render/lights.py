"""OpenGL's fixed-function lighting of a point, and the shadows that MuJoCo's shadow maps would show there."""

import math

import numpy as np

from .kernel import Table, Vector, add, along, compiled, dot, multiply, power, scale, subtract, vector
from .scene import (
    ATTENUATION,
    CASTS_SHADOW,
    COS_CUTOFF,
    DIRECTIONAL,
    EMISSION,
    KIND,
    LIGHT_AMBIENT,
    LIGHT_DIFFUSE,
    LIGHT_DIRECTION,
    LIGHT_POSITION,
    LIGHT_SPECULAR,
    MAP_HALF_WIDTH,
    MAP_X,
    MAP_Y,
    POSITION,
    RADIUS,
    RGB,
    SHININESS,
    SIZE,
    SPECULAR,
    SPOT_EXPONENT,
    to_local,
)
from .shapes import PLANE, crosses_plane, hit

AMBIENT_WITHOUT_LIGHTS = 0.3  # MuJoCo's light for a scene without any
BEFORE_SURFACE = 1.0 - 1e-4  # an occluder must lie in this part of the way from the light to the point

# Entries of the occluders' summary: a sphere that holds all but the planes, and whether planes cast shadows as well.
ALL_RADIUS, PLANES_CAST = 3, 4
OCCLUDERS_SHAPE = 5


@compiled
def attenuation(lights: Table, i: int, point: Vector) -> tuple[float, Vector]:
    """How much of spot light i arrives at a point, and the unit direction towards the light."""
    towards = subtract(vector(lights, i, LIGHT_POSITION), point)
    distance = math.sqrt(dot(towards, towards)) + 1e-12
    towards = scale(towards, 1.0 / distance)
    cosine = -dot(towards, vector(lights, i, LIGHT_DIRECTION))
    if cosine < lights[i, COS_CUTOFF]:
        return 0.0, towards
    constant, linear, quadratic = vector(lights, i, ATTENUATION)
    falloff = constant + distance * (linear + distance * quadratic)
    return power(cosine, lights[i, SPOT_EXPONENT]) / falloff, towards


@compiled
def reflected_light(
    geoms: Table, g: int, lights: Table, i: int, point: Vector, facing: Vector, to_eye: Vector, tint: float
) -> Vector:
    """Light i, as geom g sends it to the eye from a point that faces `facing`; `tint` scales the geom's colour.

    Ambient, diffuse and (Blinn's, for a viewer at a finite place) specular terms of OpenGL's light equation.
    """
    if lights[i, DIRECTIONAL] > 0.0:
        arriving = 1.0
        towards = scale(vector(lights, i, LIGHT_DIRECTION), -1.0)
    else:
        arriving, towards = attenuation(lights, i, point)
        if arriving == 0.0:
            return 0.0, 0.0, 0.0
    matte = scale(vector(lights, i, LIGHT_AMBIENT), arriving)
    slope = dot(facing, towards)
    highlight = 0.0
    if slope > 0.0:
        matte = add(matte, scale(vector(lights, i, LIGHT_DIFFUSE), arriving * slope))
        halfway = add(towards, to_eye)
        cosine = dot(facing, halfway)
        if cosine > 0.0:
            cosine /= math.sqrt(dot(halfway, halfway))
            highlight = arriving * power(cosine, geoms[g, SHININESS])
    colour = multiply(matte, scale(vector(geoms, g, RGB), tint))
    return add(colour, scale(vector(lights, i, LIGHT_SPECULAR), highlight * geoms[g, SPECULAR]))


@compiled
def own_light(geoms: Table, g: int, light_count: int, tint: float) -> Vector:
    """What geom g shows without any light upon it: its emission, and MuJoCo's ambient light when there are no lights."""
    glow = geoms[g, EMISSION]
    if light_count == 0:
        glow += AMBIENT_WITHOUT_LIGHTS
    return scale(vector(geoms, g, RGB), tint * glow)


@compiled
def summarize_occluders(geoms: Table, count: int, mirror: int, occluders: np.ndarray) -> None:
    """Finds a sphere around everything that casts shadows, so that most points need no further test."""
    occluders[:] = 0.0
    members = 0
    for g in range(count):
        if geoms[g, CASTS_SHADOW] == 0.0:
            continue
        if geoms[g, KIND] == PLANE:
            if g != mirror:
                occluders[PLANES_CAST] = 1.0
            continue
        members += 1
        for k in range(3):
            occluders[k] += geoms[g, POSITION + k]
    if members == 0:
        return
    centre = (occluders[0] / members, occluders[1] / members, occluders[2] / members)
    occluders[0], occluders[1], occluders[2] = centre
    for g in range(count):
        if geoms[g, KIND] != PLANE and geoms[g, CASTS_SHADOW] > 0.0:
            offset = subtract(vector(geoms, g, POSITION), centre)
            reach = math.sqrt(dot(offset, offset)) + geoms[g, RADIUS]
            occluders[ALL_RADIUS] = max(occluders[ALL_RADIUS], reach)


@compiled
def passes_by(centre: Vector, radius: float, origin: Vector, way: Vector, way_squared: float) -> bool:
    """Whether the half-line from `origin` along `way` stays outside a sphere."""
    offset = subtract(centre, origin)
    ahead = dot(offset, way)
    outside = dot(offset, offset) - radius * radius
    return outside > 0.0 and (ahead < 0.0 or ahead * ahead < outside * way_squared)


@compiled
def in_shadow_map(lights: Table, i: int, offset: Vector, depth: float) -> bool:
    """Whether light i's shadow map covers a point `offset` from the light; points outside of it are lit."""
    limit = lights[i, MAP_HALF_WIDTH]
    if lights[i, DIRECTIONAL] == 0.0:
        limit *= depth
    x = abs(dot(offset, vector(lights, i, MAP_X)))
    y = abs(dot(offset, vector(lights, i, MAP_Y)))
    return depth > 0.0 and x <= limit and y <= limit


@compiled
def occludes(geoms: Table, g: int, origin: Vector, way: Vector) -> bool:
    """Whether geom g lies between `origin` and `origin + way`."""
    local_origin = to_local(geoms, g, subtract(origin, vector(geoms, g, POSITION)))
    local_way = to_local(geoms, g, way)
    kind = int(geoms[g, KIND])
    if kind == PLANE:
        t = crosses_plane(vector(geoms, g, SIZE), local_origin, local_way)
    else:
        t = hit(kind, vector(geoms, g, SIZE), local_origin, local_way)
    return 0.0 < t < BEFORE_SURFACE


@compiled
def shadowed(
    geoms: Table, count: int, occluders: np.ndarray, lights: Table, i: int, point: Vector, own: int
) -> bool:
    """Whether a geom other than `own`, on which the point lies, keeps light i from the point.

    The way starts at the light, so that a point inside of another geom counts as shaded. `own` is convex and
    cannot shade its lit side.
    """
    position = vector(lights, i, LIGHT_POSITION)
    direction = vector(lights, i, LIGHT_DIRECTION)
    offset = subtract(point, position)
    depth = dot(offset, direction)
    if not in_shadow_map(lights, i, offset, depth):
        return False
    origin = position
    if lights[i, DIRECTIONAL] > 0.0:
        origin = along(point, -depth, direction)
    way = subtract(point, origin)
    way_squared = dot(way, way)
    centre = (occluders[0], occluders[1], occluders[2])
    clear = passes_by(centre, occluders[ALL_RADIUS], origin, way, way_squared)
    if clear and occluders[PLANES_CAST] == 0.0:
        return False
    for g in range(count):
        if g == own or geoms[g, CASTS_SHADOW] == 0.0:
            continue
        if geoms[g, KIND] != PLANE:
            if clear or passes_by(vector(geoms, g, POSITION), geoms[g, RADIUS], origin, way, way_squared):
                continue
        elif occluders[PLANES_CAST] == 0.0:
            continue
        if occludes(geoms, g, origin, way):
            return True
    return False
