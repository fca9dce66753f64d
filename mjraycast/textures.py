"""Textures as OpenGL filters them: mip-map pyramids made once per model, and their look-up.

The choice of mip level follows Mesa's software rasteriser, with whose pictures ours are compared: half of a base-2
logarithm, straight between powers of two, of the squared number of texels across a pixel.
"""

import hashlib
import math
from typing import NamedTuple

import mujoco
import numpy as np

from .kernel import Vector, add, compiled, inlined, scale, subtract

FLAT, CUBE, SKYBOX = (int(getattr(mujoco.mjtTexture, f"mjTEXTURE_{name}")) for name in ("2D", "CUBE", "SKYBOX"))
NONE = -1

# Columns of the index: its first rows are the textures', the rows that FIRST_LEVEL points to the mip levels'.
FIRST_LEVEL, LEVEL_COUNT, FORM = 0, 1, 2  # FORM: FLAT, CUBE or SKYBOX
WIDTH, HEIGHT, OFFSET = 0, 1, 2
INDEX_COLUMNS = 3


class Textures(NamedTuple):
    """All textures of a model."""

    texels: np.ndarray  # float32 (texel, rgb): the colours of all levels, one after the other
    rows: np.ndarray  # int64 (texture or level, INDEX_COLUMNS); a cube's faces have LEVEL_COUNT levels each


