"""MuJoCo's own renderer: dm_control's images, by whichever backend works, and no crash where none does."""

import os
import subprocess

import numpy as np
import pytest
from dm_control import suite
from patience import PATIENCE

from plan2explore.envs.render import gl, make_renderer
from plan2explore.envs.worker import python_command

COMPARE_WITH_DM_CONTROL = """
import numpy as np
from dm_control import suite
from plan2explore.envs.render import make_renderer
worlds = (("cheetah", "run", 0), ("quadruped", "walk", 2), ("dog", "run", 0), ("quadruped", "escape", 0))
for domain, task, camera in worlds:
    env = suite.load(domain, task, task_kwargs={"random": 1})
    ours = make_renderer(env.physics.model.ptr, env.physics.data.ptr, camera, 64, "gl")
    assert ours.name == "gl-osmesa", ours.name
    for _ in range(2):
        env.reset()
        env.step(env.action_spec().maximum)
        np.testing.assert_array_equal(ours.render(), env.physics.render(64, 64, camera_id=camera))
print("the same")
"""

FORGET_A_RENDERER = """
import numpy as np
from dm_control import suite
from plan2explore.envs.render import make_renderer
physics = suite.load("cheetah", "run").physics
forgotten = make_renderer(physics.model.ptr, physics.data.ptr, 0, 64, "gl")
forgotten.render()
kept = make_renderer(physics.model.ptr, physics.data.ptr, 0, 84, "gl")
before = kept.render()
del forgotten
np.testing.assert_array_equal(kept.render(), before)
kept.close()
kept.close()
print(kept.name)
"""


def run(code, backend):
    """What a script prints in a process of its own, with a backend chosen by the user."""
    if not gl.works(backend):
        pytest.skip(f"{backend} does not work here ({gl.HOW_TO_GET_GL})")
    environment = {key: value for key, value in os.environ.items() if key != "PYOPENGL_PLATFORM"} | {"MUJOCO_GL": backend}
    done = subprocess.run(
        python_command(code), env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_images_are_those_of_dm_control():
    assert run(COMPARE_WITH_DM_CONTROL, "osmesa") == "the same"


@pytest.mark.parametrize("backend", gl.BACKENDS)
def test_the_users_backend_is_used_and_renderers_can_be_forgotten(backend):
    assert run(FORGET_A_RENDERER, backend) == f"gl-{backend}"


def test_without_a_choice_the_first_that_works_is_used(monkeypatch):
    monkeypatch.setattr(gl, "works", lambda backend: backend == "osmesa")
    for name in ("MUJOCO_GL", "PYOPENGL_PLATFORM"):
        monkeypatch.delenv(name, raising=False)
    assert gl.choose_backend() == "osmesa"


def test_a_broken_opengl_is_found_without_harm(monkeypatch):
    for crash in ("raise ImportError", "import os; os.abort()", "import time; time.sleep(60)"):
        monkeypatch.setattr(gl, "PROBE", crash)
        monkeypatch.setattr(gl, "PROBE_SECONDS", 0.5)
        gl.works.cache_clear()
        assert gl.available_backends() == []
        with pytest.raises(gl.GLUnavailableError, match=r"tried .*libosmesa6.*libegl1"):
            gl.choose_backend()
    gl.works.cache_clear()


@pytest.mark.parametrize("variable", ["MUJOCO_GL", "PYOPENGL_PLATFORM"])
def test_a_chosen_backend_is_the_only_one(monkeypatch, variable):
    for name in ("MUJOCO_GL", "PYOPENGL_PLATFORM"):
        monkeypatch.delenv(name, raising=False)
    assert gl.wanted_backends() == gl.BACKENDS
    monkeypatch.setenv(variable, "OSMesa")
    assert gl.wanted_backends() == ("osmesa",)
    monkeypatch.setenv(variable, "glfw")
    assert gl.wanted_backends() == gl.BACKENDS


def test_large_images_have_room():
    if not any(gl.works(backend) for backend in gl.wanted_backends()):
        pytest.skip("no OpenGL works here (Debian: apt-get install libosmesa6)")
    physics = suite.load("cheetah", "run").physics
    room = physics.model.ptr.vis.global_.offheight
    renderer = make_renderer(physics.model.ptr, physics.data.ptr, 0, room + 20, "gl")
    out = np.zeros((room + 20, room + 20, 3), np.uint8)
    assert renderer.render(out) is out
    assert out[-1].any()
    assert physics.model.ptr.vis.global_.offheight == room
    renderer.close()
    with pytest.raises(RuntimeError, match="closed"):
        renderer.render()
