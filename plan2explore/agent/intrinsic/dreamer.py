"""Dreamer, the supervised oracle: the first task's policy collects, and its reward trains the world model."""

from plan2explore.agent.intrinsic.objective import Objective
from plan2explore.agent.intrinsic.random import init

OBJECTIVE = Objective(init, loss=None, reward=None, collector="task", supervised=True)
