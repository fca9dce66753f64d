"""The buffers that frames are drawn with, shared by all renderers of a process whose models look the same.

A frame's buffers are about a megabyte, as much as a core's own cache: environments that are stepped in turn and had
their own would push each other's out of it. Nothing in them belongs to one environment: tables and layers are filled
anew for each frame, and what is kept of sky and planes holds for the camera, lights and planes stored beside it.
"""

import weakref
from typing import NamedTuple

import mujoco
import numpy as np

from .lights import CASTER_COLUMNS
from .meshes import Meshes, build_meshes, meshes_digest
from .passes import SKY_COLUMNS, Frame
from .planes import make_plane_cache
from .tables import CAMERA_SHAPE, GEOM_COLUMNS, LIGHT_COLUMNS, SAMPLES
from .textures import Textures, build_textures, textures_digest
from .visibility import Layer


class FrameSizes(NamedTuple):
    """All that the buffers' sizes depend on."""

    width: int  # pixels
    height: int
    geoms: int  # at most
    lights: int  # at most
    planes: int
    passes: int  # in which light comes: see `planes`


def make_layer(pixels: int) -> Layer:
    """Empty buffers for what one camera sees."""
    samples = pixels * SAMPLES
    return Layer(
        camera=np.zeros(CAMERA_SHAPE),
        depth=np.zeros(samples),
        owner=np.zeros(samples, np.int64),
        image=np.zeros((pixels, 3)),
    )


def make_frame(sizes: FrameSizes, textures: Textures, meshes: Meshes) -> Frame:
    """Empty buffers for a picture."""
    width, height, geoms, lights, planes, passes = sizes
    pixels = width * height
    return Frame(
        geoms=np.zeros((geoms, GEOM_COLUMNS)),
        lights=np.zeros((lights, LIGHT_COLUMNS)),
        textures=textures,
        meshes=meshes,
        direct=make_layer(pixels),
        mirrored=make_layer(pixels),
        planes=make_plane_cache(planes, pixels, passes),
        sky=np.zeros((pixels, SKY_COLUMNS)),
        stamps=np.ones(3),
        seen_planes=np.zeros((planes, GEOM_COLUMNS)),
        seen_lights=np.zeros((lights, LIGHT_COLUMNS)),
        seen_camera=np.zeros(CAMERA_SHAPE),
        casters=np.zeros((geoms + 1, CASTER_COLUMNS)),
        everything=np.zeros(geoms + 1, np.int64),
        chosen=np.zeros(geoms + 1, np.int64),
        queue=np.zeros(geoms, np.int64),
        nearest=np.zeros(geoms),
        order=np.zeros(geoms, np.int64),
        distance=np.zeros(geoms),
    )


class Frames:
    """Frames of one kind: one, unless several threads draw at the same time."""

    def __init__(self, sizes: FrameSizes, textures: Textures, meshes: Meshes):
        self._sizes = sizes
        self._textures = textures
        self._meshes = meshes
        self._free: list[Frame] = []

    def take(self) -> Frame:
        """A frame that nobody else draws with."""
        try:
            return self._free.pop()  # one thread at a time can do this
        except IndexError:
            return make_frame(self._sizes, self._textures, self._meshes)

    def give_back(self, frame: Frame) -> None:
        """Lets others draw with it. One that drawing failed with is better forgotten."""
        self._free.append(frame)


_known: weakref.WeakValueDictionary[tuple[FrameSizes, float, bytes, bytes], Frames] = weakref.WeakValueDictionary()


def shared_frames(model: mujoco.MjModel, sizes: FrameSizes, pixel: float) -> Frames:
    """Frames for a model's pictures, `pixel` wide at depth 1; the same for all models that look the same."""
    key = sizes, pixel, textures_digest(model), meshes_digest(model)
    frames = _known.get(key)
    if frames is None:
        frames = _known[key] = Frames(sizes, build_textures(model, pixel), build_meshes(model))
    return frames
