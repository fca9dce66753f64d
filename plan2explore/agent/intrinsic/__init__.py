"""Exploration objectives by name. To add one: an `Objective` and a call of `register`, docs/objectives.md."""

from plan2explore.agent.intrinsic import curiosity, dreamer, max, plan2explore, random, retrospective
from plan2explore.agent.intrinsic.objective import Experience, Nothing, Objective, Sizes, Transition

OBJECTIVES: dict[str, Objective] = {
    "plan2explore": plan2explore.OBJECTIVE,
    "retrospective": retrospective.OBJECTIVE,
    "max": max.OBJECTIVE,
    "curiosity": curiosity.OBJECTIVE,
    "random": random.OBJECTIVE,
    "dreamer": dreamer.OBJECTIVE,
}


def register(name: str, objective: Objective) -> None:
    """Makes an objective available as `intrinsic.objective=NAME`."""
    if OBJECTIVES.get(name, objective) is not objective:
        raise ValueError(f"There is an objective {name!r} already: choose another name.")
    OBJECTIVES[name] = objective


def find_objective(name: str) -> Objective:
    """The objective of this name."""
    if name not in OBJECTIVES:
        raise ValueError(f"There is no objective {name!r}: choose one of {', '.join(OBJECTIVES)}, or register your own.")
    return OBJECTIVES[name]


__all__ = ["OBJECTIVES", "Experience", "Nothing", "Objective", "Sizes", "Transition", "find_objective", "register"]
