"""Names of worlds and tasks: `walker_walk`, the bare domain `walker`, `gymnasium:Pendulum-v1`."""

import difflib
import sys

from .suite import ALIASES, tasks_of_domains

GYMNASIUM = "gymnasium:"

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
    every = {f"{domain}_{task}" for domain, tasks in domains.items() for task in tasks} | {"cup_catch"}
    choices = {
        "paper": sorted(PAPER_TASKS),
        "extra": sorted(EXTRA_TASKS),
        "domains": sorted(domains),
        "all": sorted(every),
    }
    if which not in choices:
        raise ValueError(f"list_tasks knows {', '.join(choices)}; got {which!r}")
    return choices[which]


def split_name(name: str) -> tuple[str, str | None]:
    """(domain, task) of a suite name in the suite's own words; the task of a bare domain is None."""
    domains = tasks_of_domains()
    for domain in [*domains, *ALIASES]:
        actual = ALIASES.get(domain, domain)
        if name == domain:
            return actual, None
        if name.startswith(domain + "_") and name[len(domain) + 1 :] in domains[actual]:
            return actual, name[len(domain) + 1 :]
    raise UnknownName(_unknown(name))


def check_module(world: str, source: str) -> None:
    """Gymnasium runs the module of a `gymnasium:MODULE:ID`. A name out of a file must not be able to do that."""
    module = world.removeprefix(GYMNASIUM).rpartition(":")[0]
    if world.startswith(GYMNASIUM) and module and module not in sys.modules:
        raise ValueError(
            f"The world of {source} is in the Python module {module!r}. Files must not start code: if you trust this one, "
            f"work from Python, after `import {module}`"
        )


def _unknown(name: str) -> str:
    names = [*list_tasks("all"), *list_tasks("domains"), *ALIASES]
    near = difflib.get_close_matches(str(name), names, n=4, cutoff=0.5)
    hint = f"Nearest names: {', '.join(near)}." if near else f"Domains: {', '.join(list_tasks('domains'))}."
    return f"There is no world or task {name!r}. {hint} For other environments write gymnasium:ID."