def halved(image: np.ndarray) -> np.ndarray:
    """The next mip level: bilinear at half the size, in 8 bits a channel as OpenGL keeps it."""

    def taps(length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        target = max(length // 2, 1)
        position = (np.arange(target) + 0.5) * length / target - 0.5
        low = np.floor(position).astype(int)
        return low, np.minimum(low + 1, length - 1), (position - low).astype(np.float32)

    top, bottom, weight = taps(image.shape[0])
    rows = image[top] + (image[bottom] - image[top]) * weight[:, None, None]
    left, right, weight = taps(image.shape[1])
    return np.round(rows[:, left] + (rows[:, right] - rows[:, left]) * weight[:, None]).astype(np.float32)


def pyramid(image: np.ndarray) -> list[np.ndarray]:
    """All mip levels of an image, of values 0 to 255, down to one texel."""
    levels = [image.astype(np.float32)]
    while max(levels[-1].shape[:2]) > 1:
        levels.append(halved(levels[-1]))
    return levels


def texture_image(model: mujoco.MjModel, texture: int) -> np.ndarray:
    """A texture's pixels (height, width, rgb); a cube's six faces lie below each other."""
    shape = model.tex_height[texture], model.tex_width[texture], model.tex_nchannel[texture]
    start = model.tex_adr[texture]
    return model.tex_data[start : start + math.prod(shape)].reshape(shape)[..., :3]


def texture_faces(model: mujoco.MjModel, texture: int) -> list[np.ndarray]:
    """A flat texture's one image, or a cube's six; a single square image is repeated on all faces."""
    image = texture_image(model, texture)
    if model.tex_type[texture] == FLAT:
        return [image]
    width = image.shape[1]
    if image.shape[0] == width:
        return [image] * 6
    return [image[face * width : (face + 1) * width] for face in range(6)]


def levels_to_drop(model: mujoco.MjModel, texture: int, pixel: float) -> int:
    """How many of a sky's finest levels no pixel of this width (at depth 1) can ever need."""
    if model.tex_type[texture] != SKYBOX:
        return 0
    finest = 0.5 * model.tex_width[texture] * pixel  # texels per pixel at the middle of a face, its densest place
    return max(0, math.floor(math.log2(max(finest, 1.0))))


def build_textures(model: mujoco.MjModel, pixel: float) -> Textures:
    """The pyramids of all of a model's textures, for pixels of a given width at depth 1."""
    texels = [np.zeros((1, 3), np.float32)]  # never empty, also for a model without textures
    levels: list[tuple[int, int, int]] = []
    textures: list[tuple[int, int, int]] = []
    offset = len(texels[0])
    for texture in range(model.ntex):
        dropped = levels_to_drop(model, texture, pixel)
        first, count = model.ntex + len(levels), 0
        for face in texture_faces(model, texture):
            kept = pyramid(face)[dropped:]
            count = len(kept)
            for level in kept:
                levels.append((level.shape[1], level.shape[0], offset))
                texels.append((level / 255.0).reshape(-1, 3).astype(np.float32))
                offset += len(texels[-1])
        textures.append((first, count, int(model.tex_type[texture])))
    return Textures(np.concatenate(texels), np.array(textures + levels, np.int64).reshape(-1, INDEX_COLUMNS))


def textures_digest(model: mujoco.MjModel) -> bytes:
    """Bytes that are the same for models with the same textures."""
    parts = model.tex_type, model.tex_height, model.tex_width, model.tex_nchannel, model.tex_adr, model.tex_data
    digest = hashlib.blake2b()
    for part in parts:
        digest.update(part.tobytes())
    return digest.digest()


def find_sky(model: mujoco.MjModel) -> int:
    """The texture that MuJoCo draws as the sky: the first skybox, or NONE."""
    skies = np.flatnonzero(model.tex_type == SKYBOX)
    return int(skies[0]) if len(skies) else NONE


@compiled
def mixed(a: Vector, b: Vector, weight: float) -> Vector:
    """a where the weight is 0, b where it is 1."""
    return add(a, scale(subtract(b, a), weight))


@inlined
def neighbours(coordinate: float, length: int, repeats: bool) -> tuple[int, int, float]:
    """The two texels about a texture coordinate, and the second one's weight."""
    position = (coordinate - math.floor(coordinate)) * length - 0.5
    low = int(position + 1.0) - 1
    weight = position - low
    high = low + 1
    if low < 0:
        low = length - 1 if repeats else 0
    if high >= length:
        high = 0 if repeats else length - 1
    return low, high, weight


@inlined
def texel(texels: np.ndarray, index: np.ndarray, level: int, s: float, t: float, repeats: bool) -> Vector:
    """Bilinear look-up in one level; beyond the edge the image repeats, or its edge continues."""
    width = index[level, WIDTH]
    left, right, x = neighbours(s, width, repeats)
    top, bottom, y = neighbours(t, index[level, HEIGHT], repeats)
    start = index[level, OFFSET]
    a, b = start + top * width + left, start + top * width + right
    c, d = start + bottom * width + left, start + bottom * width + right
    wa, wb, wc, wd = (1.0 - x) * (1.0 - y), x * (1.0 - y), (1.0 - x) * y, x * y
    return (
        texels[a, 0] * wa + texels[b, 0] * wb + texels[c, 0] * wc + texels[d, 0] * wd,
        texels[a, 1] * wa + texels[b, 1] * wb + texels[c, 1] * wc + texels[d, 1] * wd,
        texels[a, 2] * wa + texels[b, 2] * wb + texels[c, 2] * wc + texels[d, 2] * wd,
    )


@compiled
def mip_level(squared_density: float, count: int) -> tuple[int, float]:
    """The mip level for the squared number of texels across a pixel, and the next level's weight."""
    residue = squared_density
    if residue <= 1.0:
        return 0, 0.0
    exponent = 0
    while residue >= 16.0:
        residue *= 0.0625
        exponent += 4
    while residue >= 2.0:
        residue *= 0.5
        exponent += 1
    detail = 0.5 * (exponent + residue - 1.0)
    level = int(detail)
    if level >= count - 1:
        return count - 1, 0.0
    return level, detail - level


@inlined
def filtered(
    texels: np.ndarray, index: np.ndarray, first: int, count: int, s: float, t: float, squared_density: float,
    repeats: bool,
) -> Vector:  # fmt: skip
    """Look-up between mip levels; a density is the number of texels across a pixel."""
    level, weight = mip_level(squared_density, count)
    colour = texel(texels, index, first + level, s, t, repeats)
    if weight > 0.0:
        colour = mixed(colour, texel(texels, index, first + level + 1, s, t, repeats), weight)
    return colour


@compiled
def cube_face(direction: Vector) -> tuple[int, float, float, float]:
    """OpenGL's face of a cube map in a direction, two coordinates on it, and what they are relative to."""
    x, y, z = direction
    if abs(x) >= abs(y) and abs(x) >= abs(z):
        return (0, -z, -y, x) if x > 0.0 else (1, z, -y, -x)
    if abs(y) >= abs(z):
        return (2, x, z, y) if y > 0.0 else (3, x, -z, -y)
    return (4, x, -y, z) if z > 0.0 else (5, -x, -y, -z)


@compiled
def on_face(face: int, direction: Vector) -> tuple[float, float, float]:
    """Coordinates and distance of any direction with regard to a given face."""
    x, y, z = direction
    if face == 0:
        return -z, -y, x
    if face == 1:
        return z, -y, -x
    if face == 2:
        return x, z, y
    if face == 3:
        return x, -z, -y
    if face == 4:
        return x, -y, z
    return -x, -y, -z


@compiled
def cube_colour(texels: np.ndarray, index: np.ndarray, texture: int, direction: Vector, right: Vector, up: Vector) -> Vector:
    """Look-up in a cube map; `right` and `up` are what to add to the direction for the next pixels."""
    face, s, t, distance = cube_face(direction)
    s /= distance
    t /= distance
    count = index[texture, LEVEL_COUNT]
    first = index[texture, FIRST_LEVEL] + face * count
    widest = 0.0
    for step in (right, up):
        ds, dt, dd = on_face(face, step)
        ds, dt = ds - s * dd, dt - t * dd
        widest = max(widest, ds * ds + dt * dt)
    density = 0.5 * index[first, WIDTH] / distance
    half = 0.499999  # never exactly 1, which would wrap around
    return filtered(texels, index, first, count, s * half + 0.5, t * half + 0.5, density * density * widest, False)


@compiled
def sky_colour(texels: np.ndarray, index: np.ndarray, sky: int, direction: Vector, right: Vector, up: Vector) -> Vector:
    """The sky in a direction; `right` and `up` are the steps to the next pixels. MuJoCo's sky has z up."""
    if sky < 0:
        return 0.0, 0.0, 0.0
    return cube_colour(
        texels,
        index,
        sky,
        (direction[0], direction[2], -direction[1]),
        (right[0], right[2], -right[1]),
        (up[0], up[2], -up[1]),
    )
