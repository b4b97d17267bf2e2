"""`python -m semicyclic` is the command line."""

from semicyclic.cli import main

main()
