"""Ways of knowing position: `base.py` is the contract, `terms.py` what it says of pairs, other files are schemes."""

from poslab.positions.base import *  # noqa: F403
