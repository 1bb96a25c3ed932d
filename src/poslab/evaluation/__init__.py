"""One model, measured and drawn: losses by length and position, attention maps, what its scheme has learned."""

import poslab.evaluation.without_tensorflow  # noqa: F401  # before anything here imports tensorboard
