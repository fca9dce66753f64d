"""One frame, pass by pass, as MuJoCo's OpenGL draws it: opaque geoms, sky, mirror, transparent geoms.

Coverage is tested at four samples a pixel; a colour is computed once a pixel for each geom that covers any of
them.
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
    scale,
    sources_digest,
    store,
    subtract,
    vector,
)
from .lights import list_casters
from .meshes import Meshes
from .planes import SHADED, STAMP, PlaneCache, fill_plane, kept, shadow_plane
from .shapes import PLANE
from .surfaces import lit, lit_with_shadows, surface, texture_colour
from .tables import (
    ALPHA,
    COLUMNS,
    ENDLESS,
    EYE,
    FAR,
    KIND,
    LENS,
    LIGHT_COLUMNS,
    NEAR,
    NOTHING,
    PIXEL,
    PLANE_INDEX,
    POSITION,
    RADIUS,
    RASTER,
    REFLECTANCE,
    RIGHT,
    SAMPLE_X,
    SAMPLE_Y,
    SAMPLES,
    TRANSPARENT,
    UP,
    height_above,
    mirror_camera,
    pixel_box,
    ray,
    read_camera,
    read_geoms,
    read_lights,
    to_local,
)
from .textures import Textures, sky_colour
from .visibility import ENDLESS_HORIZON, GEOM_BITS, GEOM_MASK, Layer, find_mirror, reach, samples_like, see, shows

SKY_COLOUR, SKY_COLUMNS = 1, 4  # what is kept of the sky, after STAMP
PLANES_NOW, SKY_NOW, LIGHTS_SEEN = 0, 1, 2
BEHIND_ALPHA = 0.3  # MuJoCo shows a plane from behind at this part of its opacity
WIDTH_OF_HAZE = 3  # after its colour
FARTHEST = 1e10  # where MuJoCo sorts transparent planes
SKY_DISTANCE = 0.7  # radius and half height of the cylinder that MuJoCo draws the sky on, in far clipping depths


class RawScene(NamedTuple):
    """Views of MuJoCo's own memory of a scene."""

    geoms: np.ndarray
    lights: np.ndarray
    cameras: np.ndarray


class Frame(NamedTuple):
    """What a frame is drawn with: tables made of MuJoCo's scene, and what is kept between frames."""

    geoms: np.ndarray
    lights: np.ndarray
    textures: Textures
    meshes: Meshes
    direct: Layer
    mirrored: Layer
    planes: PlaneCache
    sky: np.ndarray  # float64 (pixel, STAMP and SKY_COLOUR...)
    # What is kept of planes and sky holds if its stamp is PLANES_NOW or SKY_NOW of these. They change when
    # camera, lights (and their number, LIGHTS_SEEN) or planes differ from those that were last seen.
    stamps: np.ndarray  # float64 (PLANES_NOW, SKY_NOW, LIGHTS_SEEN)
    seen_camera: np.ndarray
    seen_lights: np.ndarray
    seen_planes: np.ndarray
    casters: np.ndarray
    everything: np.ndarray  # int64: rows of all casters
    chosen: np.ndarray  # int64: rows of the casters that matter for a line of pixels
    queue: np.ndarray  # int64: opaque geoms by their nearest depth
    nearest: np.ndarray  # float64: these depths
    order: np.ndarray  # int64: transparent geoms by distance
    distance: np.ndarray  # float64: their distances


@compiled
def remember(new: Table, i: int, old: Table, j: int, columns: int) -> bool:
    """Copies the first columns of row i into row j of another table and answers whether any differed."""
    changed = False
    for k in range(columns):
        if new[i, k] != old[j, k]:
            old[j, k] = new[i, k]
            changed = True
    return changed


@compiled
def refresh_caches(frame: Frame, count: int, light_count: int) -> None:
    """Lets go of kept colours whose camera, lights or planes are no longer what they were."""
    geoms, stamps = frame.geoms, frame.stamps
    camera = frame.direct.camera
    moved = remember(camera, EYE, frame.seen_camera, EYE, 3)
    turned = False
    for row in range(EYE + 1, LENS + 1):
        turned |= remember(camera, row, frame.seen_camera, row, 3)
    changed = moved or turned or stamps[LIGHTS_SEEN] != light_count
    stamps[LIGHTS_SEEN] = light_count
    for i in range(light_count):
        changed |= remember(frame.lights, i, frame.seen_lights, i, LIGHT_COLUMNS)
    for g in range(count):
        if geoms[g, KIND] == PLANE:
            changed |= remember(geoms, g, frame.seen_planes, int(geoms[g, PLANE_INDEX]), TRANSPARENT)
    if turned:
        stamps[SKY_NOW] += 1.0
    if changed:
        stamps[PLANES_NOW] += 1.0


