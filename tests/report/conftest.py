"""Runs and a page that tests of reports share."""

from pathlib import Path

import pytest
from small_run import make_run

from plan2explore.report.page import write_report


@pytest.fixture(scope="session")
def small_runs(tmp_path_factory) -> list[Path]:
    """Two explorations of one world, by two methods. Read them only."""
    folder = tmp_path_factory.mktemp("runs")
    return [make_run(folder / "first", "plan2explore"), make_run(folder / "second", "random", seed=7)]


@pytest.fixture(scope="session")
def page_of_both(small_runs, tmp_path_factory) -> Path:
    """A page that compares them."""
    return write_report(small_runs, tmp_path_factory.mktemp("page") / "both.html")
