"""Rays against MuJoCo's analytic shapes, each in its own frame: where a ray enters, how the surface faces.

Only the side where a ray enters is seen, as in OpenGL with back faces culled: from inside a shape is
invisible.
"""

import math

from .kernel import Vector, compiled, dot, inlined, normalized, scale

# MuJoCo's mjtGeom numbers.
PLANE, SPHERE, CAPSULE, ELLIPSOID, CYLINDER, BOX, MESH = 0, 2, 3, 4, 5, 6, 7
SUPPORTED = (PLANE, SPHERE, CAPSULE, ELLIPSOID, CYLINDER, BOX, MESH)

MISS = -1.0
PARALLEL = 1e-12  # a direction component this small (squared, for cylinders) never leaves a slab
FAR_AWAY = 1e30


@compiled
def crosses_plane(size: Vector, origin: Vector, direction: Vector) -> float:
    """Distance to a rectangle in the xy plane, from either side."""
    if origin[2] * direction[2] >= 0.0:
        return MISS
    t = -origin[2] / direction[2]
    if abs(origin[0] + t * direction[0]) > size[0] or abs(origin[1] + t * direction[1]) > size[1]:
        return MISS
    return t


@compiled
def hit_plane(size: Vector, origin: Vector, direction: Vector) -> float:
    """Distance to a rectangle in the xy plane, seen from above only."""
    return crosses_plane(size, origin, direction) if origin[2] > 0.0 else MISS


@compiled
def first_root(a: float, b: float, c: float) -> float:
    """Smaller root of a t² + 2 b t + c = 0, or MISS."""
    discriminant = b * b - a * c
    if discriminant < 0.0:
        return MISS
    return (-b - math.sqrt(discriminant)) / a


@compiled
def hit_ellipsoid(size: Vector, origin: Vector, direction: Vector) -> float:
    """Distance to an ellipsoid: a unit sphere in coordinates divided by its semi-axes."""
    o = (origin[0] / size[0], origin[1] / size[1], origin[2] / size[2])
    d = (direction[0] / size[0], direction[1] / size[1], direction[2] / size[2])
    return first_root(dot(d, d), dot(o, d), dot(o, o) - 1.0)


@compiled
def hit_tube(size: Vector, origin: Vector, direction: Vector, round_ends: bool) -> float:
    """Distance to a cylinder (flat ends) or capsule (round ends): radius size[0], half length size[2]."""
    radius, half = size[0], size[2]
    a = direction[0] * direction[0] + direction[1] * direction[1]
    b = origin[0] * direction[0] + origin[1] * direction[1]
    c = origin[0] * origin[0] + origin[1] * origin[1] - radius * radius
    discriminant = b * b - a * c
    if discriminant < 0.0:
        return MISS
    height = -direction[2] * FAR_AWAY  # a ray along the axis enters by the end that it comes from
    if a > PARALLEL * direction[2] * direction[2]:
        t = (-b - math.sqrt(discriminant)) / a
        height = origin[2] + t * direction[2]
        if abs(height) <= half:
            return t
    end = half if height > 0.0 else -half
    if round_ends:
        oz = origin[2] - end
        return first_root(a + direction[2] * direction[2], b + oz * direction[2], c + oz * oz)
    if end * direction[2] >= 0.0:
        return MISS
    t = (end - origin[2]) / direction[2]
    x = origin[0] + t * direction[0]
    y = origin[1] + t * direction[1]
    return t if x * x + y * y <= radius * radius else MISS


@compiled
def slab(half: float, origin: float, direction: float) -> tuple[float, float]:
    """Where a ray enters and leaves -half <= x <= half along one axis."""
    if abs(direction) > PARALLEL:
        near = (-half - origin) / direction
        far = (half - origin) / direction
        return min(near, far), max(near, far)
    if abs(origin) > half:
        return FAR_AWAY, -FAR_AWAY
    return -FAR_AWAY, FAR_AWAY


