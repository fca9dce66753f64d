"""The table of all tasks in docs/results.md is the one that results/ give."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_table_of_results_is_made_from_the_files():
    """Change `results/`, and the page has to be made anew."""
    made = runpy.run_path(str(ROOT / "scripts" / "results_table.py"))
    assert made["page"]() == (ROOT / "docs" / "results.md").read_text()
    assert "| walker_walk | 398 |" in made["table"]()
