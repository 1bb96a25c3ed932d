"""Many runs: groups, statistics, figures and the report."""

import poslab.evaluation.without_tensorflow  # noqa: F401  # before anything here imports tensorboard
