"""One frame, pass by pass, as MuJoCo's OpenGL renderer does it: what is seen, its colours, the mirror, transparency.

A *layer* is what one camera sees: the eye's, or its mirror image below a reflecting floor. Coverage is tested at four
samples a pixel; colours are computed once a pixel for each geom that covers any of its samples.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from .kernel import (
    Table,
    Vector,
    add,
    along,
    clamped,
    compiled,
    dot,
    entry,
    multiply,
    normalized,
    scale,
    sources_digest,
    store,
    subtract,
    vector,
)
from .lights import own_light, reflected_light, shadowed, summarize_occluders
from .planes import PIXEL_COLOUR, POINT, STAMP, PlaneCache, fill_plane_pixel, plane_texture
from .scene import (
    AHEAD,
    ALPHA,
    EYE,
    FAR,
    KIND,
    LENS,
    LIGHT_COLUMNS,
    NEAR,
    PIXEL,
    PLANE_INDEX,
    POSITION,
    RADIUS,
    REFLECTANCE,
    RIGHT,
    SAMPLE_X,
    SAMPLE_Y,
    SAMPLES,
    SHADOWS,
    SIZE,
    TEXTURE,
    TEXTURE_UNIFORM,
    TRANSPARENT,
    UP,
    height_above,
    mirror_camera,
    ray,
    read_camera,
    read_geoms,
    read_lights,
    to_local,
    to_world,
)
from .shapes import BOX, CAPSULE, MISS, PLANE, crosses_plane, extent, hit, normal
from .textures import FIRST_LEVEL, WIDTH, Textures, cube_colour, sky_colour

NOTHING = -1
SKY_COLOUR, SKY_COLUMNS = 1, 4  # what is kept of the sky, after STAMP
PLANES_NOW, SKY_NOW = 0, 1
BEHIND_ALPHA = 0.3  # MuJoCo shows a plane from behind at this part of its opacity
FARTHEST = 1e10  # where MuJoCo sorts transparent planes
VISIBLE_LIGHT = 2e-3  # less of a light than this (of 3) is not worth a shadow test

# OpenGL extends a surface's shading to the pixel's centre, even where that lies outside of the surface: the normal
# turns away from the eye by about this part. Geoms thinner than a pixel turn less. Both were fitted to Mesa's pictures.
SILHOUETTE_TILT = 0.9
THIN, THIN_TILT = 0.3, 0.36


class Layer(NamedTuple):
    """What one camera sees."""

    camera: np.ndarray  # float64 CAMERA_SHAPE
    depth: np.ndarray  # float64 (pixel * SAMPLES,)
    owner: np.ndarray  # int64 (pixel * SAMPLES,): the geom, or NOTHING
    image: np.ndarray  # float64 (pixel, rgb)


class Frame(NamedTuple):
    """All that a frame is drawn from and with: MuJoCo's scene, tables made of it, and what is kept between frames."""

    raw_geoms: np.ndarray
    raw_lights: np.ndarray
    raw_cameras: np.ndarray
    geoms: np.ndarray
    lights: np.ndarray
    textures: Textures
    direct: Layer
    mirrored: Layer
    planes: PlaneCache
    sky: np.ndarray  # float64 (pixel, STAMP and SKY_COLOUR...)
    stamps: np.ndarray  # float64 (PLANES_NOW, SKY_NOW): what is kept with another stamp no longer holds
    seen_planes: np.ndarray  # the geom rows, lights and camera for which they were set
    seen_lights: np.ndarray
    seen_camera: np.ndarray
    occluders: np.ndarray
    order: np.ndarray  # int64: transparent geoms by distance
    distance: np.ndarray  # float64: their distances


@compiled
def span(centre: float, half: float, near: float, far: float) -> tuple[float, float]:
    """Interval that [centre - half, centre + half] at depths from near to far covers at depth 1."""
    low = centre - half
    high = centre + half
    return low / (far if low > 0.0 else near), high / (near if high > 0.0 else far)


