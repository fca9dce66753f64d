"""What is expensive to make is made once: compiled programs are shared by all processes, other things within a group."""

import functools
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import jaxlib.version
import pytest

ROOT = Path(__file__).parents[1]
QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
if jaxlib.version.__version_info__ < (0, 11):  # XLA exits where it does not know a flag
    QUICK += " --xla_cpu_use_fusion_emitters=false"
"""Compiling is what takes time: updates of nano agents compile in a fifth of the time, and run four times as long."""


def pytest_configure(config: pytest.Config) -> None:
    """One folder of compiled programs for all workers and the processes that they start, which is not the user's.

    The examples, which run as a user would run them, drop `XLA_FLAGS`.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        folder = tempfile.TemporaryDirectory(prefix="jax-", ignore_cleanup_errors=True)
        config.add_cleanup(folder.cleanup)
        os.environ |= {"JAX_COMPILATION_CACHE_DIR": folder.name, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {QUICK}"


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
