"""T5's buckets and bias: reference tables, stored values of Hugging Face's T5, the library itself, and the paper."""

import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import attention_by_loops, t5_bucket

from poslab import GPT
from poslab.attention import attend
from poslab.errors import SettingError
from poslab.positions import ModelShape
from poslab.positions.t5 import T5, relative_position_bucket

STORED = json.loads((Path(__file__).parent / "t5_buckets.json").read_text())


def test_reference_tables(reference_cases: dict) -> None:
    for case in reference_cases["t5_bucket_tables"]:
        query = torch.arange(case["query_length"])[:, None]
        key = torch.arange(case["key_length"])[None, :]
        arguments = {name: case[name] for name in ("bidirectional", "num_buckets", "max_distance")}
        assert relative_position_bucket(key - query, **arguments).tolist() == case["buckets"]


@pytest.mark.parametrize(
    "case", STORED["cases"], ids=lambda c: f"{c['num_buckets']}-{c['max_distance']}-{c['bidirectional']}"
)
def test_stored_values_of_hugging_face(case: dict) -> None:
    positions = torch.tensor(STORED["relative_positions"])
    arguments = {name: case[name] for name in ("bidirectional", "num_buckets", "max_distance")}
    buckets = relative_position_bucket(positions, **arguments)
    assert buckets.dtype == torch.int64
    assert buckets.tolist() == case["buckets"]


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
    if exact < 1 or max_distance == exact:  # the library divides by zero, or by the logarithm of 1
        with pytest.raises(SettingError):
            relative_position_bucket(positions, **arguments)
        return
    expected = t5.T5Attention._relative_position_bucket(positions, **arguments)
    assert torch.equal(relative_position_bucket(positions, **arguments), expected)


def test_no_infinity_becomes_an_integer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logarithms of 0 never occur: turning their -inf into an integer gives whatever the processor likes."""
    logarithms = []
    original = torch.log
    monkeypatch.setattr(torch, "log", lambda x: logarithms.append(original(x)) or logarithms[-1])
    relative_position_bucket(torch.arange(-200, 200), bidirectional=True)
    assert len(logarithms) == 1
    assert logarithms[0].isfinite().all()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_same_buckets_on_gpu() -> None:
    positions = torch.arange(-5000, 5000)
    for num_buckets, max_distance in [(32, 128), (32, 64), (64, 1000), (16, 100)]:
        arguments = {"bidirectional": False, "num_buckets": num_buckets, "max_distance": max_distance}
        on_gpu = relative_position_bucket(positions.cuda(), **arguments)
        assert on_gpu.is_cuda
        assert torch.equal(on_gpu.cpu(), relative_position_bucket(positions, **arguments))


def test_bias_shape_and_orientation(reference_cases: dict) -> None:
    case = reference_cases["t5_bias_shape"]
    shape = ModelShape(context_length=32, embed_dim=64, num_layers=2, num_heads=case["num_heads"])
    scheme = T5()
    tables = scheme.tables(shape)
    query_length, key_length = case["query_length"], case["key_length"]
    terms = scheme.relative(tables, shape, 0, range(query_length))
    bias = terms.dense_bias(query_length, key_length)
    assert list(bias.shape) == case["shape"]
    for head in range(case["num_heads"]):
        for i in range(query_length):
            for j in range(i + 1):  # queries are rows, keys are columns
                assert bias[0, head, i, j] == tables["bias"][t5_bucket(j - i, False, 32, 128), head]


def test_last_query_stands_at_the_last_key() -> None:
    shape = ModelShape(context_length=32, embed_dim=64, num_layers=2, num_heads=4)
    scheme = T5(scale=0.5)
    tables = scheme.tables(shape)
    bias = scheme.relative(tables, shape, 0, range(20)).dense_bias(query_length=3, key_length=20)
    assert bias.shape == (1, 4, 3, 20)
    assert torch.equal(bias[0, :, -1, -1], 0.5 * tables["bias"][0])
    assert torch.equal(bias[0, :, 0, 0], 0.5 * tables["bias"][t5_bucket(-17, False, 32, 128)])


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("share_layers", [True, False])
def test_attention_equals_the_paper(causal: bool, share_layers: bool) -> None:
    """The bias of each pair's bucket, by loops: kernel and `attention_by_loops` agree with it."""
    scheme = T5(num_buckets=8, max_distance=12, scale=0.7, share_layers=share_layers)
    shape = ModelShape(context_length=16, embed_dim=12, num_layers=2, num_heads=2, causal=causal)
    table = scheme.tables(shape)["bias"].double()
    q, k, v = torch.randn(3, 1, 2, 16, 6, dtype=torch.float64)
    for layer in range(2):
        own = table if share_layers else table[layer]
        expected = torch.zeros_like(q)
        for h in range(2):
            for i in range(16):
                seen = range(i + 1 if causal else 16)
                buckets = [t5_bucket(j - i, not causal, 8, 12) for j in seen]
                scores = k[0, h, seen] @ q[0, h, i] / math.sqrt(6) + 0.7 * own[buckets, h]
                expected[0, h, i] = scores.softmax(0) @ v[0, h, seen]
        terms = scheme.relative({"bias": table}, shape, layer, range(0 if causal else -15, 16))
        assert torch.allclose(attend(q, k, v, terms, causal=causal), expected, atol=1e-12)
        by_loops = attention_by_loops(q, k, v, terms, causal=causal, offset=0, scale=6**-0.5)
        assert torch.allclose(by_loops, expected, atol=1e-12)


@pytest.mark.parametrize("share_layers", [True, False])
def test_parameter_count(share_layers: bool) -> None:
    model = GPT(T5(num_buckets=16, share_layers=share_layers), vocab_size=50, embed_dim=32, num_layers=3, num_heads=4)
    assert model.parameter_counts()["scheme"] == 16 * 4 * (1 if share_layers else 3)


@pytest.mark.parametrize(
    ("settings", "causal", "option"),
    [
        ({"num_buckets": 1}, True, "num_buckets"),
        ({"num_buckets": 7}, False, "num_buckets"),
        ({"num_buckets": 2}, False, "num_buckets"),
        ({"max_distance": 16}, True, "max_distance"),
        ({"max_distance": 8}, False, "max_distance"),
        ({"scale": float("nan")}, True, "scale"),
    ],
)
def test_refuses(settings: dict, causal: bool, option: str) -> None:
    with pytest.raises(SettingError) as refusal:
        GPT(T5(**settings), vocab_size=50, embed_dim=32, num_layers=1, num_heads=4, causal=causal)
    assert refusal.value.option == option


def test_warns_of_buckets_that_never_train() -> None:
    def warnings_at(context_length: int) -> list[str]:
        return T5().warnings(ModelShape(context_length, embed_dim=8, num_layers=1, num_heads=1))

    assert "buckets 27-31" in warnings_at(64)[0]
    assert warnings_at(256) == []
    bidirectional = ModelShape(256, embed_dim=8, num_layers=1, num_heads=1, causal=False)
    assert T5().warnings(bidirectional) == []


def test_initial_bias_is_normal_with_the_spread_of_t5() -> None:
    bias = T5(num_buckets=64, max_distance=256).tables(ModelShape(512, 256, 1, 64))["bias"] * 256**0.5
    assert bias.mean().abs() < 0.1
    assert bias.std() == pytest.approx(1, abs=0.1)
