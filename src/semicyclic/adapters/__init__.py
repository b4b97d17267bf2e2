"""Adapters to other frameworks, independent of each other."""
