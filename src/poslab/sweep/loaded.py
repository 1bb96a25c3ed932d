"""Modules that the jobs of a sweep find loaded: the process that they are forked from imports this one, once for all.

No job has a thread or a tensor of another: what is loaded here computes nothing.
"""

from contextlib import suppress

from poslab.environment import ignore_matplotlibrc

# ruff: noqa: E402
ignore_matplotlibrc()  # which the imports below would read

import matplotlib.backends.backend_agg  # noqa: F401  # which the first picture loads

import poslab.training.train  # noqa: F401
from poslab.data.tokenizer import load_tokenizer
from poslab.errors import SettingError
from poslab.runs.code import code_fingerprint

code_fingerprint()  # of what is loaded now: jobs may be forked from this process hours later

with suppress(SettingError):  # of a vocabulary that is missing or changed; a job that needs it says so
    load_tokenizer("gpt2")
