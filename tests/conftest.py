"""Tests that share what is expensive to make run in one process, whichever pytest is installed."""

import functools
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


@functools.cache
def group_of(file: str) -> str | None:
    """The group that a file of tests puts all of them into: `pytestmark = pytest.mark.xdist_group("NAME")`."""
    found = re.search(r'^pytestmark = pytest\.mark\.xdist_group\("(\w+)"\)', (ROOT / file).read_text(), re.M)
    return found[1] if found else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """pytest-xdist 3.8 hands groups on in a field that pytest 9.2 no longer reads: here they come from the files."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            test = nodeid.split("@")[0]
            return group_of(test.partition("::")[0]) or test

    return ByGroup(config, log)
