"""What a model may ask for that the ray-caster cannot draw: named at the start, never drawn wrongly."""

from collections.abc import Iterator

import mujoco
import numpy as np

from .scene import Camera, find_camera
from .shapes import BOX, MESH, PLANE, SUPPORTED
from .tables import SAMPLES
from .textures import CUBE, FLAT

RGB_ROLE = int(mujoco.mjtTextureRole.mjTEXROLE_RGB)
PERSPECTIVE = int(mujoco.mjtProjection.mjPROJ_PERSPECTIVE)
SRGB = int(mujoco.mjtColorSpace.mjCOLORSPACE_SRGB)
RGB_CHANNELS = 3
SHAPE_NAMES = {
    int(mujoco.mjtGeom.mjGEOM_HFIELD): "height field",
    int(mujoco.mjtGeom.mjGEOM_SDF): "signed distance field",
}


def shape_name(kind: int) -> str:
    """A shape in words."""
    return SHAPE_NAMES.get(kind) or mujoco.mjtGeom(kind).name.removeprefix("mjGEOM_").lower()


def visible_geoms(model: mujoco.MjModel) -> np.ndarray:
    """Geoms of the groups that MuJoCo draws by default."""
    drawn = mujoco.MjvOption().geomgroup
    return np.flatnonzero(drawn[np.clip(model.geom_group, 0, len(drawn) - 1)])


def texture_features(model: mujoco.MjModel, kind: int, material: int) -> Iterator[str]:
    """What is unsupported in the look of a shape with a material."""
    if material < 0:
        return
    if kind == BOX and model.mat_reflectance[material] > 0:
        yield "reflecting box"
    texture = model.mat_texid[material][RGB_ROLE]
    if texture < 0:
        return
    form = model.tex_type[texture]
    if form == FLAT and kind not in (PLANE, MESH):
        yield "2D texture on a shape that is neither a plane nor a mesh"
    if form == CUBE and kind == PLANE:
        yield "cube texture on a plane"
    if form == FLAT and model.tex_colorspace[texture] == SRGB:
        yield "sRGB texture"
    if model.tex_nchannel[texture] != RGB_CHANNELS:
        yield f"texture with {model.tex_nchannel[texture]} channels"


def has_cube_texture(model: mujoco.MjModel, material: int) -> bool:
    """Whether a material has a cube texture."""
    texture = model.mat_texid[material][RGB_ROLE] if material >= 0 else -1
    return bool(texture >= 0 and model.tex_type[texture] == CUBE)


def geom_features(model: mujoco.MjModel) -> Iterator[str]:
    """What is unsupported among geoms and sites."""
    for g in visible_geoms(model):
        kind = int(model.geom_type[g])
        if kind not in SUPPORTED:
            yield shape_name(kind)
        yield from texture_features(model, kind, model.geom_matid[g])
        has_coordinates = kind == MESH and model.mesh_texcoordadr[model.geom_dataid[g]] >= 0
        if has_coordinates and has_cube_texture(model, model.geom_matid[g]):
            yield "cube texture on a mesh with texture coordinates"
    for site in range(model.nsite):
        yield from texture_features(model, int(model.site_type[site]), model.site_matid[site])
    for tendon in range(model.ntendon):
        yield from texture_features(model, int(mujoco.mjtGeom.mjGEOM_CAPSULE), model.tendon_matid[tendon])


def camera_features(model: mujoco.MjModel, camera: mujoco.MjvCamera) -> Iterator[str]:
    """What is unsupported about a camera."""
    if camera.type != mujoco.mjtCamera.mjCAMERA_FIXED:
        if camera.orthographic:
            yield "orthographic camera"
        return
    if model.cam_projection[camera.fixedcamid] != PERSPECTIVE:
        yield "orthographic camera"
    if np.any(model.cam_sensorsize[camera.fixedcamid]):
        yield "camera with a sensor size"


def model_features(model: mujoco.MjModel) -> Iterator[str]:
    """What is unsupported about a model whichever camera looks at it, as often as it occurs."""
    yield from geom_features(model)
    if model.nskin:
        yield "skin"
    if model.nflex:
        yield "flex"
    if model.vis.quality.offsamples < SAMPLES:
        yield f"{model.vis.quality.offsamples} samples a pixel (not {SAMPLES})"


def unsupported(model: mujoco.MjModel, camera: Camera | None = None) -> list[str]:
    """Names of what the ray-caster cannot draw of a model, seen by a camera if one is given; empty if it can draw all."""
    missing = set(model_features(model))
    if camera is not None:
        missing.update(camera_features(model, find_camera(model, camera)))
    return sorted(missing)


class UnsupportedModelError(RuntimeError):
    """A model or a camera that the ray-caster cannot draw."""

    def __init__(self, missing: list[str]):
        super().__init__(f"The ray-caster cannot draw this model ({', '.join(missing)}): it needs OpenGL.")


def refuse_unsupported(model: mujoco.MjModel, camera: mujoco.MjvCamera | None = None) -> None:
    """Raises if the ray-caster cannot draw all of a model, or, where one is given, a camera."""
    missing = unsupported(model) if camera is None else sorted(set(camera_features(model, camera)))
    if missing:
        raise UnsupportedModelError(missing)
