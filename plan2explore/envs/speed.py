"""dm_control's rewards without the cost per call of NumPy and of names, number for number. Replaced are

- `tolerance`, the suite's reward shape, by plain floats where it is given single numbers and short arrays;
- cartpole's smooth reward, whose means and minima over one number took most of its time;
- named indexing (`physics.named.data.xpos["torso", "z"]`), whose names are looked up once for each field.

What is not of the usual kind goes to dm_control every time. docs/decisions.md has the measurements.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from dm_control.mujoco import index
from dm_control.suite import cartpole
from dm_control.utils import rewards

FEW = 8  # numbers in an array for which a loop is quicker than NumPy
MOST = 10_000  # remembered places: far more than the suite has
FLOAT64 = np.dtype(np.float64)
own_tolerance = rewards.tolerance
own_cartpole = cartpole.Balance._get_reward
own_convert_key = index.FieldIndexer._convert_key
_known: dict[Any, Any] = {}  # where names lead in a field


@functools.lru_cache(1000)  # targets of many sizes
def _shape(
    bounds: tuple[float, float], margin: float, sigmoid: str, value_at_margin: float
) -> Callable[[float], float] | None:
    """The shape as a function of a single number; None for what is left to dm_control."""
    if not (bounds[0] <= bounds[1] and margin >= 0 and 0 <= value_at_margin < 1):
        return None
    falls = _falls(sigmoid, value_at_margin)
    lower, upper = float(bounds[0]), float(bounds[1])
    if falls is None:
        return None
    if margin == 0:
        return lambda x: 1.0 if lower <= x <= upper else 0.0
    return lambda x: 1.0 if lower <= x <= upper else falls((lower - x if x < lower else x - upper) / margin)


def _falls(sigmoid: str, value: float) -> Callable[[float], float] | None:
    """How the shape falls with the distance: 1 at distance 0, `value` at distance 1."""
    if sigmoid == "gaussian" and value > 0:
        scale = math.sqrt(-2 * math.log(value))
        return lambda distance: math.exp(-0.5 * (distance * scale) ** 2)
    if sigmoid == "linear":
        scale = 1 - value
        return lambda distance: 1 - distance * scale if distance * scale < 1 else 0.0
    if sigmoid == "quadratic":
        scale = math.sqrt(1 - value)
        return lambda distance: 1 - (distance * scale) ** 2 if distance * scale < 1 else 0.0
    return None


def tolerance(
    x: Any,
    bounds: tuple[float, float] = (0.0, 0.0),
    margin: float = 0.0,
    sigmoid: str = "gaussian",
    value_at_margin: float = 0.1,
) -> Any:
    """1 inside the bounds, falling to `value_at_margin` at a distance of `margin`: as dm_control defines it."""
    try:
        shape = _shape(bounds, margin, sigmoid, value_at_margin)
    except (TypeError, ValueError):  # bounds in a list or an array
        shape = None
    if shape is not None:
        if isinstance(x, float):  # np.float64 is one; Python's own are quicker
            return shape(float(x))
        if type(x) is np.ndarray and x.dtype is FLOAT64 and 0 < x.size <= FEW:
            values = np.array([shape(number) for number in x.ravel().tolist()])
            return values if x.ndim == 1 else values.reshape(x.shape)
    return own_tolerance(x, bounds, margin, sigmoid, value_at_margin)


def cartpole_reward(task: Any, physics: Any, sparse: bool) -> Any:
    """What `Balance._get_reward` returns."""
    if sparse:
        return own_cartpole(task, physics, sparse)
    cosines, controls, speeds = physics.pole_angle_cosine(), physics.control(), physics.angular_vel()
    if not len(cosines) == len(controls) == len(speeds) == 1:  # several poles
        return own_cartpole(task, physics, sparse)
    upright = (cosines.item() + 1) / 2
    centered = (1 + tolerance(physics.cart_position(), margin=2)) / 2
    still = tolerance(controls.item(), margin=1, value_at_margin=0, sigmoid="quadratic")
    slow = tolerance(speeds.item(), margin=5)
    return upright * ((4 + still) / 5) * ((1 + slow) / 2) * centered


def _names(item: Any) -> Any:
    """Names in a form that a dictionary takes; None for anything else."""
    if type(item) is str:
        return item
    return tuple(item) if type(item) is list and {*map(type, item)} == {str} else None


def get_item(field: Any, key: Any) -> Any:
    """`field[key]`."""
    names = tuple([_names(item) for item in key]) if type(key) is tuple else (_names(key),)
    if None in names:
        return field._field[own_convert_key(field, key)]
    place = _known.get((field, names))
    if place is None:
        if len(_known) >= MOST:
            _known.clear()
        place = _known[field, names] = own_convert_key(field, key)
    return field._field[place]


def install() -> None:
    """Makes all rewards of the process use these."""
    rewards.tolerance = tolerance
    cartpole.Balance._get_reward = cartpole_reward
    index.FieldIndexer.__getitem__ = get_item