@compiled
def fill_sky(frame: Frame, texture: int) -> None:
    """Looks up the sky at the pixels that show it and do not have it yet."""
    sky, now = frame.sky, frame.stamps[SKY_NOW]
    texels, index = frame.textures
    camera, _, owner, _ = frame.direct
    right = scale(vector(camera, RIGHT, 0), camera[LENS, PIXEL])
    up = scale(vector(camera, UP, 0), camera[LENS, PIXEL])
    columns = int(camera[RASTER, COLUMNS])
    for pixel in range(len(sky)):
        if sky[pixel, STAMP] != now and shows(owner, pixel, NOTHING):
            direction = ray(camera, pixel % columns + 0.5, pixel // columns + 0.5)
            store(sky, pixel, SKY_COLOUR, sky_colour(texels, index, texture, direction, right, up))
            sky[pixel, STAMP] = now


@compiled
def shade_planes(frame: Frame, count: int, light_count: int) -> None:
    """Colours of all planes that the eye sees."""
    geoms, lights, now = frame.geoms, frame.lights, frame.stamps[PLANES_NOW]
    texels, index = frame.textures
    corners, pixels = frame.planes
    _, nodes, triangles, _ = frame.meshes
    camera, _, owner, _ = frame.direct
    columns = int(camera[RASTER, COLUMNS])
    for g in range(count):
        if geoms[g, KIND] == PLANE and geoms[g, TRANSPARENT] == 0.0:
            fill_plane(geoms, g, lights, light_count, camera, owner, texels, index, corners, pixels, now)
            _, _, y0, y1 = pixel_box(geoms, g, camera)
            shadow_plane(
                geoms, g, nodes, triangles, lights, light_count, frame.casters, frame.chosen, owner, y0, y1, columns, pixels
            )


@compiled
def shade_direct(frame: Frame, light_count: int) -> None:
    """Colours of all that the eye sees without a mirror."""
    geoms, lights, casters, everything = frame.geoms, frame.lights, frame.casters, frame.everything
    texels, index = frame.textures
    _, nodes, triangles, looks = frame.meshes
    _, pixels = frame.planes
    camera, depths, owner, image = frame.direct
    sky = frame.sky
    eye = vector(camera, EYE, 0)
    for pixel in range(len(image)):
        total = (0.0, 0.0, 0.0)
        s, left = 0, SAMPLES
        while left > 0:
            same = samples_like(owner, pixel, s)
            if same > 0:
                code = owner[pixel * SAMPLES + s]
                g, face = code & GEOM_MASK, code >> GEOM_BITS
                if code == NOTHING:
                    colour = vector(sky, pixel, SKY_COLOUR)
                elif geoms[g, KIND] == PLANE:
                    colour = kept(pixels, int(geoms[g, PLANE_INDEX]), pixel, SHADED)
                else:
                    depth, direction, local, facing, patch = surface(
                        geoms, g, face, triangles, looks, camera, pixel, s, depths[pixel * SAMPLES + s]
                    )
                    texture = texture_colour(
                        geoms, g, face, triangles, looks, camera, texels, index, pixel, local, facing, direction, depth
                    )
                    point = along(eye, depth, direction)
                    light = lit_with_shadows(
                        geoms, g, nodes, triangles, lights, light_count, casters, everything, patch, point, eye
                    )
                    colour = multiply(texture, light)
                total = add(total, scale(clamped(colour), same / SAMPLES))
                left -= same
            s += 1
        store(image, pixel, 0, total)


@compiled
def shade_mirrored(frame: Frame, light_count: int, tint: float) -> None:
    """Colours of what the mirror shows: all lights, no shadows, no sky."""
    geoms, lights = frame.geoms, frame.lights
    texels, index = frame.textures
    _, _, triangles, looks = frame.meshes
    camera, depths, owner, image = frame.mirrored
    eye = vector(camera, EYE, 0)
    for pixel in range(len(image)):
        total = (0.0, 0.0, 0.0)
        for s in range(SAMPLES):
            code = owner[pixel * SAMPLES + s]
            if code == NOTHING:
                continue
            same = samples_like(owner, pixel, s)
            if same > 0:
                g, face = code & GEOM_MASK, code >> GEOM_BITS
                depth, direction, local, facing, patch = surface(
                    geoms, g, face, triangles, looks, camera, pixel, s, depths[pixel * SAMPLES + s]
                )
                texture = texture_colour(
                    geoms, g, face, triangles, looks, camera, texels, index, pixel, local, facing, direction, depth
                )
                colour = multiply(texture, lit(geoms, g, lights, light_count, patch, eye, tint))
                total = add(total, scale(colour, same / SAMPLES))
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
def blend(frame: Frame, layer: Layer, g: int, light_count: int, mirror: int, tint: float) -> None:
    """Draws transparent geom g over a layer."""
    geoms, lights = frame.geoms, frame.lights
    texels, index = frame.textures
    _, nodes, triangles, looks = frame.meshes
    camera, depths, _, image = layer
    eye = vector(camera, EYE, 0)
    alpha = geoms[g, ALPHA]
    if geoms[g, KIND] == PLANE and height_above(geoms, g, vector(frame.direct.camera, EYE, 0)) < 0.0:
        alpha *= BEHIND_ALPHA
    x0, x1, y0, y1 = pixel_box(geoms, g, camera)
    columns = int(camera[RASTER, COLUMNS])
    for y in range(y0, y1):
        for x in range(x0, x1):
            pixel = y * columns + x
            open_samples, covered, last, face, depth = 0, 0, 0, 0, 0.0
            for s in range(SAMPLES):
                limit = depths[pixel * SAMPLES + s]
                if limit == 0.0:  # a sample that does not show the mirror
                    continue
                open_samples += 1
                through = ray(camera, x + SAMPLE_X[s], y + SAMPLE_Y[s])
                t, there = reach(geoms, g, nodes, triangles, eye, through, mirror)
                if camera[LENS, NEAR] < t < limit:
                    covered, last, face, depth = covered + 1, s, there, t
            if covered == 0:
                continue
            depth, direction, local, facing, patch = surface(geoms, g, face, triangles, looks, camera, pixel, last, depth)
            texture = texture_colour(
                geoms, g, face, triangles, looks, camera, texels, index, pixel, local, facing, direction, depth
            )
            colour = multiply(texture, lit(geoms, g, lights, light_count, patch, eye, tint))
            old = vector(image, pixel, 0)
            change = subtract(scale(colour, covered / SAMPLES), scale(old, covered / open_samples))
            store(image, pixel, 0, add(old, scale(change, alpha)))


@compiled
def blend_all(frame: Frame, layer: Layer, count: int, light_count: int, mirror: int, tint: float) -> None:
    """Draws all transparent geoms over a layer: nearest first, then farthest first, as MuJoCo does."""
    for k in range(2 * count):
        g = frame.order[min(k, 2 * count - 1 - k)]
        blend(frame, layer, g, light_count, mirror, tint)


@compiled
def draw_mirror(frame: Frame, count: int, light_count: int, transparent: int, mirror: int) -> None:
    """Draws what the camera's mirror image sees through the mirror, and adds it to the picture."""
    geoms, layer = frame.geoms, frame.mirrored
    camera, _, owner, image = frame.direct
    mirror_camera(camera, geoms, mirror, layer.camera)
    for j in range(len(layer.depth)):
        layer.depth[j] = camera[LENS, FAR] if owner[j] == mirror else 0.0
    nodes, triangles = frame.meshes.nodes, frame.meshes.corners
    see(geoms, count, nodes, triangles, layer, mirror, ENDLESS_HORIZON, frame.queue, frame.nearest)
    tint = geoms[mirror, REFLECTANCE]
    shade_mirrored(frame, light_count, tint)
    blend_all(frame, layer, transparent, light_count, mirror, tint)
    for pixel in range(len(image)):
        store(image, pixel, 0, add(vector(image, pixel, 0), vector(layer.image, pixel, 0)))


@compiled
def draw_haze(frame: Frame, count: int, haze: np.ndarray, horizon: float) -> None:
    """Lets an infinite plane end in haze, if the eye is above it: a cone, from the plane up to the horizon at eye level.

    It is `haze[WIDTH_OF_HAZE]` of the horizon's distance wide, opaque on one circle and clear at both ends.
    """
    geoms, camera, depth, image = frame.geoms, frame.direct.camera, frame.direct.depth, frame.direct.image
    plane = NOTHING
    for g in range(count):
        if plane == NOTHING and geoms[g, ENDLESS] > 0.0 and geoms[g, ENDLESS + 1] > 0.0 and geoms[g, KIND] == PLANE:
            plane = g
    if plane == NOTHING:
        return
    elevation = height_above(geoms, plane, vector(camera, EYE, 0)) / horizon
    if elevation <= 0.0:
        return
    wide, columns = haze[WIDTH_OF_HAZE], int(camera[RASTER, COLUMNS])
    narrow = math.atan2(1.0, wide)
    opaque = math.sqrt(0.5) * wide * math.sin(narrow) / math.sin(0.75 * math.pi - narrow)
    for pixel in range(len(image)):
        direction = to_local(geoms, plane, ray(camera, pixel % columns + 0.5, pixel // columns + 0.5))
        level = math.sqrt(direction[0] * direction[0] + direction[1] * direction[1])
        slope = -direction[2] / max(level, 1e-12)
        if slope < 0.0:
            continue
        distance = 1.0 / (1.0 + slope * wide / elevation)
        height = 1.0 - (1.0 - distance) / wide
        if height < 0.0:
            continue
        alpha = height / opaque if height < opaque else (1.0 - height) / (1.0 - opaque)
        behind = 0
        for s in range(SAMPLES):
            behind += depth[pixel * SAMPLES + s] > distance * horizon / level
        old = vector(image, pixel, 0)
        colour = (haze[0], haze[1], haze[2])
        store(image, pixel, 0, along(old, alpha * behind / SAMPLES, subtract(colour, old)))


@compiled
def quantize(image: np.ndarray, out: np.ndarray) -> None:
    """Rounds a picture's colours to 8 bits."""
    rows, columns, _ = out.shape
    for y in range(rows):
        for x in range(columns):
            for k in range(3):
                out[y, x, k] = int(min(max(image[y * columns + x, k], 0.0), 1.0) * 255.0 + 0.5)


def make_draw(sources: int) -> Any:
    """Compiles the function that draws a frame; `sources` ties what the disk keeps of it to all sources."""

    @entry
    def draw(
        raw: RawScene, frame: Frame, count: int, light_count: int, shadow_clip: float, shadow_scale: float,
        sky_texture: int, haze: np.ndarray, out: np.ndarray,
    ) -> int:  # fmt: skip
        """Draws MuJoCo's present scene. Answers the first geom that it cannot draw, or NOTHING."""
        if sources < 0:  # never, but a free variable must be used
            return NOTHING
        geoms, lights, direct = frame.geoms, frame.lights, frame.direct
        read_camera(raw.cameras, out.shape[1], out.shape[0], direct.camera)
        light_count = read_lights(raw.lights, light_count, shadow_clip, shadow_scale, lights)
        unknown = read_geoms(raw.geoms, count, direct.camera, frame.meshes.table, geoms)
        if unknown != NOTHING:
            return unknown
        refresh_caches(frame, count, light_count)
        mirror = find_mirror(geoms, count)
        list_casters(geoms, count, mirror, frame.casters, frame.everything)
        eye = vector(direct.camera, EYE, 0)
        transparent = sort_transparent(geoms, count, eye, frame.order, frame.distance)
        direct.depth[:] = direct.camera[LENS, FAR]
        horizon = SKY_DISTANCE * direct.camera[LENS, FAR] if sky_texture >= 0 else ENDLESS_HORIZON
        nodes, triangles = frame.meshes.nodes, frame.meshes.corners
        see(geoms, count, nodes, triangles, direct, NOTHING, horizon, frame.queue, frame.nearest)
        fill_sky(frame, sky_texture)
        shade_planes(frame, count, light_count)
        shade_direct(frame, light_count)
        if mirror != NOTHING:
            draw_mirror(frame, count, light_count, transparent, mirror)
        if sky_texture >= 0:
            draw_haze(frame, count, haze, horizon)
        blend_all(frame, direct, transparent, light_count, NOTHING, 1.0)
        quantize(direct.image, out)
        return NOTHING

    return draw


draw = make_draw(sources_digest())
