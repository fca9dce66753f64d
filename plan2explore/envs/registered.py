"""What this process has been given by the user's code, and its worker processes must know too.

That is: environments registered with Gymnasium, and functions that start the episodes of a model file. They travel by
value, so they may be defined in a script or a notebook, and are unpickled only where they are used.
"""

import contextlib
import importlib
import os
import pickle
import sys
from collections.abc import Callable, Sequence
from typing import Any

import cloudpickle
import gymnasium

functions: dict[str, Callable[..., Any]] = {}
"""By `module:name`."""
_received: dict[str, bytes] = {}


def registered() -> dict[str, bytes]:
    """Everything to send to another process."""
    found: dict[str, Any] = {
        identity: spec
        for identity, spec in gymnasium.registry.items()
        if not str(spec.entry_point).startswith("gymnasium.envs.")
    }
    pickled = dict(_received)
    for key, value in (found | functions).items():
        with contextlib.suppress(Exception):  # what cannot be sent can still be used here
            pickled[key] = cloudpickle.dumps(value)
    return pickled


def receive(pickled: dict[str, bytes]) -> None:
    """What another process sent."""
    _received.update(pickled)


def received_spec(identity: str) -> gymnasium.envs.registration.EnvSpec | None:
    """An environment that another process has registered with Gymnasium, and this one has not."""
    if identity in gymnasium.registry or identity not in _received:
        return None
    return pickle.loads(_received[identity])


def name_function(function: Callable[..., Any]) -> str:
    """The name by which `find_function` finds it, here and in worker processes."""
    name = f"{function.__module__}:{function.__qualname__}"
    functions[name] = function
    return name


def find_function(name: str) -> Callable[..., Any]:
    """A function given as `module:function`."""
    if name in functions:
        return functions[name]
    if name in _received:
        return pickle.loads(_received[name])
    module, _, own = name.partition(":")
    if not module or not own:
        raise ValueError(f"Write a function as module:function; got {name!r}")
    try:
        return getattr(importlib.import_module(module), own)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"There is no function {name!r}: {error}") from None


def import_modules(names: Sequence[str]) -> None:
    """Imports what the user names on the command line; modules of the current folder are found too."""
    here = os.getcwd()
    if names and here not in sys.path:
        sys.path.append(here)  # last: a json.py there is not Python's
    for name in names:
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:
            raise ValueError(f"--import {name}: {type(error).__name__}: {error}") from error
