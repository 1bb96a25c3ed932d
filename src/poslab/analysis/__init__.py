"""What runs have to show: evaluation, statistics, pictures, reports."""

import poslab.without_tensorflow  # noqa: F401  # before anything here imports tensorboard