@compiled
def pixel_box(geoms: Table, g: int, camera: Table, size: int) -> tuple[int, int, int, int]:
    """Pixels (left, right, top, bottom; ends excluded) that geom g can touch."""
    kind = int(geoms[g, KIND])
    shape = vector(geoms, g, SIZE)
    offset = subtract(vector(geoms, g, POSITION), vector(camera, EYE, 0))
    right, up, ahead = vector(camera, RIGHT, 0), vector(camera, UP, 0), vector(camera, AHEAD, 0)
    depth = dot(offset, ahead)
    thickness = extent(kind, shape, to_local(geoms, g, ahead))
    if depth + thickness <= 0.0:
        return 0, 0, 0, 0
    near, far = depth - thickness, depth + thickness
    if near <= 1e-3:
        return 0, size, 0, size
    zoom = 1.0 / camera[LENS, PIXEL]
    half = 0.5 * size
    low, high = span(dot(offset, right), extent(kind, shape, to_local(geoms, g, right)), near, far)
    left_edge = max(0, int(math.floor(half + low * zoom)))
    right_edge = min(size, int(math.ceil(half + high * zoom)) + 1)
    low, high = span(dot(offset, up), extent(kind, shape, to_local(geoms, g, up)), near, far)
    top_edge = max(0, int(math.floor(half - high * zoom)))
    bottom_edge = min(size, int(math.ceil(half - low * zoom)) + 1)
    return left_edge, right_edge, top_edge, bottom_edge


@compiled
def cast_rays(geoms: Table, g: int, layer: Layer, size: int, mirror: int) -> None:
    """Lets geom g take the samples where it is nearest. With a mirror, only what is above it counts."""
    camera, depth, owner = layer.camera, layer.depth, layer.owner
    kind = int(geoms[g, KIND])
    shape = vector(geoms, g, SIZE)
    eye = vector(camera, EYE, 0)
    origin = to_local(geoms, g, subtract(eye, vector(geoms, g, POSITION)))
    right = to_local(geoms, g, vector(camera, RIGHT, 0))
    up = to_local(geoms, g, vector(camera, UP, 0))
    ahead = to_local(geoms, g, vector(camera, AHEAD, 0))
    pixel, near, half = camera[LENS, PIXEL], camera[LENS, NEAR], 0.5 * size
    x0, x1, y0, y1 = pixel_box(geoms, g, camera, size)
    for y in range(y0, y1):
        for s in range(SAMPLES):
            row = along(ahead, (half - y - SAMPLE_Y[s]) * pixel, up)
            for x in range(x0, x1):
                j = (y * size + x) * SAMPLES + s
                t = hit(kind, shape, origin, along(row, (x + SAMPLE_X[s] - half) * pixel, right))
                if near < t < depth[j]:
                    if mirror != NOTHING:
                        direction = ray(camera, x + SAMPLE_X[s], y + SAMPLE_Y[s], half)
                        if height_above(geoms, mirror, along(eye, t, direction)) < 0.0:
                            continue
                    depth[j] = t
                    owner[j] = g


@compiled
def see(geoms: Table, count: int, layer: Layer, size: int, mirror: int) -> None:
    """Finds the opaque geom that each sample of a layer shows."""
    layer.owner[:] = NOTHING
    for g in range(count):
        if g != mirror and geoms[g, TRANSPARENT] == 0.0:
            cast_rays(geoms, g, layer, size, mirror)


@compiled
def find_mirror(geoms: Table, count: int) -> int:
    """The one geom that MuJoCo lets reflect: the first reflecting plane, or NOTHING."""
    for g in range(count):
        if geoms[g, REFLECTANCE] > 0.0 and geoms[g, KIND] == PLANE and geoms[g, TRANSPARENT] == 0.0:
            return g
    return NOTHING


@compiled
def cube_texture(
    geoms: Table, g: int, texels: np.ndarray, index: np.ndarray, local: Vector, pixel_width: float
) -> Vector:
    """A cube texture at a point of a geom; `pixel_width` is a pixel's width at the point's depth."""
    texture = int(geoms[g, TEXTURE])
    sx, sy, sz = vector(geoms, g, SIZE)
    x, y, z = local[0] / sx, local[1] / sy, local[2] / sz
    if geoms[g, KIND] == CAPSULE and abs(local[2]) > sz:  # MuJoCo draws the ends as half spheres of their own
        z = (local[2] + math.copysign(sx - sz, local[2])) / sx
    if geoms[g, TEXTURE_UNIFORM] > 0.0:
        x, y, z = x * sx, y * sy, z * sz
    finest = index[index[texture, FIRST_LEVEL], WIDTH]
    return cube_colour(texels, index, texture, (x, y, z), 0.5 * finest * pixel_width / sx)


