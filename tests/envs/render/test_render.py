"""Choosing a renderer."""

import functools

import mujoco
import pytest
from dm_control import suite

from mjraycast import scene
from plan2explore.envs import render
from plan2explore.envs.render import gl


@functools.cache
def arguments(domain="cheetah", task="run"):
    physics = suite.load(domain, task).physics
    return physics.model.ptr, physics.data.ptr


@pytest.fixture
def without_gl(monkeypatch):
    monkeypatch.setattr(gl, "works", lambda backend: False)


def test_auto_is_raycast_where_the_model_is_supported(without_gl):
    assert render.make_renderer(*arguments(), 0, 64).name == "raycast"


@pytest.mark.parametrize(("world", "lacking"), [(("dog", "run"), "skin"), (("quadruped", "escape"), "height field")])
def test_auto_is_gl_where_it_is_not_and_that_is_said_once(world, lacking, monkeypatch, capsys):
    monkeypatch.delenv(render.SAID, raising=False)
    if not any(gl.works(backend) for backend in gl.wanted_backends()):
        pytest.skip("no OpenGL works here (Debian: apt-get install libosmesa6)")
    renderer = render.make_renderer(*arguments(*world), 0, 64)
    assert renderer.name.startswith("gl-")
    assert renderer.render().std() > 10
    renderer.close()
    render.make_renderer(*arguments(*world), 0, 64).close()
    said = f"The ray-caster cannot draw this model ({lacking}): it needs OpenGL. Looking for one that works here"
    assert capsys.readouterr().err.count(said) == 1


def test_without_gl_the_error_says_what_is_missing_and_how_to_get_it(without_gl):
    with pytest.raises(RuntimeError, match=r"\(skin\).*libosmesa6"):
        render.make_renderer(*arguments("dog", "run"), 0, 64)
    with pytest.raises(RuntimeError, match=r"\(height field\).*libosmesa6"):
        render.make_renderer(*arguments("quadruped", "escape"), 0, 64)
    with pytest.raises(gl.GLUnavailableError, match="libosmesa6"):
        render.make_renderer(*arguments(), 0, 64, "gl")
    with pytest.raises(render.UnsupportedModelError, match="skin"):
        render.make_renderer(*arguments("dog", "run"), 0, 64, "raycast")


def test_another_layout_of_mujocos_scene_is_no_reason_to_give_up(monkeypatch):
    def unknown(struct):
        raise scene.SceneLayoutError(struct, "it is new")

    class Stub:
        name = "gl-stub"

    monkeypatch.setattr(scene, "layout", unknown)
    monkeypatch.setattr(render, "GLRenderer", lambda *_: Stub())
    assert render.make_renderer(*arguments(), 0, 64, "auto").name == "gl-stub"
    with pytest.raises(scene.SceneLayoutError, match=f"MuJoCo {mujoco.__version__}.*it is new"):
        render.make_renderer(*arguments(), 0, 64, "raycast")


def test_an_unknown_camera_is_answered_with_what_there_is():
    with pytest.raises(ValueError, match=r"Camera 2 is not in the model: choose -1 \(free\), 0 \(side\), 1 \(back\)"):
        render.make_renderer(*arguments(), 2, 64)
