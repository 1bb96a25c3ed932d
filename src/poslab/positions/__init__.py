"""Ways of knowing position: `base.py` is the contract, `terms.py` what it says of pairs, other files are schemes."""

from poslab.positions.base import ModelShape, OneHead, PositionScheme
from poslab.positions.elsewhere import Elsewhere
from poslab.positions.pictures import Curves, Explanation, Matrix, OnText, Picture, Strip
from poslab.positions.terms import Pairs, RelativeTerms

__all__ = [
    "Curves",
    "Elsewhere",
    "Explanation",
    "Matrix",
    "ModelShape",
    "OnText",
    "OneHead",
    "Pairs",
    "Picture",
    "PositionScheme",
    "RelativeTerms",
    "Strip",
]
