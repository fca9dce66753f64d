"""Frames of MuJoCo models: `raycast` needs no OpenGL, `gl` is MuJoCo's own renderer, `auto` chooses."""

import os
import sys

import mujoco
import numpy as np

import mjraycast
from mjraycast import Camera, SceneLayoutError, UnsupportedModelError

from .gl import GLRenderer, GLUnavailableError, available_backends

__all__ = ["RENDERERS", "Camera", "Renderer", "UnsupportedModelError", "available_backends", "make_renderer"]

RENDERERS = ("auto", "raycast", "gl")
SAID = "PLAN2EXPLORE_SAID_OPENGL"  # in the environment, so that worker processes do not say it again


class RaycastRenderer:
    """The ray-caster bound to one camera and the data that it shows; refuses at once what it cannot draw."""

    name = "raycast"

    def __init__(self, model: mujoco.MjModel, data: mujoco.MjData, camera: Camera, size: int):
        missing = mjraycast.unsupported(model, camera)
        if missing:
            raise UnsupportedModelError(missing)
        self._renderer = mjraycast.Renderer(model, size, size)
        self._data, self._camera = data, camera

    def render(self, out: np.ndarray | None = None) -> np.ndarray:
        """The present image, uint8 (size, size, 3), drawn into `out` when that is given."""
        return self._renderer.render(self._data, self._camera, out)

    def close(self) -> None:
        """Nothing to give back: all memory is numpy's."""


Renderer = RaycastRenderer | GLRenderer
"""Draws one camera of one model, always as its data are now. Its `name` belongs into a run's configuration."""


def make_renderer(model: mujoco.MjModel, data: mujoco.MjData, camera: Camera, size: int, renderer: str = "auto") -> Renderer:
    """A renderer of size x size images; `auto` is raycast where the model is supported, else gl.

    `camera` is a name or a number of the model's cameras, -1 for MuJoCo's default free camera, or an `MjvCamera`.
    """
    if renderer == "gl":
        return GLRenderer(model, data, camera, size)
    try:
        return RaycastRenderer(model, data, camera, size)
    except (UnsupportedModelError, SceneLayoutError) as problem:
        if renderer == "raycast":
            raise
        if SAID not in os.environ:
            os.environ[SAID] = "1"
            print(f"{problem} Looking for one that works here; it draws more slowly.", file=sys.stderr, flush=True)
        try:
            return GLRenderer(model, data, camera, size)
        except GLUnavailableError as error:
            raise RuntimeError(f"{problem} {error}") from error
