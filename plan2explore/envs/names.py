"""Names of worlds and tasks: `walker_walk`, the bare domain `walker`, `gymnasium:Pendulum-v1?g=9.8`, `mjcf:robot.xml`."""

import ast
import difflib
import re
import sys
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .registered import functions, name_function
from .suite import ALIASES, tasks_of_domains

GYMNASIUM = "gymnasium:"
MJCF = "mjcf:"
DATASET = "dataset:"
READABLE = "[](){},:/'\" "  # what an argument's value is written with in a name, beside letters and digits
WORDS = {"true": True, "false": False, "none": None, "null": None}

PAPER_TASKS = (
    "acrobot_swingup", "cartpole_balance", "cartpole_balance_sparse", "cartpole_swingup", "cartpole_swingup_sparse",
    "cheetah_run", "cup_catch", "finger_spin", "finger_turn_easy", "finger_turn_hard", "hopper_hop", "hopper_stand",
    "pendulum_swingup", "quadruped_run", "quadruped_walk", "reacher_easy", "reacher_hard", "walker_run",
    "walker_stand", "walker_walk",
)  # fmt: skip
EXTRA_TASKS = ("cheetah_run_backward", "cheetah_flip_forward", "cheetah_flip_backward")


class UnknownName(ValueError):
    """A name that is no world and no task."""


def list_tasks(which: str = "all") -> list[str]:
    """Names that `make` takes: `paper` (its 20 tasks), `extra` (its 3 cheetah tasks), `domains` or `all` tasks."""
    domains = tasks_of_domains()
    every = [f"{domain}_{task}" for domain, tasks in domains.items() for task in tasks]
    choices = {"paper": PAPER_TASKS, "extra": EXTRA_TASKS, "domains": domains, "all": [*every, "cup_catch"]}
    if which not in choices:
        raise ValueError(f"list_tasks knows {', '.join(choices)}; got {which!r}")
    return sorted(choices[which])


def split_name(name: str) -> tuple[str, str | None]:
    """(domain, task) of a suite name in the suite's own words; the task of a bare domain is None."""
    domains = tasks_of_domains()
    for domain in [*domains, *ALIASES]:
        actual = ALIASES.get(domain, domain)
        if name == domain:
            return actual, None
        if name.startswith(domain + "_") and name[len(domain) + 1 :] in domains[actual]:
            return actual, name[len(domain) + 1 :]
    names = [*list_tasks("all"), *list_tasks("domains"), *ALIASES]
    near = difflib.get_close_matches(str(name), names, n=4, cutoff=0.5)
    hint = f"Nearest names: {', '.join(near)}." if near else f"Domains: {', '.join(list_tasks('domains'))}."
    hint = f"{hint} For other environments write gymnasium:ID or mjcf:FILE.xml."
    raise UnknownName(f"There is no world or task {name!r}. {hint}")


def domain_of(world: str) -> str:
    """The world without its task: the suite's domain, or the name itself."""
    return split_name(world)[0] if is_suite(world) else world


def is_suite(name: str) -> bool:
    """Whether a name is one of the suite, the mazes included."""
    return not name.startswith((GYMNASIUM, MJCF, DATASET))


def split_world(name: str) -> tuple[str, dict[str, Any]]:
    """A world's name without its arguments, and these: `gymnasium:Pendulum-v1?g=9.8`."""
    bare, _, query = name.partition("?")
    pairs = urllib.parse.parse_qsl(query, keep_blank_values=True)
    return bare, {key: _value(text) for key, text in pairs}


def read_arguments(texts: Sequence[str]) -> dict[str, Any]:
    """Arguments of an environment as they are written on the command line: `key=value`."""
    wrong = [text for text in texts if "=" not in text]
    if wrong:
        raise ValueError(f"An argument of an environment is written key=value; got {wrong[0]!r}")
    return {key: _value(text) for key, _, text in (each.partition("=") for each in texts)}


def argument_texts(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Arguments as they are written on the command line."""
    return tuple(f"{key}={_text(value)}" for key, value in arguments.items())


def folder_name(world: str) -> str:
    """A world's name as that of a folder or file: of a model file its own name alone."""
    bare, _, arguments = world.partition("?")
    if bare.startswith(MJCF):
        bare = Path(bare.removeprefix(MJCF)).stem
    return re.sub(r"[^\w.-]+", "_", f"{bare}_{arguments}" if arguments else bare)


def full_name(name: str, arguments: Mapping[str, Any] | None = None) -> str:
    """The name by which a world is known everywhere: its arguments in it, and a model file's absolute path."""
    if is_suite(name):
        if arguments:
            raise ValueError(f"{name} takes no arguments: only gymnasium: and mjcf: worlds do")
        return name
    bare, known = split_world(name)
    if bare.startswith(MJCF):
        bare = MJCF + str(Path(bare.removeprefix(MJCF)).expanduser().absolute())
    texts = {key: _text(value) for key, value in sorted((known | dict(arguments or {})).items())}
    query = urllib.parse.urlencode(texts, quote_via=urllib.parse.quote, safe=READABLE)
    return f"{bare}?{query}" if query else bare


def _value(text: str) -> Any:
    """`5`, `0.5`, `[1, 2]` and `true` are what they say; everything else is text."""
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _text(value: Any) -> str:
    if callable(value):
        return name_function(value)
    return value if isinstance(value, str) and _value(value) == value else repr(value)


def without_start(world: str) -> str:
    """The name without a model file's `reset` function: nothing that is done with stored states needs it."""
    bare, arguments = split_world(world)
    if not bare.startswith(MJCF) or "reset" not in arguments:
        return world
    return full_name(bare, {key: value for key, value in arguments.items() if key != "reset"})


def check_module(world: str, source: str) -> None:
    """Worlds may name a module: `gymnasium:MODULE:ID`, a start's `reset=MODULE:function`. No file may start it."""
    bare, arguments = split_world(world)
    module, reset = "", arguments.get("reset")
    if bare.startswith(GYMNASIUM):
        module = bare.removeprefix(GYMNASIUM).rpartition(":")[0]
    elif bare.startswith(MJCF) and isinstance(reset, str) and reset not in functions:
        module = reset.partition(":")[0]
    if module and module not in sys.modules:
        raise ValueError(
            f"The world of {source} is in the Python module {module!r}. Files must not start code: if you trust this one, "
            f"add --import {module}, or work from Python, after `import {module}`"
        )
