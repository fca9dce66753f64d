"""Draws MuJoCo scenes without OpenGL: rays cast at analytic shapes, lit and shaded as OpenGL would.

A model's constants (textures, sizes) are prepared here; a frame is one call of `passes.draw`.
"""

import math

import mujoco
import numpy as np

from .features import shape_name
from .lights import CASTER_COLUMNS
from .passes import SKY_COLUMNS, Frame, draw
from .planes import make_plane_cache
from .scene import CAMERA_FIELDS, GEOM_FIELDS, LIGHT_FIELDS, SceneSource, view
from .shapes import PLANE
from .tables import CAMERA_SHAPE, GEOM_COLUMNS, LIGHT_COLUMNS, NOTHING, SAMPLES
from .textures import build_textures, find_sky
from .visibility import Layer


def make_layer(size: int) -> Layer:
    """Empty buffers for what one camera sees."""
    samples = size * size * SAMPLES
    return Layer(
        camera=np.zeros(CAMERA_SHAPE),
        depth=np.zeros(samples),
        owner=np.zeros(samples, np.int64),
        image=np.zeros((size * size, 3)),
    )


class RaycastRenderer:
    """Draws one camera of one model. A picture depends on the model and its data, never on earlier ones."""

    name = "raycast"

    def __init__(self, model: mujoco.MjModel, data: mujoco.MjData, camera: int, size: int):
        self._source = SceneSource(model, data, camera)
        self._shape = (size, size, 3)
        pixel = 2.0 * math.tan(math.radians(model.cam_fovy[camera]) / 2.0) / size
        self._frame = make_frame(model, self._source.scene, size, pixel)
        # MuJoCo fixes these when it makes an OpenGL context. Without a shadow map there are no shadows.
        has_shadows = model.vis.quality.shadowsize > 0
        self._shadow_clip = float(model.stat.extent * model.vis.map.shadowclip) if has_shadows else 0.0
        self._shadow_scale = float(model.vis.map.shadowscale)
        self._sky = find_sky(model)

    def render(self, out: np.ndarray | None = None) -> np.ndarray:
        """The present picture, uint8 (size, size, 3), drawn into `out` when that is given."""
        if out is None:
            out = np.empty(self._shape, np.uint8)
        elif out.shape != self._shape or out.dtype != np.uint8 or not out.flags.c_contiguous:
            raise ValueError(
                f"`out` must be a C-contiguous uint8 array of shape {self._shape}, "
                f"not {out.dtype} of shape {out.shape} with strides {out.strides}."
            )
        scene = self._source.update()
        unknown = draw(
            self._frame, scene.ngeom, scene.nlight, self._shadow_clip, self._shadow_scale, self._sky, out
        )
        if unknown != NOTHING:
            raise RuntimeError(
                f"The scene has a {shape_name(scene.geoms[unknown].type)}, which the ray-caster cannot draw: "
                "choose renderer='gl'."
            )
        if scene.status:
            raise RuntimeError(f"The scene has more than {scene.maxgeom} geoms, so that some were not drawn.")
        return out

    def close(self) -> None:
        """Nothing to give back: all memory is numpy's."""


def make_frame(model: mujoco.MjModel, scene: mujoco.MjvScene, size: int, pixel: float) -> Frame:
    """All that `draw` needs for a model: views of MuJoCo's scene, the model's textures, empty buffers."""
    lights, pixels = len(scene.lights), size * size
    planes = int(np.sum(model.geom_type == PLANE))
    return Frame(
        raw_geoms=view("mjvGeom", scene.geoms, GEOM_FIELDS),
        raw_lights=view("mjvLight", scene.lights, LIGHT_FIELDS),
        raw_cameras=view("mjvGLCamera", scene.camera, CAMERA_FIELDS),
        geoms=np.zeros((scene.maxgeom, GEOM_COLUMNS)),
        lights=np.zeros((lights, LIGHT_COLUMNS)),
        textures=build_textures(model, pixel),
        direct=make_layer(size),
        mirrored=make_layer(size),
        planes=make_plane_cache(planes, pixels, passes=1 + model.nlight),
        sky=np.zeros((pixels, SKY_COLUMNS)),
        stamps=np.ones(3),
        seen_planes=np.zeros((planes, GEOM_COLUMNS)),
        seen_lights=np.zeros((lights, LIGHT_COLUMNS)),
        seen_camera=np.zeros(CAMERA_SHAPE),
        casters=np.zeros((scene.maxgeom + 1, CASTER_COLUMNS)),
        everything=np.zeros(scene.maxgeom + 1, np.int64),
        chosen=np.zeros(scene.maxgeom + 1, np.int64),
        order=np.zeros(scene.maxgeom, np.int64),
        distance=np.zeros(scene.maxgeom),
    )
