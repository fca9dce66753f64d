"""Every Python block of the README and of the documentation runs as it stands, and no link leads nowhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE

ROOT = Path(__file__).parents[1]
GO_ON = dict.fromkeys(("docs/own_reward.md", "docs/model.md", "docs/data.md"), "docs/tutorial.md")
"""Pages that continue where another page stopped: they run after it, with its names and its folder."""


def blocks(page: str) -> list[str]:
    """A page's Python blocks."""
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)


def programs() -> dict[str, str]:
    """The blocks of a page one after the other, as one program; pages that continue belong to the page before."""
    pages = ["README.md", *sorted(f"docs/{path.name}" for path in ROOT.glob("docs/*.md"))]
    found = {page: blocks(page) for page in pages if page not in GO_ON}
    for later, page in GO_ON.items():
        found[page] += blocks(later)
    return {page: "\n".join(each) for page, each in found.items() if each}


@pytest.mark.slow
@pytest.mark.parametrize("page", programs())
def test_the_blocks_of_a_page_run(page, tmp_path, monkeypatch):
    (tmp_path / "blocks.py").write_text(programs()[page])
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.delenv("XLA_FLAGS")
    result = subprocess.run(
        [sys.executable, "blocks.py"], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert result.returncode == 0, result.stderr


def test_pages_link_only_to_files_that_are_there():
    for page in [ROOT / "README.md", *ROOT.glob("docs/*.md")]:
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
