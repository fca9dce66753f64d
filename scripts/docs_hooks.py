"""What MkDocs does to pages before it builds them."""

import re
from typing import Any

OUTSIDE = re.compile(r"\[([^]\[]+)\]\((?:\.\./)+[^)]*\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Files outside docs/ are in the repository, not on the site: their links become plain text there."""
    return OUTSIDE.sub(r"\1", markdown)
