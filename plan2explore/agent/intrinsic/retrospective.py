"""Retrospective disagreement: Plan2Explore without planning, with the intrinsic reward of the next step only.

There is no critic behind the one step, so the actor learns from the disagreement's gradient or not at all.
"""

from dataclasses import replace

from plan2explore.agent.intrinsic import plan2explore

OBJECTIVE = replace(plan2explore.OBJECTIVE, horizon=1, bootstrapped=False)
