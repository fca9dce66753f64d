"""MuJoCo's own OpenGL renderer, on EGL or OSMesa, whichever works here.

OpenGL that is missing or broken may end a process, so each backend is first tried in a process of its own.
"""

import functools
import importlib
import os
import subprocess
from typing import Any

import mujoco
import numpy as np

from mjraycast.scene import Camera, Scene, find_camera

from ..worker import python_command

BACKENDS = ("egl", "osmesa")
PROBE_SECONDS = 20
HOW_TO_GET_GL = "Debian: apt-get install libosmesa6, or libegl1 and a driver such as libgl1-mesa-dri"

# Draws one small image with the backend that `MUJOCO_GL` names.
PROBE = """
import mujoco
model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><geom size='1'/></worldbody></mujoco>")
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
renderer = mujoco.Renderer(model, 8, 8)
renderer.update_scene(data)
renderer.render()
print("drawn")
"""


class GLUnavailableError(RuntimeError):
    """No OpenGL that MuJoCo could draw with."""


@functools.cache
def works(backend: str) -> bool:
    """Whether MuJoCo can draw with a backend, tried once in another process."""
    environment = {**os.environ, "MUJOCO_GL": backend, "PYOPENGL_PLATFORM": backend}
    try:
        probe = subprocess.run(
            python_command(PROBE), env=environment, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return probe.returncode == 0 and "drawn" in probe.stdout


def available_backends() -> list[str]:
    """The OpenGL backends that work on this machine."""
    return [*filter(works, BACKENDS)]


def wanted_backends() -> tuple[str, ...]:
    """Backends that this process may use: one alone if the user or an earlier import of OpenGL chose it."""
    chosen = [os.environ.get(variable, "").lower() for variable in ("PYOPENGL_PLATFORM", "MUJOCO_GL")]
    return tuple(each for each in chosen if each in BACKENDS)[:1] or BACKENDS


def choose_backend() -> str:
    """The first backend that this process may use and that works."""
    wanted = wanted_backends()
    for backend in filter(works, wanted):
        return backend
    raise GLUnavailableError(f"OpenGL does not work here (tried {' and '.join(wanted)}). {HOW_TO_GET_GL}.")


class GLRenderer:
    """Draws one camera of one model with OpenGL: the images of dm_control's `physics.render`."""

    def __init__(self, model: mujoco.MjModel, data: mujoco.MjData, camera: Camera, size: int):
        self._context: Any = None  # for `close`, should anything below fail
        self._camera = find_camera(model, camera)
        backend = choose_backend()
        self.name = f"gl-{backend}"
        self._model = model
        self._data = data
        self._source = Scene(model)
        self._context = importlib.import_module(f"mujoco.{backend}").GLContext(size, size)
        self._context.make_current()
        self._drawing = make_drawing_context(model, size)
        self._rectangle = mujoco.MjrRect(0, 0, size, size)
        self._bottom_up = np.empty((size, size, 3), np.uint8)
        self._terrain = model.hfield_data.copy()

    def render(self, out: np.ndarray | None = None) -> np.ndarray:
        """The present image, uint8 (size, size, 3), drawn into `out` when that is given."""
        if out is None:
            out = np.empty_like(self._bottom_up)
        if self._context is None:
            raise RuntimeError("This renderer is closed: make another one.")
        self._context.make_current()
        if not np.array_equal(self._terrain, self._model.hfield_data):  # of which OpenGL holds a copy
            self._terrain[:] = self._model.hfield_data
            for field in range(self._model.nhfield):
                mujoco.mjr_uploadHField(self._model, self._drawing, field)
        mujoco.mjr_render(self._rectangle, self._source.update(self._data, self._camera), self._drawing)
        mujoco.mjr_readPixels(self._bottom_up, None, self._rectangle, self._drawing)
        out[:] = self._bottom_up[::-1]
        return out

    def close(self) -> None:
        """Gives the OpenGL contexts back; the renderer cannot draw afterwards."""
        if self._context is not None:
            self._context.make_current()
            self._drawing.free()
            self._context.free()
            self._context = None

    def __del__(self) -> None:
        # MuJoCo's objects free their OpenGL resources in whichever context is current: let it be their own.
        self.close()


def make_drawing_context(model: mujoco.MjModel, size: int) -> mujoco.MjrContext:
    """MuJoCo's renderer in the current OpenGL context, with room for images of a size."""
    room = model.vis.global_
    kept = room.offwidth, room.offheight
    room.offwidth, room.offheight = max(kept[0], size), max(kept[1], size)
    drawing = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_150)
    room.offwidth, room.offheight = kept
    mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, drawing)
    return drawing
