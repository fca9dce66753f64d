"""Draws MuJoCo scenes without OpenGL: rays cast at analytic shapes, lit and shaded as OpenGL would.

A frame is one call of `passes.draw`, with buffers from `frames`.
"""

import math
from contextlib import nullcontext

import mujoco
import numpy as np

from .features import shape_name
from .frames import FrameSizes, shared_frames
from .kernel import one_at_a_time
from .passes import RawScene, draw
from .scene import CAMERA_FIELDS, GEOM_FIELDS, LIGHT_FIELDS, SceneSource, view
from .shapes import PLANE
from .tables import NOTHING
from .textures import find_sky


class RaycastRenderer:
    """Draws one camera of one model. A picture depends on the model and its data, never on earlier ones."""

    name = "raycast"
    _is_ready = False  # whether this process has drawn a frame

    def __init__(self, model: mujoco.MjModel, data: mujoco.MjData, camera: int, size: int):
        self._source = SceneSource(model, data, camera)
        self._shape = (size, size, 3)
        pixel = 2.0 * math.tan(math.radians(model.cam_fovy[camera]) / 2.0) / size
        scene = self._source.scene
        self._raw = RawScene(
            geoms=view("mjvGeom", scene.geoms, GEOM_FIELDS),
            lights=view("mjvLight", scene.lights, LIGHT_FIELDS),
            cameras=view("mjvGLCamera", scene.camera, CAMERA_FIELDS),
        )
        sizes = FrameSizes(
            picture=size,
            geoms=scene.maxgeom,
            lights=len(scene.lights),
            planes=int(np.sum(model.geom_type == PLANE)),
            passes=1 + model.nlight,
        )
        self._frames = shared_frames(model, sizes, pixel)
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
        constants = self._shadow_clip, self._shadow_scale, self._sky
        frame = self._frames.take()
        with nullcontext() if RaycastRenderer._is_ready else one_at_a_time(draw):
            unknown = draw(self._raw, frame, scene.ngeom, scene.nlight, *constants, out)
        RaycastRenderer._is_ready = True
        self._frames.give_back(frame)
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
