"""`plan2explore.report` is a room and a function, in whichever order they are asked for."""

import subprocess
import sys

import pytest

import plan2explore
from plan2explore.report import page


def test_the_public_name_is_still_a_function_when_its_room_is_imported(small_runs, tmp_path, monkeypatch):
    monkeypatch.setattr(page, "compose", lambda *_: "a page")
    out = plan2explore.report(str(small_runs[0]), str(tmp_path / "page.html"))
    assert out.read_text() == "a page" and plan2explore.report.page is page


@pytest.mark.parametrize("before", ["", "import plan2explore.report.pictures; "])
def test_it_is_found_whatever_was_imported_before(before):
    code = f"{before}import plan2explore; plan2explore.report([])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stderr.endswith("ValueError: A report needs at least one run: give its folder.\n")
