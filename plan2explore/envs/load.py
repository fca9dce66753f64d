"""Worlds by their names, as simulations."""

import inspect

from . import mjcf, suite
from .names import MJCF, split_name, split_world
from .world import World


def load_world(name: str) -> World:
    """The simulation of a world of the suite, a maze, or a model file; without a task its reward is always 0."""
    if not name.startswith(MJCF):
        return suite.load(*split_name(name))
    path, arguments = split_world(name)
    known = tuple(inspect.signature(mjcf.load).parameters)[1:]
    unknown = sorted(set(arguments) - set(known))
    if unknown:
        raise ValueError(f"The world of a model file takes no argument {unknown[0]!r}; it takes {', '.join(known)}")
    return mjcf.load(path.removeprefix(MJCF), **arguments)
