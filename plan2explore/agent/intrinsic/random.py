"""Random exploration: every action as likely as any other, whatever the state."""

from plan2explore.agent.intrinsic.objective import Objective, init_nothing

OBJECTIVE = Objective(init_nothing, loss=None, reward=None, collector="uniform")
