"""Command line: one module per command. Only this package knows the names of options."""
