"""Every scheme against its paper: the weights of attention, and the scalar `score` of each pair."""

import pytest
from common import SCHEMES, VARIANTS, make_scheme
from oracles import LATER, assert_is_the_formula, has_formula


@pytest.mark.parametrize("name", [*SCHEMES, *VARIANTS])
@pytest.mark.parametrize(
    ("causal", "positions"),
    [(True, None), (False, None), (True, LATER)],
    ids=["causal", "bidirectional", "positions with gaps"],
)
def test_attention_is_the_formula(name: str, causal: bool, positions: list[int] | None) -> None:
    scheme = make_scheme(name)
    if not has_formula(scheme):
        pytest.skip(f"{name} has no `score` to be held against")
    assert_is_the_formula(scheme, causal, positions)
