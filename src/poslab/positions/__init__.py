"""Ways of knowing position: `base.py` is the contract, every other file is one scheme."""

from poslab.positions.base import Curves, Matrix, ModelShape, Picture, PositionScheme, RelativeTerms

__all__ = ["Curves", "Matrix", "ModelShape", "Picture", "PositionScheme", "RelativeTerms"]
