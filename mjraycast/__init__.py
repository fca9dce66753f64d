"""Pictures of MuJoCo models without OpenGL: `Renderer(model, width, height).render(data, camera)`."""

from .features import UnsupportedModelError, unsupported
from .renderer import Renderer
from .scene import Camera, SceneLayoutError

__all__ = ["Camera", "Renderer", "SceneLayoutError", "UnsupportedModelError", "unsupported"]