@compiled
def tilted(facing: Vector, to_eye: Vector, tilt: float) -> Vector:
    """A normal turned towards the silhouette: less of it points at the eye."""
    return normalized(along(facing, -tilt * dot(facing, to_eye), to_eye))


@compiled
def surface_point(
    geoms: Table, g: int, camera: Table, x: int, y: int, size: int, sample: int, sample_depth: float
) -> tuple[float, Vector, float]:
    """Where pixel (x, y) computes the colour of geom g: depth, ray, and how far the normal is to be tilted.

    At the pixel's centre where the geom covers it, else at a sample that it covers.
    """
    kind = int(geoms[g, KIND])
    half = 0.5 * size
    direction = ray(camera, x + 0.5, y + 0.5, half)
    origin = to_local(geoms, g, subtract(vector(camera, EYE, 0), vector(geoms, g, POSITION)))
    depth = hit(kind, vector(geoms, g, SIZE), origin, to_local(geoms, g, direction))
    if depth > camera[LENS, NEAR]:
        return depth, direction, 0.0
    tilt = 0.0
    if kind != PLANE and kind != BOX:
        thick = geoms[g, SIZE] > THIN * camera[LENS, PIXEL] * sample_depth
        tilt = SILHOUETTE_TILT if thick else THIN_TILT
    return sample_depth, ray(camera, x + SAMPLE_X[sample], y + SAMPLE_Y[sample], half), tilt


@compiled
def surface_colour(
    geoms: Table, count: int, g: int, lights: Table, light_count: int, occluders: np.ndarray,
    texels: np.ndarray, index: np.ndarray, camera: Table, depth: float, direction: Vector, tilt: float, tint: float,
    shadows: bool,
) -> Vector:  # fmt: skip
    """Colour of geom g at a depth along a ray; `tint` scales its own colour, as in a mirror.

    With shadows each light that casts them is a pass of its own, which adds to the picture what it lights up.
    """
    eye = vector(camera, EYE, 0)
    point = along(eye, depth, direction)
    local = to_local(geoms, g, subtract(point, vector(geoms, g, POSITION)))
    kind = int(geoms[g, KIND])
    facing = to_world(geoms, g, normal(kind, vector(geoms, g, SIZE), local))
    to_eye = normalized(subtract(eye, point))
    if tilt > 0.0:
        facing = tilted(facing, to_eye, tilt)
    unshadowed = own_light(geoms, g, light_count, tint)
    total = (0.0, 0.0, 0.0)
    for i in range(light_count):
        colour = reflected_light(geoms, g, lights, i, point, facing, to_eye, tint)
        if not (shadows and lights[i, SHADOWS] > 0.0):
            unshadowed = add(unshadowed, colour)
        elif colour[0] + colour[1] + colour[2] > 0.0 and not shadowed(
            geoms, count, occluders, lights, i, point, g
        ):
            total = add(total, clamped(colour))
    total = add(total, clamped(unshadowed))
    if geoms[g, TEXTURE] < 0.0:
        return total
    if kind == PLANE:
        in_plane = to_local(geoms, g, direction)
        return multiply(total, plane_texture(geoms, g, camera, texels, index, local, in_plane, depth))
    return multiply(total, cube_texture(geoms, g, texels, index, local, camera[LENS, PIXEL] * depth))


@compiled
def plane_colour(
    geoms: Table, count: int, g: int, lights: Table, light_count: int, occluders: np.ndarray, pixel: int,
    pixels: np.ndarray,
) -> Vector:  # fmt: skip
    """Colour of plane g at a pixel whose unshadowed colours are kept, with the present shadows."""
    plane = int(geoms[g, PLANE_INDEX])
    point = kept(pixels, plane, pixel, POINT)
    total = kept(pixels, plane, pixel, PIXEL_COLOUR)
    column = PIXEL_COLOUR
    for i in range(light_count):
        if lights[i, SHADOWS] == 0.0:
            continue
        column += 3
        colour = kept(pixels, plane, pixel, column)
        if colour[0] + colour[1] + colour[2] > VISIBLE_LIGHT and not shadowed(
            geoms, count, occluders, lights, i, point, g
        ):
            total = add(total, colour)
    return clamped(total)


