"""Runs and a page that tests of reports share."""

from pathlib import Path

import jax
import pytest
from small_run import make_run

from plan2explore.report.page import write_report


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory) -> None:
    """What is compiled here does not go to the user's cache."""
    if jax.config.jax_compilation_cache_dir is None:
        jax.config.update("jax_compilation_cache_dir", str(tmp_path_factory.mktemp("jax")))


@pytest.fixture(scope="session")
def small_runs(tmp_path_factory) -> list[Path]:
    """Two explorations of one world, by two methods. Read them only."""
    folder = tmp_path_factory.mktemp("runs")
    return [make_run(folder / "first", "plan2explore"), make_run(folder / "second", "random", seed=7)]


@pytest.fixture(scope="session")
def page_of_both(small_runs, tmp_path_factory) -> Path:
    """A page that compares them."""
    return write_report(small_runs, tmp_path_factory.mktemp("page") / "both.html")
