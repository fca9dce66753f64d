"""Draws MuJoCo scenes without OpenGL: rays cast at analytic shapes, lit and shaded as OpenGL would.

A frame is one call of `passes.draw`, with buffers from `frames`.
"""

import math
from contextlib import nullcontext

import mujoco
import numpy as np

from .features import refuse_unsupported, shape_name
from .frames import Frames, FrameSizes, shared_frames
from .kernel import one_at_a_time
from .passes import RawScene, draw
from .scene import CAMERA_FIELDS, GEOM_FIELDS, LIGHT_FIELDS, Camera, Scene, field_of_view, find_camera, view
from .shapes import PLANE
from .tables import NOTHING
from .textures import find_sky


class Renderer:
    """Draws one model. A picture depends on the model, its data and the camera, never on earlier pictures."""

    _is_ready = False  # whether this process has drawn a frame

    def __init__(self, model: mujoco.MjModel, width: int = 64, height: int = 64):
        if min(width, height) < 1:
            raise ValueError(f"A picture of {width} x {height} pixels is empty: choose at least 1 x 1.")
        refuse_unsupported(model)
        self._model = model
        self._shape = (height, width, 3)
        self._source = Scene(model)
        self._cameras: dict[str | int, mujoco.MjvCamera] = {}
        self._frames: dict[float, Frames] = {}  # by a pixel's width at depth 1
        scene = self._source.scene
        self._raw = RawScene(
            geoms=view("mjvGeom", scene.geoms, GEOM_FIELDS),
            lights=view("mjvLight", scene.lights, LIGHT_FIELDS),
            cameras=view("mjvGLCamera", scene.camera, CAMERA_FIELDS),
        )
        self._sizes = FrameSizes(
            width=width,
            height=height,
            geoms=scene.maxgeom,
            lights=len(scene.lights),
            planes=int(np.sum(model.geom_type == PLANE)),
            passes=1 + model.nlight,
        )
        # MuJoCo fixes these when it makes an OpenGL context. Without a shadow map there are no shadows.
        has_shadows = model.vis.quality.shadowsize > 0
        self._shadow_clip = float(model.stat.extent * model.vis.map.shadowclip) if has_shadows else 0.0
        self._shadow_scale = float(model.vis.map.shadowscale)
        self._sky = find_sky(model)
        self._haze = np.array([*model.vis.rgba.haze[:3], model.vis.map.haze], float)

    def render(self, data: mujoco.MjData, camera: Camera = -1, out: np.ndarray | None = None) -> np.ndarray:
        """The present picture, uint8 (height, width, 3), drawn into `out` when that is given.

        `camera` is a name or a number of the model's cameras, -1 for MuJoCo's default free camera, or an `MjvCamera`.
        """
        if out is None:
            out = np.empty(self._shape, np.uint8)
        elif out.shape != self._shape or out.dtype != np.uint8 or not out.flags.c_contiguous:
            raise ValueError(
                f"`out` must be a C-contiguous uint8 array of shape {self._shape}, "
                f"not {out.dtype} of shape {out.shape} with strides {out.strides}."
            )
        chosen = self._camera(camera)
        scene = self._source.update(data, chosen)
        frames = self._frames_for(chosen)
        constants = self._shadow_clip, self._shadow_scale, self._sky, self._haze
        frame = frames.take()
        with nullcontext() if Renderer._is_ready else one_at_a_time(draw):
            unknown = draw(self._raw, frame, scene.ngeom, scene.nlight, *constants, out)
        Renderer._is_ready = True
        frames.give_back(frame)
        if unknown != NOTHING:
            raise RuntimeError(
                f"The scene has a {shape_name(scene.geoms[unknown].type)}, which the ray-caster cannot draw: "
                "it needs OpenGL."
            )
        if scene.status:
            raise RuntimeError(f"The scene has more than {scene.maxgeom} geoms, so that some were not drawn.")
        return out

    def _camera(self, camera: Camera) -> mujoco.MjvCamera:
        """The camera that is meant, if it can be drawn."""
        if isinstance(camera, mujoco.MjvCamera):
            refuse_unsupported(self._model, camera)
            return camera
        if camera not in self._cameras:
            chosen = find_camera(self._model, camera)
            refuse_unsupported(self._model, chosen)
            self._cameras[camera] = chosen
        return self._cameras[camera]

    def _frames_for(self, camera: mujoco.MjvCamera) -> Frames:
        """Buffers for pictures of a camera: its field of view decides which levels of the sky they hold."""
        pixel = 2.0 * math.tan(math.radians(field_of_view(self._model, camera)) / 2.0) / self._shape[0]
        if pixel not in self._frames:
            self._frames[pixel] = shared_frames(self._model, self._sizes, pixel)
        return self._frames[pixel]
