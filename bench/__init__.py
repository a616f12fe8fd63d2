"""Benchmarks as programs: `python -m bench` measures, prints one table, and writes JSON."""
