"""Simulations behind the rules of seedstats: `scripts/simulate.py` writes their tables."""
