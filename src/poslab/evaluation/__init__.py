"""Evaluation of one model: losses by length and position, attention maps, what its scheme has learned."""

import poslab.lazy  # noqa: F401  # before anything here imports tensorboard
