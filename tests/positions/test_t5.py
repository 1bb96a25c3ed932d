"""T5's buckets: reference tables, and Hugging Face's T5."""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from poslab.positions.t5 import relative_position_bucket


def buckets_of(case: dict, positions: torch.Tensor) -> list:
    arguments = {name: case[name] for name in ("bidirectional", "num_buckets", "max_distance")}
    return relative_position_bucket(positions, **arguments).tolist()


def test_reference_tables(reference_cases: dict) -> None:
    for case in reference_cases["t5_bucket_tables"]:
        query = torch.arange(case["query_length"])[:, None]
        key = torch.arange(case["key_length"])[None, :]
        assert buckets_of(case, key - query) == case["buckets"]


@given(
    bidirectional=st.booleans(),
    num_buckets=st.integers(1, 300),
    max_distance=st.integers(1, 5000),
    longest=st.integers(0, 3000),
)
@settings(max_examples=100, deadline=None)
def test_equal_to_the_library(bidirectional: bool, num_buckets: int, max_distance: int, longest: int) -> None:
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5", reason="needs transformers, in the extra 'bench'")
    positions = torch.arange(-longest, longest + 1)
    arguments = {"bidirectional": bidirectional, "num_buckets": num_buckets, "max_distance": max_distance}
    exact = num_buckets // (4 if bidirectional else 2)
    assume(exact >= 1 and max_distance != exact)  # or the library divides by zero, or by the logarithm of 1
    expected = t5.T5Attention._relative_position_bucket(positions, **arguments)
    assert torch.equal(relative_position_bucket(positions, **arguments), expected)
