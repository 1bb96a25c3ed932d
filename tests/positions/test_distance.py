"""Schemes that are tables by distance: values from their papers, other libraries, and what they have in common."""

import math

import pytest
import torch
from torch import Tensor

from poslab import GPT
from poslab.attention import attend
from poslab.errors import SettingError
from poslab.positions import ModelShape, PositionScheme
from poslab.positions.alibi import ALiBi
from poslab.positions.kerple import Kerple
from poslab.positions.music import MusicTransformer
from poslab.positions.sandwich import Sandwich
from poslab.positions.shaw import Shaw
from poslab.positions.transformer_xl import TransformerXL

LENGTH = 20
NEEDS = "needs transformers, in the extra 'bench'"
both_directions = pytest.mark.parametrize("causal", [True, False])


def shape_of(heads: int, causal: bool = True, head_dim: int = 4, layers: int = 2) -> ModelShape:
    return ModelShape(LENGTH, heads * head_dim, layers, heads, causal)


def bias_of(scheme: PositionScheme, tables: dict[str, Tensor], shape: ModelShape, layer: int = 0) -> Tensor:
    """Return the bias of each pair, (H, T, T), all of them looked up."""
    terms = scheme.relative(tables, shape, layer, shape.distances)
    return terms.dense_bias(LENGTH, LENGTH)[0]


def attention(scheme: PositionScheme, tables: dict[str, Tensor], shape: ModelShape, q: Tensor, k: Tensor) -> Tensor:
    """The attention of the last layer, with k for values."""
    layer, positions = shape.num_layers - 1, torch.arange(q.shape[-2])
    terms = scheme.relative(tables, shape, layer, shape.distances)
    q = scheme.query(tables, layer, q, positions)
    return attend(q, scheme.key(tables, layer, k, positions), k, terms, causal=shape.causal)


@pytest.mark.parametrize(
    ("heads", "exponents"),
    [
        (8, [1, 2, 3, 4, 5, 6, 7, 8]),  # the paper's example
        (4, [2, 4, 6, 8]),
        (1, [8]),
        (6, [2, 4, 6, 8, 1, 3]),
        (12, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5]),
    ],
)
def test_slopes_of_alibi(heads: int, exponents: list[float]) -> None:
    bias = bias_of(ALiBi(), {}, shape_of(heads))
    assert torch.allclose(bias[:, 5, 4], -(2.0 ** -torch.tensor(exponents, dtype=torch.float64)), atol=1e-15)


@pytest.mark.parametrize("heads", range(1, 21))
def test_alibi_equals_bloom(heads: int) -> None:
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom", reason=NEEDS)
    by_key = bloom.build_alibi_tensor(torch.ones(1, LENGTH), heads, torch.float32)[:, 0].double()  # (H, T): slope * j
    expected = by_key[:, None] - by_key[..., None]  # (H, T, T): less what is the same for all keys of a query
    ours = bias_of(ALiBi(), {}, shape_of(heads))
    assert torch.allclose(ours.tril(), expected.tril(), rtol=1e-5)


@pytest.mark.parametrize("kernel", ["log", "power"])
@pytest.mark.parametrize("share_layers", [True, False])
def test_kerple_is_the_kernel_of_the_paper(kernel: str, share_layers: bool) -> None:
    scheme, shape = Kerple(kernel, share_layers), shape_of(3)
    # Tables of any sign: what the kernel takes of them is positive, an exponent no more than 2.
    tables = {name: 3 * torch.randn_like(table.double()) for name, table in scheme.tables(shape).items()}
    for layer in range(2):
        r1, r2 = (tables[name] if share_layers else tables[name][layer] for name in ("r1", "r2"))
        bias = bias_of(scheme, tables, shape, layer)
        for head in range(3):
            p, a = abs(r1[head].item()), abs(r2[head].item())
            if kernel == "power":
                p, a = 2 / (1 + math.exp(-r2[head].item())), p
            for d in range(LENGTH):
                expected = -p * math.log(1 + a * d) if kernel == "log" else -a * d**p
                assert math.isclose(bias[head, -1, -1 - d], expected, rel_tol=1e-12)


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


def test_sandwich_is_the_authors_code() -> None:
    """Appendix E: sinusoidal positions, their inner products, a compression per head."""
    heads, dimensions = 6, 10
    position, m = torch.arange(LENGTH).double()[:, None], torch.arange(dimensions // 2).double()
    angles = position / 10000 ** (2 * m / dimensions)
    embedded = torch.cat([angles.sin(), angles.cos()], dim=-1)
    expected = (embedded @ embedded.T) / (torch.arange(1, heads + 1).double() * 8 / heads)[:, None, None]
    ours = bias_of(Sandwich(dimensions), {}, shape_of(heads, causal=False))
    difference = ours - expected  # a constant of each head, which no softmax notices
    assert torch.allclose(difference, difference[:, :1, :1], atol=1e-12)


@both_directions
def test_music_is_shaw_without_a_clip(causal: bool) -> None:
    shape = shape_of(3, causal)
    music = MusicTransformer()
    tables = {name: torch.randn_like(table.double()) for name, table in music.tables(shape).items()}
    shaw = Shaw(max_distance=LENGTH - 1, values=False, share_heads=False)
    assert shaw.tables(shape)["keys"].shape == tables["keys"].shape
    q, k = torch.randn(2, 1, 3, LENGTH, 4, dtype=torch.float64)
    assert torch.equal(attention(music, tables, shape, q, k), attention(shaw, tables, shape, q, k))


@both_directions
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
    ours = attention(scheme, tables, shape, q, k)  # (B, H, T, Dh)
    assert torch.allclose(ours, theirs.permute(1, 2, 0, 3), atol=1e-5)


@pytest.mark.parametrize(
    ("scheme", "causal", "tables"),
    [
        (Kerple(), True, 2 * 3),
        (Kerple("power", share_layers=False), True, 2 * 2 * 3),
        (MusicTransformer(), True, 2 * 3 * LENGTH * 4),
        (MusicTransformer(), False, 2 * 3 * (2 * LENGTH - 1) * 4),
        (TransformerXL(), True, 2 * (2 * 3 * 4 + 12 * 12)),
        (ALiBi(), True, 0),
        (Sandwich(), False, 0),
    ],
)
def test_parameter_count(scheme: PositionScheme, causal: bool, tables: int) -> None:
    sizes = {"vocab_size": 5, "context_length": LENGTH, "embed_dim": 12, "num_layers": 2, "num_heads": 3}
    assert GPT(scheme, causal=causal, **sizes).parameter_counts()["scheme"] == tables


@pytest.mark.parametrize(
    ("make", "option"),
    [
        (lambda: Kerple("exponential"), "kernel"),
        (lambda: Sandwich(7), "dimensions"),
        (lambda: Sandwich(0), "dimensions"),
        (lambda: GPT(TransformerXL(), vocab_size=5, embed_dim=9, num_layers=1, num_heads=3), "embed_dim"),
    ],
)
def test_refuses(make: object, option: str) -> None:
    with pytest.raises(SettingError) as refusal:
        make()
    assert refusal.value.option == option
