"""The ray-caster (`mjraycast`) bound to one camera and the data that it shows."""

import mujoco
import numpy as np

import mjraycast


class RaycastRenderer:
    """Draws one camera of one model without OpenGL; refuses at once what it cannot draw."""

    name = "raycast"

    def __init__(self, model: mujoco.MjModel, data: mujoco.MjData, camera: mjraycast.Camera, size: int):
        missing = mjraycast.unsupported(model, camera)
        if missing:
            raise mjraycast.UnsupportedModelError(missing)
        self._renderer = mjraycast.Renderer(model, size, size)
        self._data = data
        self._camera = camera

    def render(self, out: np.ndarray | None = None) -> np.ndarray:
        """The present picture, uint8 (size, size, 3), drawn into `out` when that is given."""
        return self._renderer.render(self._data, self._camera, out)

    def close(self) -> None:
        """Nothing to give back: all memory is numpy's."""
