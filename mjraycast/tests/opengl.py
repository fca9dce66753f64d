"""MuJoCo's own renderer with the ray-caster's interface, and OSMesa in a process of its own."""

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest

from mjraycast.scene import Camera, find_camera, scene_options

HERE = Path(__file__).parent


class OpenGLRenderer:
    """Draws with `mujoco.Renderer`, in whatever OpenGL MUJOCO_GL chooses."""

    def __init__(self, model: mujoco.MjModel, width: int, height: int):
        self._model = model
        self._inner = mujoco.Renderer(model, height, width)

    def render(self, data: mujoco.MjData, camera: Camera = -1) -> np.ndarray:
        """The present picture."""
        self._inner.update_scene(data, find_camera(self._model, camera), scene_options())
        return self._inner.render()


def run_with_osmesa(code: str, *arguments: Any) -> None:
    """Runs a script in a process of its own, since a process can use one OpenGL only."""
    environment = {**os.environ, "MUJOCO_GL": "osmesa", "PYOPENGL_PLATFORM": "osmesa"}
    environment["PYTHONPATH"] = os.pathsep.join((str(HERE), str(HERE.parents[1])))
    command = [sys.executable, "-c", code, *map(str, arguments)]
    subprocess.run(command, env=environment, check=True, timeout=1800, capture_output=True)


@functools.cache
def osmesa_works() -> bool:
    """Whether MuJoCo can draw with OSMesa here."""
    try:
        run_with_osmesa("import mujoco; mujoco.Renderer(mujoco.MjModel.from_xml_string('<mujoco/>'), 8, 8).render()")
    except subprocess.SubprocessError:
        return False
    return True


def need_osmesa() -> None:
    """Skips a test that compares with OSMesa where there is none."""
    if not osmesa_works():
        pytest.skip("OSMesa does not work here (Debian: apt-get install libosmesa6)")
