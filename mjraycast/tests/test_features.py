"""What the ray-caster cannot draw has a name."""

import mujoco
import pytest
from dm_control import suite
from suite_worlds import WORLDS, load

from mjraycast import unsupported

CAMERA = "<camera pos='0 0 3'/>"
BALL = "<geom size='.1'/>"
TEXTURES = """
<texture name='flat' type='2d' builtin='checker' width='8' height='8'/>
<texture name='cube' type='cube' builtin='flat' width='8' height='48'/>
<texture name='srgb' type='2d' colorspace='sRGB' builtin='checker' width='8' height='8'/>
<material name='flat' texture='flat'/>
<material name='cube' texture='cube'/>
<material name='srgb' texture='srgb'/>
<material name='mirror' reflectance='.5'/>
<mesh name='tetrahedron' vertex='0 0 0 1 0 0 0 1 0 0 0 1'/>
<mesh name='mapped' vertex='0 0 0 1 0 0 0 1 0 0 0 1' texcoord='0 0 1 0 0 1 1 1' face='0 2 1 0 1 3 0 3 2 1 2 3'/>
<hfield name='hills' nrow='2' ncol='2' size='1 1 1 1'/>
"""


def features(world=BALL, camera=CAMERA, rest=""):
    """What is missing for a model with the given things in its world."""
    xml = f"<mujoco>{rest}<asset>{TEXTURES}</asset><worldbody>{camera}{world}</worldbody></mujoco>"
    return unsupported(mujoco.MjModel.from_xml_string(xml), 0)


def test_simple_models_have_everything():
    assert features() == []
    assert features("<geom type='plane' size='1 1 .1' material='flat'/>") == []
    assert features("<geom size='.1' material='cube'/>") == []
    assert features("<geom type='plane' size='1 1 .1' material='mirror'/>") == []
    assert features("<geom type='plane' size='0 1 .1'/>") == []
    assert features("<geom type='mesh' mesh='tetrahedron' material='flat'/>") == []
    assert features("<light type='point'/>" + BALL) == [], "MuJoCo's OpenGL leaves such a light out, and so do we"
    assert features("<geom type='hfield' hfield='hills' group='3'/>" + BALL) == [], "group 3 is not drawn"


@pytest.mark.parametrize(
    ("world", "name"),
    [
        ("<geom type='hfield' hfield='hills'/>", "height field"),
        ("<geom size='.1' material='flat'/>", "2D texture on a shape that is neither a plane nor a mesh"),
        ("<site size='.1' material='flat'/>", "2D texture on a shape that is neither a plane nor a mesh"),
        ("<geom type='mesh' mesh='mapped' material='cube'/>", "cube texture on a mesh with texture coordinates"),
        ("<geom type='plane' size='1 1 .1' material='cube'/>", "cube texture on a plane"),
        ("<geom type='plane' size='1 1 .1' material='srgb'/>", "sRGB texture"),
        ("<geom type='box' size='1 1 1' material='mirror'/>", "reflecting box"),
    ],
)
def test_things_in_the_world_are_named(world, name):
    assert features(world) == [name]


def test_cameras_and_quality_are_named():
    assert features(camera="<camera pos='0 0 3' projection='orthographic'/>") == ["orthographic camera"]
    sensor = "<camera pos='0 0 3' sensorsize='.1 .1' resolution='8 8' focal='.1 .1'/>"
    assert features(camera=sensor) == ["camera with a sensor size"]
    assert features(rest="<visual><quality offsamples='8'/></visual>") == [], "four are drawn, as Mesa does"
    assert features(rest="<visual><quality offsamples='0'/></visual>") == ["0 samples a pixel (not 4)"]
    xml = f"<mujoco><worldbody>{CAMERA}<camera projection='orthographic'/>{BALL}</worldbody></mujoco>"
    model = mujoco.MjModel.from_xml_string(xml)
    assert unsupported(model, 0) == []
    assert unsupported(model, 1) == ["orthographic camera"]


def test_skin_and_flex_are_named():
    flex = "<flexcomp name='cloth' type='grid' dim='2' count='3 3 1' spacing='.1 .1 .1' radius='.01'/>"
    assert "flex" in features(flex)
    assert "skin" in unsupported(suite.load("dog", "run").physics.model.ptr)


def test_of_the_suite_only_dog_and_quadruped_escape_need_opengl():
    assert unsupported(suite.load("quadruped", "escape").physics.model.ptr) == ["height field"]
    for world in WORLDS:
        assert unsupported(load(world).physics.model.ptr, world.camera) == []
