"""The smooth reward of dm_control's cartpole with one pole, without NumPy's means and minima over one number.

These took most of the time of this reward, the slowest of the suite's against the little that its world takes to step.
"""

from typing import Any

from dm_control.suite import cartpole
from dm_control.utils import rewards

_original = cartpole.Balance._get_reward


def get_reward(task: Any, physics: Any, sparse: bool) -> Any:
    """What `Balance._get_reward` returns, number for number."""
    if sparse:
        return _original(task, physics, sparse)
    cosines, controls, speeds = physics.pole_angle_cosine(), physics.control(), physics.angular_vel()
    if not len(cosines) == len(controls) == len(speeds) == 1:  # several poles
        return _original(task, physics, sparse)
    upright = (cosines.item() + 1) / 2
    centered = (1 + rewards.tolerance(physics.cart_position(), margin=2)) / 2
    still = rewards.tolerance(controls.item(), margin=1, value_at_margin=0, sigmoid="quadratic")
    slow = rewards.tolerance(speeds.item(), margin=5)
    return upright * ((4 + still) / 5) * ((1 + slow) / 2) * centered


def install() -> None:
    """Makes the suite's tasks use it."""
    cartpole.Balance._get_reward = get_reward