@compiled
def kept(pixels: np.ndarray, plane: int, pixel: int, column: int) -> Vector:
    """Three numbers of what is kept of a plane's pixel."""
    return pixels[plane, pixel, column], pixels[plane, pixel, column + 1], pixels[plane, pixel, column + 2]


@compiled
def sky_pixel(
    sky: Table, now: float, texels: np.ndarray, index: np.ndarray, texture: int, camera: Table, x: int, y: int,
    size: int,
) -> Vector:  # fmt: skip
    """The sky at a pixel, looked up once while the camera does not turn."""
    pixel = y * size + x
    if sky[pixel, STAMP] != now:
        right = scale(vector(camera, RIGHT, 0), camera[LENS, PIXEL])
        down = scale(vector(camera, UP, 0), -camera[LENS, PIXEL])
        direction = ray(camera, x + 0.5, y + 0.5, 0.5 * size)
        store(sky, pixel, SKY_COLOUR, sky_colour(texels, index, texture, direction, right, down))
        sky[pixel, STAMP] = now
    return vector(sky, pixel, SKY_COLOUR)


@compiled
def samples_of(owner: np.ndarray, first: int, sample: int) -> int:
    """How many samples of a pixel have the same owner as `sample`; 0 if an earlier sample has it too."""
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
def shade_direct(frame: Frame, count: int, light_count: int, sky_texture: int, size: int) -> None:
    """Colours of all that the eye sees without a mirror."""
    geoms, lights, occluders, sky = frame.geoms, frame.lights, frame.occluders, frame.sky
    texels, index = frame.textures
    corners, pixels = frame.planes
    camera, depths, owner, image = frame.direct
    now, sky_now = frame.stamps[PLANES_NOW], frame.stamps[SKY_NOW]
    for y in range(size):
        for x in range(size):
            pixel = y * size + x
            total = (0.0, 0.0, 0.0)
            for s in range(SAMPLES):
                same = samples_of(owner, pixel * SAMPLES, s)
                if same == 0:
                    continue
                g = owner[pixel * SAMPLES + s]
                if g == NOTHING:
                    colour = sky_pixel(sky, sky_now, texels, index, sky_texture, camera, x, y, size)
                elif geoms[g, KIND] == PLANE:
                    if pixels[int(geoms[g, PLANE_INDEX]), pixel, STAMP] != now:
                        fill_plane_pixel(
                            geoms,
                            g,
                            lights,
                            light_count,
                            camera,
                            texels,
                            index,
                            x,
                            y,
                            size,
                            corners,
                            pixels,
                            now,
                        )
                    colour = plane_colour(geoms, count, g, lights, light_count, occluders, pixel, pixels)
                else:
                    depth, direction, tilt = surface_point(
                        geoms, g, camera, x, y, size, s, depths[pixel * SAMPLES + s]
                    )
                    colour = surface_colour(
                        geoms, count, g, lights, light_count, occluders, texels, index, camera, depth, direction,
                        tilt, 1.0, True,
                    )  # fmt: skip
                    colour = clamped(colour)
                total = along(total, same / SAMPLES, colour)
            store(image, pixel, 0, total)


@compiled
def shade_mirrored(frame: Frame, count: int, light_count: int, size: int, tint: float) -> None:
    """Colours of what the mirror shows: all lights, no shadows, no sky."""
    geoms, lights, occluders = frame.geoms, frame.lights, frame.occluders
    texels, index = frame.textures
    camera, depths, owner, image = frame.mirrored
    for y in range(size):
        for x in range(size):
            pixel = y * size + x
            total = (0.0, 0.0, 0.0)
            for s in range(SAMPLES):
                g = owner[pixel * SAMPLES + s]
                if g == NOTHING:
                    continue
                same = samples_of(owner, pixel * SAMPLES, s)
                if same == 0:
                    continue
                depth, direction, tilt = surface_point(
                    geoms, g, camera, x, y, size, s, depths[pixel * SAMPLES + s]
                )
                colour = surface_colour(
                    geoms, count, g, lights, light_count, occluders, texels, index, camera, depth, direction, tilt,
                    tint, False,
                )  # fmt: skip
                total = along(total, same / SAMPLES, colour)
            store(image, pixel, 0, total)


