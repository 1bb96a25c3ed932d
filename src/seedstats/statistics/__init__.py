"""Statistics of figures by seed: numbers in, typed results out; knows nothing of runs, and no torch."""
