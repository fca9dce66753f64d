"""What people look at: pictures, videos, curves, tables and pages. Calling it makes a page: `plan2explore.report(runs)`."""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


class _Room(ModuleType):
    """This package, which can be called: Python gives `plan2explore.report` its name, and the public function has it too."""

    def __call__(self, *arguments: Any, **options: Any) -> "Path":
        """`write_report`: one self-contained page about a run, or comparing several; where it is."""
        from .page import write_report

        return write_report(*arguments, **options)


sys.modules[__name__].__class__ = _Room