@compiled
def sort_transparent(geoms: Table, count: int, eye: Vector, order: np.ndarray, distance: np.ndarray) -> int:
    """Lists the transparent geoms, nearest first, and answers their number."""
    found = 0
    for g in range(count):
        if geoms[g, TRANSPARENT] == 0.0:
            continue
        offset = subtract(vector(geoms, g, POSITION), eye)
        away = math.sqrt(dot(offset, offset)) - geoms[g, RADIUS]
        if geoms[g, KIND] == PLANE:
            away = FARTHEST
        place = found
        while place > 0 and distance[place - 1] > away:
            distance[place], order[place] = distance[place - 1], order[place - 1]
            place -= 1
        distance[place], order[place] = away, g
        found += 1
    return found


@compiled
def reach(geoms: Table, g: int, eye: Vector, direction: Vector, mirror: int) -> float:
    """Depth of transparent geom g along a ray, planes from both sides; MISS below a mirror."""
    origin = to_local(geoms, g, subtract(eye, vector(geoms, g, POSITION)))
    local = to_local(geoms, g, direction)
    kind = int(geoms[g, KIND])
    if kind == PLANE:
        t = crosses_plane(vector(geoms, g, SIZE), origin, local)
    else:
        t = hit(kind, vector(geoms, g, SIZE), origin, local)
    if mirror != NOTHING and height_above(geoms, mirror, along(eye, t, direction)) < 0.0:
        return MISS
    return t


@compiled
def blend(frame: Frame, layer: Layer, g: int, light_count: int, size: int, mirror: int, tint: float) -> None:
    """Draws transparent geom g over a layer."""
    geoms, lights, occluders = frame.geoms, frame.lights, frame.occluders
    texels, index = frame.textures
    camera, depths, _, image = layer
    eye = vector(camera, EYE, 0)
    alpha = geoms[g, ALPHA]
    if geoms[g, KIND] == PLANE and height_above(geoms, g, vector(frame.direct.camera, EYE, 0)) < 0.0:
        alpha *= BEHIND_ALPHA
    x0, x1, y0, y1 = pixel_box(geoms, g, camera, size)
    for y in range(y0, y1):
        for x in range(x0, x1):
            pixel = y * size + x
            open_samples, covered, depth = 0, 0, 0.0
            direction = (0.0, 0.0, 0.0)
            for s in range(SAMPLES):
                limit = depths[pixel * SAMPLES + s]
                if limit == 0.0:
                    continue
                open_samples += 1
                through = ray(camera, x + SAMPLE_X[s], y + SAMPLE_Y[s], 0.5 * size)
                t = reach(geoms, g, eye, through, mirror)
                if camera[LENS, NEAR] < t < limit:
                    covered, depth, direction = covered + 1, t, through
            if covered == 0:
                continue
            colour = surface_colour(
                geoms, 0, g, lights, light_count, occluders, texels, index, camera, depth, direction, 0.0, tint,
                False,
            )  # fmt: skip
            old = vector(image, pixel, 0)
            new = scale(clamped(colour), covered / SAMPLES)
            change = subtract(new, scale(old, covered / open_samples))
            store(image, pixel, 0, along(old, alpha, change))


@compiled
def blend_all(
    frame: Frame, layer: Layer, count: int, light_count: int, size: int, mirror: int, tint: float
) -> None:
    """Draws all transparent geoms over a layer: nearest first, then farthest first, as MuJoCo does."""
    for k in range(count):
        if frame.order[k] != mirror:
            blend(frame, layer, frame.order[k], light_count, size, mirror, tint)
    for k in range(count - 1, -1, -1):
        if frame.order[k] != mirror:
            blend(frame, layer, frame.order[k], light_count, size, mirror, tint)


