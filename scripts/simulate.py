"""Simulate sweeps whose truth is known, and write the tables of data/studies/simulated_claims.md.

python scripts/simulate.py [TABLE ...]       by default all: about an hour on one core
"""

import sys

from simulations import best, claims, estimates, track

TABLES = claims.TABLES | estimates.TABLES | best.TABLES | track.TABLES

if __name__ == "__main__":
    names = sys.argv[1:] or list(TABLES)
    if unknown := [name for name in names if name not in TABLES]:
        sys.exit(f"error: {', '.join(unknown)}: unknown; valid: {', '.join(TABLES)}")
    for name in names:
        TABLES[name]()
