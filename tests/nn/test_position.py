"""Modules of position schemes: each is what `scheme_attention` computes, in one pass and token by token."""

import subprocess
import sys
from typing import Any

import pytest
import torch
from common import SOUND, make_scheme, moved
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.flex_attention import flex_attention

from poslab.attention import scheme_attention
from poslab.errors import SettingError
from poslab.nn import Attention, Fire, Position, Rotary, Shaw, T5Bias
from poslab.positions.cope import CoPE

H, DH, T = 4, 8, 24
every_scheme = pytest.mark.parametrize("name", SOUND)


@pytest.fixture(autouse=True)
def compiled_alone() -> None:
    torch._dynamo.reset()  # because graphs of other schemes count towards its limit of recompiling


def make_position(name: str, **sizes: Any) -> Position:
    sizes = {"heads": H, "head_dim": DH, "layers": 2, "context_length": T} | sizes
    return moved(Position(make_scheme(name), **sizes).double(), 0.3)


def is_bias(position: Position) -> bool:
    return "position(Tq, Tk)" in position.needs


def some_tensors(heads: int = H, length: int = T, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    """Return q, k, v and x."""
    size = 2, heads, length, DH
    return (*torch.randn(3, *size, dtype=dtype).unbind(), torch.randn(2, length, heads * DH, dtype=dtype))


def close(found: Tensor, expected: Tensor) -> bool:
    return torch.allclose(found, expected, rtol=0, atol=1e-10)


@every_scheme
@pytest.mark.parametrize("causal", [True, False])
def test_attention_is_that_of_the_scheme(name: str, causal: bool) -> None:
    position, (q, k, v, x) = make_position(name, causal=causal), some_tensors()
    attention, more = Attention(position), {"layer": 1, "num_layers": 2, "causal": causal}
    positions = torch.arange(T).expand(2, T)
    for given in (None, positions):
        expected = scheme_attention(position.scheme, position.own_tables, q, k, v, x=x, positions=given, **more)
        assert close(attention(q, k, v, x=x, positions=given, layer=1), expected)
    few_k, few_v = k[:, ::2], v[:, ::2]
    of_all = [y.repeat_interleave(2, 1) for y in (few_k, few_v)]
    assert close(attention(q, few_k, few_v, x=x), attention(q, *of_all, x=x))


@every_scheme
def test_a_text_read_token_by_token(name: str) -> None:
    position, (q, k, v, x) = make_position(name), some_tensors()
    attend = Attention(position)
    whole = attend(q, k, v, x=x)
    for t in range(T):
        one, so_far = slice(t, t + 1), slice(t + 1)
        step = attend(q[:, :, one], k[:, :, so_far], v[:, :, so_far], x=x[:, so_far])
        assert close(step, whole[:, :, one])
        assert close(attend(q[:, :, one], k, v, x=x, offset=t), step)  # keys behind it are as free places of a cache
    mixed, memory = position.mix(x), position.scheme.mixed_tokens - 1
    rows = [position.mix(x[:, t : t + 1], x[:, t - memory : t]) for t in range(memory, T)]
    assert close(torch.cat(rows, 1), mixed[:, memory:])
    embedded = position.embed(x)
    assert close(torch.cat([position.embed(x[:, t : t + 1], torch.tensor([t])) for t in range(T)], 1), embedded)
    assert close(position.embed(x, torch.arange(T).expand(2, T)), embedded)


@every_scheme
@pytest.mark.parametrize("causal", [True, False])
def test_a_padded_batch_is_its_texts_alone(name: str, causal: bool) -> None:
    """In outputs and gradients, and for the last queries of a cache, whose free places no mask names."""
    position, tensors = make_position(name, causal=causal), some_tensors()
    attention, before = Attention(position), [0, T - 9]
    q, k, v, x = (y.requires_grad_() for y in tensors)
    mask = torch.arange(T) >= torch.tensor(before)[:, None]
    whole = attention(q, k, v, x=x, mask=mask)
    of_texts = [[y[b : b + 1, ..., n:, :] for y in (q, k, v, x, whole)] for b, n in enumerate(before)]
    padded, alone = zip(*[(out, attention(*qkv, x=x)) for *qkv, x, out in of_texts], strict=True)
    assert all(map(close, padded, alone))
    learned = [*position.parameters(), *tensors]
    of_padded, of_alone = (
        torch.autograd.grad(sum(y.square().sum() for y in rows), learned, materialize_grads=True, allow_unused=True)
        for rows in (padded, alone)
    )
    assert all(map(close, of_padded, of_alone))
    if causal:
        last = attention(q[:, :, -5:-2], k, v, x=x, mask=mask[:, :-2])
        assert close(last, whole[:, :, -5:-2])
        behind = mask.flip(1)  # which no token of the text sees
        assert close(attention(q, k, v, x=x, mask=behind)[1:, :, :9], attention(q, k, v, x=x)[1:, :, :9])


@every_scheme
def test_rotations_and_biases_in_attention_of_torch(name: str) -> None:
    """Where `needs` says that they are all: scaled_dot_product_attention and flex_attention give what `Attention` does,
    with a cache, and at positions with gaps."""
    position, (q, k, v, _) = make_position(name), some_tensors()
    bias, rotates = is_bias(position), "rotate(q, k)" in position.needs
    if not bias:
        with pytest.raises(SettingError, match=r"^bias=\w+: .*needs"):
            position(T)
    if not rotates:
        with pytest.raises(SettingError, match=r"^rotate=\w+: .*needs"):
            position.rotate(q, k)
    gaps = torch.randperm(T - 3)[: T - 8].sort().values
    last = {"q_positions": gaps[-5:], "k_positions": gaps}
    count = len(gaps) if bias or rotates else 0
    q, k, v = q[:, :, -5:], k[:, :, :count], v[:, :, :count]
    if not count:
        return
    attention = Attention(position)
    for at, given in ((None, {}), (gaps, last)):
        expected = attention(q, k, v, positions=at)
        turned = position.rotate(q, k, **given) if rotates else (q, k)
        mask = torch.ones(5, count, dtype=torch.bool).tril(count - 5)
        if bias:
            mask = position(5, count) if at is None else position.at(**given)
        assert close(F.scaled_dot_product_attention(*turned, v, attn_mask=mask), expected)
        if bias and at is None:
            mod = position.score_mod(count, offset=count - 5)
            assert close(flex_attention(*turned, v, score_mod=mod), expected)


@pytest.mark.parametrize("name", [name for name in SOUND if is_bias(make_position(name))])
def test_score_mod_brings_gradients_to_the_tables(name: str) -> None:
    """As flex_attention has them on CUDA: those of the dense bias."""
    position = make_position(name)
    index = torch.arange(T)
    scores, h, i, j = torch.zeros(H, T, T), torch.arange(H)[:, None, None], index[:, None], index
    weights = torch.randn(H, T, T, dtype=torch.float64)
    by_mod = position.score_mod(T, offset=torch.tensor(0))(scores.double(), torch.tensor(0), h, i, j)
    tables = [*position.parameters()]
    seen = weights.tril()
    found, expected = (
        torch.autograd.grad((bias.nan_to_num(neginf=0.0) * seen).sum(), tables, allow_unused=True) if tables else ()
        for bias in (by_mod, position(T)[0])
    )
    assert close(by_mod.nan_to_num(neginf=0.0), position(T)[0].nan_to_num(neginf=0.0))
    for mine, theirs in zip(found, expected, strict=True):
        assert (mine is None and theirs is None) or close(mine, theirs)


@every_scheme
def test_results_are_of_the_inputs_precision(name: str) -> None:
    """And the tables stay in float32; so they do in a state dict and back. The embedding is wider than the heads."""
    sizes = {"heads": H, "head_dim": DH, "context_length": T, "embed_dim": 40}
    position = Position(make_scheme(name), **sizes)
    q, k, v, _ = some_tensors(dtype=torch.bfloat16)
    x = torch.randn(2, T, 40, dtype=torch.bfloat16)
    assert Attention(position)(q, k, v, x=x).dtype == torch.bfloat16
    assert position.mix(x).dtype == position.embed(x).dtype == torch.bfloat16
    assert {table.dtype for table in position.parameters()} <= {torch.float32}
    again = Position(make_scheme(name), **sizes)
    again.load_state_dict(position.state_dict())
    assert all(torch.equal(table, again.own_tables[name]) for name, table in position.own_tables.items())
    if is_bias(position):
        assert position(T).dtype == torch.float32
        assert position(T, dtype=torch.bfloat16).dtype == torch.bfloat16
        assert position.double()(T).dtype == torch.float64


@every_scheme
def test_on_the_meta_device(name: str) -> None:
    with torch.device("meta"):
        position = Position(make_scheme(name), heads=H, head_dim=DH, context_length=T)
    assert all(table.is_meta for table in position.parameters())
    if is_bias(position):
        assert position(T).is_meta
    position.to_empty(device="cpu").reset_parameters()
    q, k, v, x = some_tensors(dtype=torch.float32)
    assert Attention(position)(q, k, v, x=x).isfinite().all()


@every_scheme
def test_no_graph_breaks(name: str) -> None:
    position = make_position(name)
    attention, compiled = Attention(position), torch.compile(Attention(position), fullgraph=True, backend="eager")
    for length in (T, T - 5):
        q, k, v, x = some_tensors(length=length)
        assert close(compiled(q, k, v, x=x), attention(q, k, v, x=x))
        if is_bias(position):
            assert torch.equal(torch.compile(position, fullgraph=True, backend="eager")(length), position(length))


def test_no_graph_breaks_with_explicit_positions() -> None:
    rotary, (q, k, v, _) = Rotary(DH), some_tensors()
    at = {"q_positions": torch.arange(5, 5 + T), "k_positions": torch.arange(T).expand(2, T)}
    compiled = torch.compile(rotary, fullgraph=True, backend="aot_eager")
    assert all(map(close, compiled(q, k, **at), rotary(q, k, **at)))
    turned = Attention(Position(rotary.scheme, heads=H, head_dim=DH))
    alone = torch.compile(turned, fullgraph=True, backend="aot_eager")
    assert close(alone(q, k, v, positions=at["q_positions"]), turned(q, k, v, positions=at["q_positions"]))


def test_no_graph_breaks_of_few_queries() -> None:
    """CoPE asks how far its gates reach, which depends on their values."""
    attention, (q, k, v, _) = Attention(Position(CoPE(3), heads=H, head_dim=DH)), some_tensors()
    compiled = torch.compile(attention, fullgraph=True, backend="eager")
    assert close(compiled(q[:, :, -2:], k, v), attention(q, k, v)[:, :, -2:])


def test_gaps_in_a_compiled_graph() -> None:
    """Tables by distance need a look at the positions, which breaks the graph and changes nothing."""
    attention, (q, k, v, _) = Attention(make_position("shaw")), some_tensors()
    gaps = torch.arange(T) * 3
    compiled = torch.compile(attention, backend="eager")
    assert close(compiled(q, k, v, positions=gaps), attention(q, k, v, positions=gaps))
    assert not close(attention(q, k, v), attention(q, k, v, positions=gaps))


@pytest.mark.slow
@pytest.mark.parametrize("position", [T5Bias(H), Fire(H), T5Bias(H, num_buckets=16, max_distance=60, causal=False)])
def test_compiled_by_inductor(position: Position) -> None:
    """In whichever bucket a distance falls: logarithms of a compiler and torch's are the same."""
    for length in (7, 200):
        compiled = torch.compile(position, fullgraph=True)(length)
        assert torch.allclose(compiled, position(length), atol=1e-6)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"q": (2, T, H, DH)}, r"q=\[2,24,4,8\]: must be .* seems to be \(B, T, H, Dh\): give q.transpose\(1, 2\)"),
        ({"k": (2, T, H, DH)}, r"k=.*: give k.transpose\(1, 2\)"),
        ({"v": (2, T, 2, DH)}, r"v=.*: give v.transpose\(1, 2\)"),
        ({"k": (2, 3, T, DH)}, r"k=\[2,3,24,8\]: must be \(B, H, T, Dh\) with H=4, or for keys a divisor of it"),
        ({"q": (2, H, T, 9)}, r"q=\[2,4,24,9\]: must be \(B, H, T, Dh\) with Dh=8"),
        ({"q": (H, T, DH)}, r"q=\[4,24,8\]: must be \(B, H, T, Dh\) with Dh=8"),
    ],
)
def test_another_layout(change: dict[str, tuple[int, ...]], problem: str) -> None:
    sizes = dict.fromkeys("qkv", (2, H, T, DH)) | change
    with pytest.raises(SettingError, match=f"^{problem}$"):
        Attention(Shaw(H, DH))(*(torch.zeros(size) for size in sizes.values()))


