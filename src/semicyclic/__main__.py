"""Entry point of `python -m semicyclic`."""

from semicyclic.cli.main import main

main()
