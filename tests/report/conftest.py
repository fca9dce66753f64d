"""Runs and a page that tests of reports share."""

import hashlib
import shutil
from pathlib import Path

import pytest
from small_run import TASK, make_run, score

from plan2explore.report.page import write_report
from plan2explore.runs.files import append_line
from plan2explore.runs.folder import RunFolder


def digest(path: Path) -> dict[str, str]:
    """What is in the files of a folder."""
    files = [file for file in sorted(path.rglob("*")) if file.is_file()]
    return {str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.fixture(scope="session")
def small_runs(tmp_path_factory) -> list[Path]:
    """Two explorations of one environment, by two methods. Read them only."""
    folder = tmp_path_factory.mktemp("runs")
    return [make_run(folder / "first", "plan2explore"), make_run(folder / "second", "random", seed=7)]


@pytest.fixture
def copied(small_runs, tmp_path) -> Path:
    """A copy of the first, to change."""
    return shutil.copytree(small_runs[0], tmp_path / "copy")


@pytest.fixture(scope="session")
def page_of_both(small_runs, tmp_path_factory) -> Path:
    """A page that compares them."""
    before = digest(small_runs[0])
    page = write_report(small_runs, tmp_path_factory.mktemp("page") / "deep" / "both.html")
    assert digest(small_runs[0]) == before, "a report changes no run"
    return page


EVIL = "<img src=x onerror=document.body.dataset.owned=1>$\\frac{-->\"'&"


@pytest.fixture(scope="session")
def hostile_page(small_runs, tmp_path_factory) -> Path:
    """A page of a run whose names are markup."""
    run = shutil.copytree(small_runs[0], tmp_path_factory.mktemp("hostile") / EVIL.replace("\\", "_"))
    score(RunFolder.open(run), f"</svg></script><script>{EVIL}", [1.0, 2.0], 1000)
    append_line(run / "starts.jsonl", {"time": EVIL, "command": [EVIL], "versions": {EVIL: EVIL}, "machine": {"cpu": EVIL}})
    shutil.copytree(run / "adapt" / TASK, run / "adapt" / "<b onclick=alert(2)>")
    return write_report([run], run.parent / "page.html")
