"""Dreamer, the supervised oracle: the first task's policy collects, and its reward trains the world model."""

from plan2explore.agent.intrinsic.objective import Objective, init_nothing

OBJECTIVE = Objective(init_nothing, loss=None, reward=None, collector="task", supervised=True)
