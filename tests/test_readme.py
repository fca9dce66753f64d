"""Every Python block of the README and of the documentation runs as it stands, and no link leads nowhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE

ROOT = Path(__file__).parents[1]
PAGES = {path.stem: path for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")))}
JOURNEY = ("tutorial", "own_reward", "model", "data")
"""Pages of which each continues where the one before stopped, with its names and in its folder."""
PROGRAM = """
import os, runpy, sys
for folder in sys.argv[1:]:
    os.chdir(folder)
    runpy.run_path("blocks.py", run_name="__main__")
"""


def blocks(*pages: str) -> str:
    """The Python blocks of some pages, one after the other."""
    return "\n".join(block for page in pages for block in re.findall(r"```python\n(.*?)```", PAGES[page].read_text(), re.S))


@pytest.mark.slow
def test_the_blocks_of_all_pages_run(tmp_path):
    """Each page in a folder of its own, all in one process, which imports and compiles once what they share."""
    programs = [(page,) for page in PAGES if page not in JOURNEY and blocks(page)] + [JOURNEY]
    for pages in programs:
        (folder := tmp_path / pages[0]).mkdir()
        (folder / "blocks.py").write_text(blocks(*pages))
        (folder / "examples").symlink_to(ROOT / "examples")
    command = [sys.executable, "-c", PROGRAM, *(str(tmp_path / pages[0]) for pages in programs)]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert result.returncode == 0, result.stderr


def test_pages_link_only_to_files_that_are_there():
    for page in PAGES.values():
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
