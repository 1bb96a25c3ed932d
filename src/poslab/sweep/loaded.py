"""What jobs of a sweep find loaded: the process that they are forked from imports this module, once for all of them.

No job has a thread or a tensor of another: what is loaded here computes nothing.
"""

from contextlib import suppress

import matplotlib.backends.backend_agg  # noqa: F401  # which the first picture loads

import poslab.training  # noqa: F401
from poslab.data.tokenizer import load_tokenizer
from poslab.errors import SettingError

with suppress(SettingError):  # of a vocabulary that is missing or changed; a job that needs it says so
    load_tokenizer("gpt2")
