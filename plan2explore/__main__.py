"""`python -m plan2explore`."""

from .cli import main

main()
