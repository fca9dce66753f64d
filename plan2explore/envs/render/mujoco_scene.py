"""MuJoCo's abstract scene of one camera, made without OpenGL: what both renderers draw from."""

import mujoco

ALL_CATEGORIES = int(mujoco.mjtCatBit.mjCAT_ALL)


def most_geoms(model: mujoco.MjModel) -> int:
    """Room for everything that a scene can list without debugging aids: geoms, sites, pieces of tendons."""
    return model.ngeom + model.nsite + 2 * model.nwrap + model.ntendon + model.nskin + model.nflex + 100


def scene_options() -> mujoco.MjvOption:
    """MuJoCo's defaults without rangefinders' rays, as dm_control draws."""
    options = mujoco.MjvOption()
    options.flags[mujoco.mjtVisFlag.mjVIS_RANGEFINDER] = False
    return options


def fixed_camera(camera: int) -> mujoco.MjvCamera:
    """One of the model's own cameras."""
    chosen = mujoco.MjvCamera()
    chosen.type = mujoco.mjtCamera.mjCAMERA_FIXED
    chosen.fixedcamid = camera
    return chosen


class SceneSource:
    """Keeps a scene up to date with a model and its data. MuJoCo reads both anew each time: nothing is remembered."""

    def __init__(self, model: mujoco.MjModel, data: mujoco.MjData, camera: int):
        self.scene = mujoco.MjvScene(model, most_geoms(model))
        self._arguments = (
            model,
            data,
            scene_options(),
            mujoco.MjvPerturb(),
            fixed_camera(camera),
            ALL_CATEGORIES,
            self.scene,
        )
        self.update()

    def update(self) -> mujoco.MjvScene:
        """The scene as it is now."""
        mujoco.mjv_updateScene(*self._arguments)
        return self.scene
