"""`plan2explore bench`: how fast this machine learns (`update`), and how fast it steps and draws (`render`)."""

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import arg, subcommand

from ..options import parse
from .render import RenderCommand
from .update import UpdateCommand


@dataclass(frozen=True)
class BenchCommand:
    """Measures speed on this machine: bench render --help, bench update --help."""

    what: Annotated[
        Annotated[RenderCommand, subcommand("render")] | Annotated[UpdateCommand, subcommand("update")], arg(name="")
    ]


def main(arguments: list[str]) -> int:
    """`plan2explore bench`."""
    return parse(BenchCommand, "bench", arguments).what.run()
