"""MuJoCo's abstract scene, as one camera sees it, and its memory as numpy arrays.

`mjv_updateScene` needs no OpenGL. It leaves arrays of C structures, which numpy views without a copy; their
layout is taken from MuJoCo's own description of its structures and checked against what its bindings read.
"""

import ctypes
from typing import Any, TypeAlias

import mujoco
import numpy as np
from mujoco.introspect import ast_nodes, structs

Camera: TypeAlias = str | int | mujoco.MjvCamera

FREE_CAMERA = -1
ALL_CATEGORIES = int(mujoco.mjtCatBit.mjCAT_ALL)

GEOM_FIELDS = (
    "type", "dataid", "category", "matid", "texid", "texuniform", "size", "pos", "mat", "rgba", "emission", "specular",
    "shininess", "reflectance", "texrepeat",
)  # fmt: skip
LIGHT_FIELDS = (
    "type", "pos", "dir", "attenuation", "cutoff", "exponent", "ambient", "diffuse", "specular", "castshadow",
)  # fmt: skip
CAMERA_FIELDS = ("pos", "forward", "up", "frustum_bottom", "frustum_top", "frustum_near", "frustum_far")

C_TYPES = {"int": "i4", "float": "f4", "mjtByte": "u1", "char": "i1", "double": "f8"}


class SceneLayoutError(RuntimeError):
    """MuJoCo keeps its scene in memory in another way than this renderer can read."""

    def __init__(self, struct: str, detail: str):
        super().__init__(
            f"MuJoCo {mujoco.__version__} keeps {struct} in memory in a way that the ray-caster cannot read "
            f"({detail}): draw with OpenGL, or install a MuJoCo that mjraycast was tested with."
        )


def layout(struct: str) -> np.dtype:
    """The numpy type of one of MuJoCo's C structures."""
    names, formats = [], []
    for field in structs.STRUCTS[struct].fields:
        kind, shape = field.type, ()
        if isinstance(kind, ast_nodes.ArrayType):
            kind, shape = kind.inner_type, tuple(kind.extents)
        if not isinstance(kind, ast_nodes.ValueType) or kind.name not in C_TYPES:
            raise SceneLayoutError(struct, f"field {field.name} has the unknown type {field.type}")
        names.append(field.name)
        formats.append((C_TYPES[kind.name], shape))
    return np.dtype({"names": names, "formats": formats}, align=True)


def address(element: Any) -> int:
    """Where a structure's field `pos` lies in memory."""
    return element.pos.__array_interface__["data"][0]


def view(struct: str, elements: Any, fields: tuple[str, ...]) -> np.ndarray:
    """A structured view, without a copy, of an array in MuJoCo's memory, of which `fields` will be read."""
    kind = layout(struct)
    missing = [name for name in fields if name not in (kind.names or ())]
    if missing:
        raise SceneLayoutError(struct, f"it has no field {missing[0]}")
    if len(elements) > 1 and address(elements[1]) - address(elements[0]) != kind.itemsize:
        raise SceneLayoutError(struct, f"it is not {kind.itemsize} bytes long")
    start = address(elements[0]) - dict(kind.fields or {})["pos"][1]
    memory = (ctypes.c_char * (kind.itemsize * len(elements))).from_address(start)
    array = np.frombuffer(memoryview(memory), dtype=kind)
    check(struct, array, elements, fields)
    return array


def check(struct: str, array: np.ndarray, elements: Any, fields: tuple[str, ...]) -> None:
    """Reads the first elements through the view and through MuJoCo's bindings; they must agree."""
    for index in range(min(len(elements), 4)):
        for name in fields:
            ours, theirs = array[index][name], np.asarray(getattr(elements[index], name))
            if not np.array_equal(np.ravel(ours), np.ravel(theirs), equal_nan=True):
                raise SceneLayoutError(struct, f"field {name} is {theirs} and reads {ours}")


def most_geoms(model: mujoco.MjModel) -> int:
    """Room for everything that a scene can list without debugging aids: geoms, sites, pieces of tendons."""
    return model.ngeom + model.nsite + 2 * model.nwrap + model.ntendon + model.nskin + model.nflex + 100


def scene_options() -> mujoco.MjvOption:
    """MuJoCo's defaults without rangefinders' rays, as dm_control draws."""
    options = mujoco.MjvOption()
    options.flags[mujoco.mjtVisFlag.mjVIS_RANGEFINDER] = False
    return options


def find_camera(model: mujoco.MjModel, camera: Camera) -> mujoco.MjvCamera:
    """The camera that is meant: by name or number, MuJoCo's default free camera for -1, or as it is given."""
    if isinstance(camera, mujoco.MjvCamera):
        return camera
    chosen = mujoco.MjvCamera()
    if camera == FREE_CAMERA:
        mujoco.mjv_defaultFreeCamera(model, chosen)
        return chosen
    names = [model.camera(number).name for number in range(model.ncam)]
    if camera not in names and camera not in range(model.ncam):
        listed = ", ".join(f"{number} ({name})" if name else str(number) for number, name in enumerate(names))
        raise ValueError(f"Camera {camera!r} is not in the model: choose -1 (free){', ' if listed else ''}{listed}.")
    chosen.type = mujoco.mjtCamera.mjCAMERA_FIXED
    chosen.fixedcamid = names.index(camera) if isinstance(camera, str) else camera
    return chosen


def field_of_view(model: mujoco.MjModel, camera: mujoco.MjvCamera) -> float:
    """A camera's vertical angle in degrees."""
    is_fixed = camera.type == mujoco.mjtCamera.mjCAMERA_FIXED
    return float(model.cam_fovy[camera.fixedcamid] if is_fixed else model.vis.global_.fovy)


class Scene:
    """What there is to draw of a model. MuJoCo reads model, data and camera anew each time: no change is missed."""

    def __init__(self, model: mujoco.MjModel):
        self.scene = mujoco.MjvScene(model, most_geoms(model))
        self.options = scene_options()
        self._model = model
        self._perturb = mujoco.MjvPerturb()
        data = mujoco.MjData(model)
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_camlight(model, data)
        self.update(data, find_camera(model, FREE_CAMERA))  # something to compare memory with

    def update(self, data: mujoco.MjData, camera: mujoco.MjvCamera) -> mujoco.MjvScene:
        """The scene as it is now."""
        mujoco.mjv_updateScene(self._model, data, self.options, self._perturb, camera, ALL_CATEGORIES, self.scene)
        return self.scene
