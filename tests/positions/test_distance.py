"""Schemes that are tables, mostly by distance: other libraries' values, sizes, starts, refusals and warnings."""

import pytest
import torch
from torch import Tensor

from poslab import GPT
from poslab.attention import scheme_attention
from poslab.errors import SettingError
from poslab.positions import ModelShape, PositionScheme
from poslab.positions.absolute import Absolute
from poslab.positions.alibi import ALiBi
from poslab.positions.deberta import DeBERTa
from poslab.positions.kerple import Kerple
from poslab.positions.music import MusicTransformer
from poslab.positions.shaw import Shaw
from poslab.positions.t5 import T5
from poslab.positions.transformer_xl import TransformerXL

LENGTH = 20
NEEDS = "needs transformers, in the extra 'bench'"


def shape_of(heads: int, causal: bool = True) -> ModelShape:
    return ModelShape(LENGTH, 4 * heads, 2, heads, causal)


def bias_of(scheme: PositionScheme, tables: dict[str, Tensor], shape: ModelShape) -> Tensor:
    """Return the bias of each pair in the first layer, (H, T, T)."""
    return scheme.relative(tables, shape, 0, shape.distances).dense_bias(LENGTH, LENGTH)[0]


@pytest.mark.parametrize("heads", range(1, 21))
def test_alibi_equals_bloom(heads: int) -> None:
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom", reason=NEEDS)
    by_key = bloom.build_alibi_tensor(torch.ones(1, LENGTH), heads, torch.float32)[:, 0].double()  # (H, T): slope * j
    expected = by_key[:, None] - by_key[..., None]  # (H, T, T): less what is the same for all keys of a query
    ours = bias_of(ALiBi(), {}, shape_of(heads))
    assert torch.allclose(ours.tril(), expected.tril(), rtol=1e-5)


def test_kerple_learns_at_distance_0_and_starts_in_the_limits() -> None:
    for kernel, limits in (("log", (2, 1)), ("power", (1, 2))):
        scheme, shape = Kerple(kernel), shape_of(500)
        tables = {name: table.requires_grad_() for name, table in scheme.tables(shape).items()}
        bias_of(scheme, tables, shape).sum().backward()
        assert all(table.grad.isfinite().all() for table in tables.values())
        r1, r2 = (table.detach() for table in tables.values())
        r2 = 2 * r2.sigmoid() if kernel == "power" else r2
        for values, limit in ((r1, limits[0]), (r2, limits[1])):
            assert 0 < values.min() < 0.1 * limit < 0.9 * limit < values.max() < limit


@pytest.mark.parametrize(
    ("scheme", "std"),
    [
        (Absolute(), 0.02),
        (DeBERTa(50), 0.02),
        (TransformerXL(), 0.02),
        (MusicTransformer(), 64**-0.5),
        (T5(1000, max_distance=2000), 256**-0.5),
    ],
    ids=str,
)
def test_spread_of_initial_tables(scheme: PositionScheme, std: float) -> None:
    for table in scheme.tables(ModelShape(256, 256, num_layers=10, num_heads=4)).values():
        assert table.std().item() == pytest.approx(std, rel=0.1)
        assert table.mean().abs() < 0.1 * std


@pytest.mark.parametrize("causal", [True, False])
def test_transformer_xl_equals_xlnet(causal: bool) -> None:
    xlnet = pytest.importorskip("transformers.models.xlnet.modeling_xlnet", reason=NEEDS)
    scheme, shape = TransformerXL(), shape_of(3, causal)
    tables = {name: torch.randn_like(table.double()) for name, table in scheme.tables(shape).items()}
    config = xlnet.XLNetConfig(vocab_size=2, d_model=12, n_layer=1, n_head=3, d_inner=1, dropout=0.0)
    model = xlnet.XLNetModel(config)
    core = xlnet.XLNetRelativeAttention(config)
    core.r_w_bias, core.r_r_bias = (torch.nn.Parameter(tables[name][-1]) for name in ("u", "v"))
    sinusoids = model.relative_positional_encoding(LENGTH, LENGTH, bsz=2).double()  # (2 T, B, D), in float32
    relative_keys = (sinusoids @ tables["project"][-1].T).unflatten(-1, (3, 4))  # (2 T, B, H, Dh)
    q, k = torch.randn(2, 2, 3, LENGTH, 4, dtype=torch.float64)
    hidden = torch.ones(LENGTH, LENGTH, dtype=torch.float64).triu(1)[..., None, None] if causal else None
    theirs = core.rel_attn_core(*(x.permute(2, 0, 1, 3) for x in (q, k, k)), relative_keys, attn_mask=hidden)
    ours = scheme_attention(scheme, tables, q, k, k, layer=1, num_layers=2, causal=causal)  # (B, H, T, Dh)
    assert torch.allclose(ours, theirs.permute(1, 2, 0, 3), atol=1e-5)


@pytest.mark.parametrize(
    ("scheme", "causal", "tables"),
    [
        (Kerple("power", share_layers=False), True, 2 * 2 * 3),
        (MusicTransformer(), False, 2 * 3 * (2 * LENGTH - 1) * 4),
        (TransformerXL(), True, 2 * (2 * 3 * 4 + 12 * 12)),
        (ALiBi(), True, 0),
        (Shaw(5), False, 2 * 2 * 11 * 4),
        (Shaw(5, values=False), True, 2 * 6 * 4),
        (Shaw(5, share_heads=False), True, 2 * 2 * 3 * 6 * 4),
        (T5(16, share_layers=False), True, 2 * 16 * 3),
    ],
)
def test_parameter_count(scheme: PositionScheme, causal: bool, tables: int) -> None:
    sizes = {"vocab_size": 5, "context_length": LENGTH, "embed_dim": 12, "num_layers": 2, "num_heads": 3}
    assert GPT(scheme, causal=causal, **sizes).parameter_counts()["scheme"] == tables


@pytest.mark.parametrize(
    ("make", "option"),
    [
        (lambda: TransformerXL().check(ModelShape(LENGTH, 9, 1, 3)), "embed_dim"),
        (lambda: Shaw(keys=False, values=False), "keys"),
        (lambda: T5(7).check(shape_of(3, causal=False)), "num_buckets"),
        (lambda: T5(2).check(shape_of(3, causal=False)), "num_buckets"),
        (lambda: T5(max_distance=16).check(shape_of(3)), "max_distance"),
        (lambda: T5(max_distance=8).check(shape_of(3, causal=False)), "max_distance"),
    ],
)
def test_settings_that_do_not_fit_together(make: object, option: str) -> None:
    with pytest.raises(SettingError) as refusal:
        make()
    assert refusal.value.option == option


@pytest.mark.parametrize(
    ("scheme", "causal", "named"),
    [
        (Shaw(LENGTH), True, "the rows for 20 to 20 never train"),
        (Shaw(LENGTH - 1), True, None),
        (DeBERTa(LENGTH + 2), True, "the rows for 20 to 21 never train"),
        (DeBERTa(LENGTH), True, None),
        (T5(16, max_distance=40), True, "never trains 3 buckets"),
        (T5(8, max_distance=LENGTH - 1), True, None),
        (T5(16, max_distance=LENGTH - 1), False, None),
    ],
)
def test_rows_that_never_train_are_named(scheme: PositionScheme, causal: bool, named: str | None) -> None:
    warnings = scheme.warnings(shape_of(3, causal))
    assert [named in warning for warning in warnings] == ([True] if named else []), warnings
