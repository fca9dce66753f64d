"""OpenGL's fixed-function lighting of a point, and the shadows that MuJoCo's shadow maps would show there."""

import math

import numpy as np

from .kernel import (
    Table,
    Vector,
    add,
    compiled,
    cross,
    dot,
    inlined,
    multiply,
    normalized,
    power,
    scale,
    store,
    subtract,
    vector,
)
from .meshes import blocks
from .shapes import MESH, hit_from_any_side
from .tables import (
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
    MESH_END,
    MESH_ROOT,
    MIDDLE,
    POSITION,
    RADIUS,
    RGB,
    SHININESS,
    SIZE,
    SPECULAR,
    SPOT_EXPONENT,
    to_local,
)

# A light's position, direction, shadow map's axes and half width, and whether it is directional.
Beam = tuple[Vector, Vector, Vector, Vector, float, bool]

AMBIENT_WITHOUT_LIGHTS = 0.3  # MuJoCo's light for a scene without any
BEFORE_SURFACE = 1.0 - 1e-4  # an occluder must lie in this part of the way from the light to the point
SELF_SHADOW = 0.02  # a mesh shades itself from this part of its radius on

# Columns of the table of casters: spheres around the geoms that cast shadows. Row 0 is a sphere around all of
# them, with their number in place of a geom.
CENTRE, REACH, CASTER = 0, 3, 4
CASTER_COLUMNS = 5


@inlined
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


@inlined
def reflected_light(
    geoms: Table, g: int, lights: Table, i: int, point: Vector, facing: Vector, to_eye: Vector, tint: float
) -> Vector:
    """Light i as geom g sends it to the eye from a point that faces `facing`; `tint` scales g's colour.

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
    """What geom g shows by itself: its emission, and the light that MuJoCo adds if there are no lights."""
    glow = geoms[g, EMISSION]
    if light_count == 0:
        glow += AMBIENT_WITHOUT_LIGHTS
    return scale(vector(geoms, g, RGB), tint * glow)


@compiled
def list_casters(geoms: Table, count: int, mirror: int, casters: Table, everything: np.ndarray) -> None:
    """Lists what casts shadows, but for a mirror, which casts its shadow away from the eye.

    `everything` gets the rows of all of them.
    """
    found = 0
    middle = (0.0, 0.0, 0.0)
    for g in range(count):
        if geoms[g, CASTS_SHADOW] > 0.0 and g != mirror:
            found += 1
            store(casters, found, CENTRE, vector(geoms, g, MIDDLE))
            casters[found, REACH] = geoms[g, RADIUS]
            casters[found, CASTER] = g
            everything[found - 1] = found
            middle = add(middle, vector(geoms, g, MIDDLE))
    middle = scale(middle, 1.0 / max(found, 1))
    reach = 0.0
    for k in range(1, found + 1):
        offset = subtract(vector(casters, k, CENTRE), middle)
        reach = max(reach, math.sqrt(dot(offset, offset)) + casters[k, REACH])
    store(casters, 0, CENTRE, middle)
    casters[0, REACH] = reach
    casters[0, CASTER] = found


@inlined
def passes_by(casters: Table, k: int, origin: Vector, way: Vector, way_squared: float) -> bool:
    """Whether the half-line from `origin` along `way` stays outside of caster k's sphere."""
    offset = subtract(vector(casters, k, CENTRE), origin)
    ahead = dot(offset, way)
    outside = dot(offset, offset) - casters[k, REACH] * casters[k, REACH]
    return outside > 0.0 and (ahead < 0.0 or ahead * ahead < outside * way_squared)


@compiled
def occludes(geoms: Table, g: int, origin: Vector, way: Vector) -> bool:
    """Whether geom g lies between `origin` and `origin + way`."""
    local_origin = to_local(geoms, g, subtract(origin, vector(geoms, g, POSITION)))
    local_way = to_local(geoms, g, way)
    t = hit_from_any_side(int(geoms[g, KIND]), vector(geoms, g, SIZE), local_origin, local_way)
    return 0.0 < t < BEFORE_SURFACE


@compiled
def mesh_occludes(
    geoms: Table, g: int, nodes: np.ndarray, corners: np.ndarray, origin: Vector, way: Vector, own: int
) -> bool:
    """Whether mesh g lies between `origin` and `origin + way`; of the point's own mesh only what is not next to it."""
    before = BEFORE_SURFACE
    if g == own:
        before -= SELF_SHADOW * geoms[g, RADIUS] / math.sqrt(dot(way, way))
    local_origin = to_local(geoms, g, subtract(origin, vector(geoms, g, POSITION)))
    root, end = int(geoms[g, MESH_ROOT]), int(geoms[g, MESH_END])
    return blocks(nodes, corners, root, end, local_origin, to_local(geoms, g, way), before)


@compiled
def beam(lights: Table, i: int) -> Beam:
    """The geometry of light i and of its shadow map."""
    return (
        vector(lights, i, LIGHT_POSITION),
        vector(lights, i, LIGHT_DIRECTION),
        vector(lights, i, MAP_X),
        vector(lights, i, MAP_Y),
        lights[i, MAP_HALF_WIDTH],
        lights[i, DIRECTIONAL] > 0.0,
    )


@compiled
def way_from_light(light: Beam, point: Vector) -> Vector:
    """The way that light takes to a point, directional light from the plane through its position."""
    position, direction, _, _, _, directional = light
    way = subtract(point, position)
    return scale(direction, dot(way, direction)) if directional else way


@compiled
def in_shadow_map(light: Beam, point: Vector) -> bool:
    """Whether a light's shadow map covers a point; points outside of it are lit."""
    position, direction, map_x, map_y, half_width, directional = light
    offset = subtract(point, position)
    depth = dot(offset, direction)
    limit = half_width if directional else half_width * depth
    return depth > 0.0 and abs(dot(offset, map_x)) <= limit and abs(dot(offset, map_y)) <= limit


@compiled
def choose_casters(casters: Table, light: Beam, start: Vector, end: Vector, chosen: np.ndarray) -> int:
    """Lists the casters that may lie between a light and the points of a line from `start` to `end`.

    All ways from the light to a line lie in one plane, and most casters are beside it. Answers their number.
    """
    facing = normalized(cross(way_from_light(light, start), subtract(end, start)))
    found = 0
    for k in range(1, int(casters[0, CASTER]) + 1):
        if abs(dot(facing, subtract(vector(casters, k, CENTRE), start))) <= casters[k, REACH]:
            chosen[found] = k
            found += 1
    return found


@inlined
def shadowed(
    geoms: Table, nodes: np.ndarray, triangles: np.ndarray, casters: Table, chosen: np.ndarray, count: int, light: Beam,
    point: Vector, own: int,
) -> bool:  # fmt: skip
    """Whether one of the chosen casters keeps a light from a point of geom `own`.

    The way starts at the light, so that a point inside of another geom counts as shaded. `own` cannot shade its lit
    side, unless it is a mesh: all other shapes are convex.
    """
    if not in_shadow_map(light, point):
        return False
    way = way_from_light(light, point)
    origin = subtract(point, way)
    way_squared = dot(way, way)
    if passes_by(casters, 0, origin, way, way_squared):
        return False
    for k in range(count):
        caster = chosen[k]
        if not passes_by(casters, caster, origin, way, way_squared):
            g = int(casters[caster, CASTER])
            if geoms[g, KIND] == MESH:
                if mesh_occludes(geoms, g, nodes, triangles, origin, way, own):
                    return True
            elif g != own and occludes(geoms, g, origin, way):
                return True
    return False