@compiled
def remember(new: Table, old: Table, rows: int, columns: int) -> bool:
    """Copies the first rows and columns of a table and answers whether any of them differed."""
    changed = False
    for i in range(rows):
        for k in range(columns):
            if new[i, k] != old[i, k]:
                old[i, k] = new[i, k]
                changed = True
    return changed


@compiled
def refresh_caches(frame: Frame, count: int, light_count: int) -> None:
    """Lets go of kept colours whose camera, lights or planes are no longer what they were."""
    camera, seen = frame.direct.camera, frame.seen_camera
    moved = remember(camera, seen, 1, 3)
    turned = remember(camera[1:], seen[1:], len(camera) - 1, 3)
    lit = remember(frame.lights, frame.seen_lights, light_count, LIGHT_COLUMNS)
    if frame.seen_lights[len(frame.seen_lights) - 1, 0] != light_count:
        frame.seen_lights[len(frame.seen_lights) - 1, 0] = light_count
        lit = True
    changed = False
    for g in range(count):
        if frame.geoms[g, KIND] == PLANE:
            plane = int(frame.geoms[g, PLANE_INDEX])
            changed |= remember(frame.geoms[g : g + 1], frame.seen_planes[plane : plane + 1], 1, TRANSPARENT)
    if turned:
        frame.stamps[SKY_NOW] += 1.0
    if moved or turned or lit or changed:
        frame.stamps[PLANES_NOW] += 1.0


@compiled
def draw_mirror(frame: Frame, count: int, light_count: int, transparent: int, size: int, mirror: int) -> None:
    """Draws the layer of the camera's mirror image, and adds it to the picture."""
    geoms, direct, layer = frame.geoms, frame.direct, frame.mirrored
    mirror_camera(direct.camera, geoms, mirror, layer.camera)
    for j in range(len(layer.depth)):
        layer.depth[j] = direct.camera[LENS, FAR] if direct.owner[j] == mirror else 0.0
    see(geoms, count, layer, size, mirror)
    tint = geoms[mirror, REFLECTANCE]
    shade_mirrored(frame, count, light_count, size, tint)
    blend_all(frame, layer, transparent, light_count, size, mirror, tint)
    for pixel in range(size * size):
        for k in range(3):
            direct.image[pixel, k] += layer.image[pixel, k]


@compiled
def quantize(image: np.ndarray, size: int, out: np.ndarray) -> None:
    """Rounds a picture's colours to 8 bits."""
    for y in range(size):
        for x in range(size):
            for k in range(3):
                out[y, x, k] = int(min(max(image[y * size + x, k], 0.0), 1.0) * 255.0 + 0.5)


def make_draw(sources: int) -> Any:
    """The function that draws a frame, compiled. `sources` ties the compiled file to all sources of this renderer."""

    @entry
    def draw(
        frame: Frame, count: int, light_count: int, shadow_clip: float, shadow_scale: float, sky_texture: int,
        out: np.ndarray,
    ) -> int:  # fmt: skip
        """Draws MuJoCo's present scene. Answers the first geom that it cannot draw, or -1."""
        if sources < 0:  # never; but numba must see a use of it
            return NOTHING
        size = out.shape[0]
        geoms, lights, direct = frame.geoms, frame.lights, frame.direct
        read_camera(frame.raw_cameras, size, direct.camera)
        read_lights(frame.raw_lights, light_count, shadow_clip, shadow_scale, lights)
        unknown = read_geoms(frame.raw_geoms, count, direct.camera, geoms)
        if unknown >= 0:
            return unknown
        refresh_caches(frame, count, light_count)
        mirror = find_mirror(geoms, count)
        summarize_occluders(geoms, count, mirror, frame.occluders)
        transparent = sort_transparent(
            geoms, count, vector(direct.camera, EYE, 0), frame.order, frame.distance
        )
        direct.depth[:] = direct.camera[LENS, FAR]
        see(geoms, count, direct, size, NOTHING)
        shade_direct(frame, count, light_count, sky_texture, size)
        if mirror != NOTHING:
            draw_mirror(frame, count, light_count, transparent, size, mirror)
        blend_all(frame, direct, transparent, light_count, size, NOTHING, 1.0)
        quantize(direct.image, size, out)
        return NOTHING

    return draw


draw = make_draw(sources_digest())
