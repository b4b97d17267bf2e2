"""Benchmarks of speed and memory, measured against other libraries in the same run, with goals."""