@compiled
def hit_box(size: Vector, origin: Vector, direction: Vector) -> float:
    """Distance to a box: the last of the three slabs to be entered, if none is left before."""
    x_in, x_out = slab(size[0], origin[0], direction[0])
    y_in, y_out = slab(size[1], origin[1], direction[1])
    z_in, z_out = slab(size[2], origin[2], direction[2])
    enter = max(x_in, max(y_in, z_in))
    leave = min(x_out, min(y_out, z_out))
    return enter if enter <= leave else MISS


@inlined
def hit(kind: int, size: Vector, origin: Vector, direction: Vector) -> float:
    """Distance, in lengths of `direction`, to where a ray enters the shape; not above 0 when it does not."""
    if kind == PLANE:
        return hit_plane(size, origin, direction)
    if kind in (CAPSULE, CYLINDER):
        return hit_tube(size, origin, direction, kind == CAPSULE)
    if kind == BOX:
        return hit_box(size, origin, direction)
    return hit_ellipsoid(size, origin, direction)


@compiled
def hit_from_any_side(kind: int, size: Vector, origin: Vector, direction: Vector) -> float:
    """As `hit`, but for planes, which count from below too."""
    return crosses_plane(size, origin, direction) if kind == PLANE else hit(kind, size, origin, direction)


@compiled
def sign(value: float) -> float:
    return 1.0 if value > 0.0 else -1.0


@compiled
def is_inside(size: Vector, point: Vector) -> bool:
    """Whether a point lies in a box, from where that is invisible."""
    return abs(point[0]) < size[0] and abs(point[1]) < size[1] and abs(point[2]) < size[2]


@compiled
def box_face(size: Vector, point: Vector) -> int:
    """The face on which a point of a box's surface lies: -x, x, -y, y, -z and z are 0 to 5."""
    x = abs(point[0]) / size[0]
    y = abs(point[1]) / size[1]
    z = abs(point[2]) / size[2]
    if x >= y and x >= z:
        return 1 if point[0] > 0.0 else 0
    if y >= z:
        return 3 if point[1] > 0.0 else 2
    return 5 if point[2] > 0.0 else 4


@compiled
def box_normal(face: int) -> Vector:
    """The way that a face of a box faces."""
    towards = 2.0 * (face % 2) - 1.0
    if face < 2:
        return towards, 0.0, 0.0
    return (0.0, towards, 0.0) if face < 4 else (0.0, 0.0, towards)


@compiled
def normal(kind: int, size: Vector, point: Vector) -> Vector:
    """Outward unit normal at a point of the surface, in the shape's frame."""
    x, y, z = point
    if kind == PLANE:
        return 0.0, 0.0, 1.0
    if kind == SPHERE:
        return scale(point, 1.0 / size[0])
    if kind == BOX:
        return box_normal(box_face(size, point))
    if kind == CYLINDER:
        if abs(z) > size[2] * (1.0 - 1e-6):
            return 0.0, 0.0, sign(z)
        return normalized((x, y, 0.0))
    if kind == CAPSULE:
        return normalized((x, y, z - min(max(z, -size[2]), size[2])))
    return normalized((x / (size[0] * size[0]), y / (size[1] * size[1]), z / (size[2] * size[2])))


@compiled
def bounding_radius(kind: int, size: Vector) -> float:
    """Radius of the smallest sphere around the shape's centre that holds it."""
    if kind == SPHERE:
        return size[0]
    if kind == CAPSULE:
        return size[0] + size[2]
    if kind == ELLIPSOID:
        return max(size[0], max(size[1], size[2]))
    if kind == CYLINDER:
        return math.sqrt(size[0] * size[0] + size[2] * size[2])
    if kind == PLANE:
        return math.sqrt(size[0] * size[0] + size[1] * size[1])
    return math.sqrt(dot(size, size))


@compiled
def extent(kind: int, size: Vector, axis: Vector) -> float:
    """Half the width of the shape's bounding box along a unit axis given in the shape's frame."""
    if kind == SPHERE:
        return size[0]
    if kind == CAPSULE:
        return abs(axis[2]) * size[2] + size[0]
    width = abs(axis[0]) * size[0] + abs(axis[1]) * size[1]
    return width if kind == PLANE else width + abs(axis[2]) * size[2]
