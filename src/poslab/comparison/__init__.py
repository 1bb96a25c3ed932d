"""Comparison of many runs: groups, statistics, figures and the report."""

import poslab.lazy  # noqa: F401  # before anything here imports tensorboard
