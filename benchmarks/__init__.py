"""Benchmarks: what is promised about speed, measured against others in one run."""