def test_arguments_that_do_not_fit() -> None:
    q, k, v, x = some_tensors(dtype=torch.float32)
    short = Position(make_scheme("absolute"), heads=H, head_dim=DH, context_length=T - 1)
    attention, future, ones = Attention(Shaw(H, DH)), Attention(Shaw(H, DH, causal=False)), torch.ones(2, T)
    wrong = [
        (lambda: Attention(make_position("forgetting"))(q, k, v), "x=null: Forgetting looks at what enters"),
        (lambda: Attention(make_position("canon"))(q, k, v), "x=null: Canon mixes what enters attention"),
        (lambda: attention(q, k, v, offset=1), "offset=1: must be 0, or between 0 and that"),
        (lambda: future(q[:, :, :3], k, v, offset=1), "offset=1: must be 21, or"),
        (lambda: attention(q, k, v, positions=torch.arange(3)), r"positions=\[3\]: .* with T=24$"),
        (lambda: attention(q, k[:, :, 1:], v[:, :, 1:]), r"k=.*: must have the keys of all 24 queries"),
        (lambda: attention(q, k, v[:, :, 1:]), r"v=.*: must have as many heads and tokens as k=\[2, 4, 24, 8\]"),
        (lambda: T5Bias(H)(3, 2), "offset=-1: must be at least 0, because the first query"),
        (
            lambda: attention(q, k, v, mask=torch.ones(2, H, T)),
            r"mask=\[2,4,24\]: must be \(B, N\) with B=2, for",
        ),
        (lambda: attention(q, k, v, mask=torch.ones(2, T - 1)), r"mask=\[2,23\]: must be \(B, N\)"),
        (lambda: attention(q, k, v, mask=torch.zeros(2, T)), "mask=.*: must be, in each row, ones for one text"),
        (lambda: attention(q, k, v, mask=ones * 2), "mask=.*: must be, in each row, ones for one text"),
        (lambda: attention(q, k, v, mask=(torch.arange(T) != 4).expand(2, T)), "mask=.*: must be, in each row, ones"),
        (lambda: attention(q, k, v, mask=ones, offset=1), "offset=1: must be 0, which the mask says"),
        (lambda: future(q, k, v, mask=(torch.arange(T) < 4).expand(2, T)), "mask=.*: has padding after a text, which"),
        (lambda: Attention(Shaw(H, DH), backend="fast"), "backend=fast: unknown"),
        (lambda: Attention(Shaw(H, DH), dropout=1.0), "dropout=1: must be at least 0 and below 1"),
        (lambda: attention(q, k, v, x=x[:, 1:]), r"x=.*: must be \(B, Tk, D\), of all 24 keys of 2 texts"),
        (lambda: attention(q, k, v, x=x[:1]), r"x=.*: must be \(B, Tk, D\), of all 24 keys of 2 texts"),
        (lambda: T5Bias(H).at(torch.tensor([0.5]), torch.tensor([0.0])), "positions=float32: must be whole"),
        (lambda: T5Bias(H).at(torch.tensor([-1]), torch.tensor([0])), "positions=.* must be numbers from 0 on"),
        (lambda: short.embed(x), "tokens=24 long: .* 23 positions"),
        (lambda: Rotary(DH)(q.mT.transpose(1, 2), k), r"q=.*: must be \(B, H, T, Dh\) with Dh=8"),
        (lambda: Rotary(DH)(q, k, q_positions=torch.arange(H)), r"q_positions=\[4\]: .*give x.transpose\(1, 2\)"),
        (lambda: T5Bias(H, num_buckets=1), "num_buckets=1: must be at least 2"),
    ]
    for call, problem in wrong:
        with pytest.raises(SettingError, match=f"^{problem}"):
            call()


def test_dropout_is_of_training_alone() -> None:
    attention, (q, k, v, _) = Attention(Shaw(H, DH), dropout=0.5).double(), some_tensors()
    assert not close(attention(q, k, v), attention(q, k, v))
    assert close(attention.eval()(q, k, v), attention(q, k, v))


def test_it_imports_torch_and_nothing_else_of_size() -> None:
    code = "import sys, poslab.nn; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    rooms = {name.split(".")[1] for name in loaded if name.startswith("poslab.")}
    assert rooms == {"attention", "checked", "errors", "nn", "positions", "processors"}
    heavy = "pytorch_lightning hydra omegaconf pydantic pandas scipy matplotlib tiktoken tensorboard datasets jinja2"
    assert not {*heavy.split(), "transformers"} & {*loaded}
    assert len([name for name in loaded if name.startswith("poslab")]) < 40
