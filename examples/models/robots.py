"""Rewards for the models beside this file, and a start for the arm's episodes: functions of dm_control's `physics`.

plan2explore explore mjcf:examples/models/arm.xml --preset tiny --obs proprio --steps 5e4 --out runs/arm
plan2explore adapt runs/arm --reward examples/models/robots.py:touch
"""

import numpy as np


def touch(physics):
    """arm.xml: 1 where the tip of the hand is at the block."""
    distance = np.linalg.norm(physics.named.data.site_xpos["tip"] - physics.named.data.xpos["block"])
    return float(np.exp(-5 * distance))


def lift(physics):
    """arm.xml: the block's height above the floor, in tenths of a metre."""
    return 10 * float(physics.named.data.xpos["block", "z"])


def wander(physics):
    """rover.xml: metres from where the episode began."""
    return float(np.linalg.norm(physics.named.data.xpos["rover", :2]))


def spin(physics):
    """rover.xml: turns to the left, 1 at one radian a second."""
    return float(np.clip(physics.named.data.sensordata["gyro"][2], 0, 1))


def ring(physics):
    """cart.xml: 1 while the bob touches the bumper."""
    return float(physics.named.data.sensordata["bumper"].item() > 0)


def scatter(physics, rng):
    """Starts an episode of arm.xml with the block anywhere in front of the arm."""
    angle, distance = rng.uniform(-1, 1), rng.uniform(0.3, 0.6)
    physics.named.data.qpos["block"][:2] = distance * np.cos(angle), distance * np.sin(angle)
