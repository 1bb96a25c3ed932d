"""Training: `train` makes a run folder out of a checked configuration."""

import poslab.evaluation.without_tensorflow  # noqa: F401  # before Lightning, which imports tensorboard
from poslab.runs.code import code_fingerprint
from poslab.training.run import train

code_fingerprint()  # of what is loaded now: the jobs of a sweep may be forked from this process hours later

__all__ = ["train"]
