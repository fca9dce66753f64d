"""Pictures of MuJoCo models: `raycast` needs no OpenGL, `gl` is MuJoCo's own renderer, `auto` chooses."""

from typing import Protocol

import mujoco
import numpy as np

from .features import unsupported_features
from .gl import GLRenderer, GLUnavailableError, available_backends
from .raycast import RaycastRenderer
from .scene import SceneLayoutError

__all__ = [
    "RENDERERS",
    "Renderer",
    "UnsupportedModelError",
    "available_backends",
    "make_renderer",
    "unsupported_features",
]

RENDERERS = ("auto", "raycast", "gl")


class Renderer(Protocol):
    """Draws one camera of one model, always as its data are now."""

    name: str  # "raycast", "gl-egl" or "gl-osmesa": belongs into a run's configuration

    def render(self, out: np.ndarray | None = None) -> np.ndarray:
        """The present picture, uint8 (size, size, 3), drawn into `out` when that is given."""
        ...

    def close(self) -> None:
        """Gives back what the renderer holds."""
        ...


class UnsupportedModelError(RuntimeError):
    """A model that cannot be drawn here."""


def make_renderer(
    model: mujoco.MjModel, data: mujoco.MjData, camera: int, size: int, renderer: str = "auto"
) -> Renderer:
    """A renderer of size x size pictures; `auto` is raycast where the model is supported, else gl."""
    if renderer not in RENDERERS:
        raise ValueError(f"Unknown renderer {renderer!r}: choose one of {', '.join(RENDERERS)}.")
    if not 0 <= camera < model.ncam:
        raise ValueError(f"Camera {camera} is not in the model, which has {model.ncam} (the first is 0).")
    if size < 1:
        raise ValueError(f"A picture of size {size} is empty: choose at least 1 pixel.")
    if renderer == "gl":
        return GLRenderer(model, data, camera, size)
    try:
        refuse_unsupported(model, camera)
        return RaycastRenderer(model, data, camera, size)
    except (UnsupportedModelError, SceneLayoutError) as problem:
        if renderer == "raycast":
            raise
        try:
            return GLRenderer(model, data, camera, size)
        except GLUnavailableError as error:
            raise UnsupportedModelError(f"{problem} {error}") from error


def refuse_unsupported(model: mujoco.MjModel, camera: int) -> None:
    """Raises if the ray-caster cannot draw all of the model."""
    missing = unsupported_features(model, camera)
    if missing:
        names = ", ".join(missing)
        raise UnsupportedModelError(f"The ray-caster cannot draw this model ({names}): it needs OpenGL.")
