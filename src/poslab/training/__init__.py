"""Training: `train` makes a run folder out of a checked configuration."""

import gc

_collecting = gc.isenabled()
gc.disable()  # half a million objects come to stay: to look for garbage among them takes a fifth of the time

import poslab.lazy  # noqa: E402, F401  # before Lightning
from poslab.runs.code import code_fingerprint  # noqa: E402
from poslab.training.train import train  # noqa: E402

code_fingerprint()  # of what is loaded now: the jobs of a sweep may be forked from this process hours later
gc.freeze()  # nor is there any among them later
if _collecting:
    gc.enable()

__all__ = ["train"]
