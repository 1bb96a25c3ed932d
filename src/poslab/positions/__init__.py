"""Position schemes: `base.py` is the contract, `terms.py` its data for pairs of tokens, other files are schemes."""

from poslab.positions.base import *  # noqa: F403
