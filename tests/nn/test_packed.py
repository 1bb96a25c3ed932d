"""Packed batches: `Attention` keeps documents apart, by itself and in layers of transformers."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from common import SOUND, make_scheme, moved
from torch import Tensor

from poslab.attention.documents import positions_within
from poslab.errors import SettingError
from poslab.nn import ALiBi, Attention, Position, Shaw

transformers = pytest.importorskip("transformers")

from models_of_transformers import ATTENTION_ALONE, V, gpt2, llama, register  # noqa: E402

registered = pytest.fixture(scope="module", autouse=True)(register)

H, DH = 4, 8
DOCUMENTS = torch.tensor([[0, 0, 0, 0, 1, 2, 2, 2, 2, 2], [3, 3, 3, 3, 3, 3, 3, 7, 7, 8]])
T, POSITIONS = DOCUMENTS.shape[1], positions_within(DOCUMENTS)
MASK = DOCUMENTS - DOCUMENTS[:, :1] + 1


def tensors() -> list[Tensor]:
    return [*torch.randn(3, 2, H, T, DH, dtype=torch.float64).unbind(), torch.randn(2, T, H * DH, dtype=torch.float64)]


def alone(attention: Attention, q: Tensor, k: Tensor, v: Tensor, x: Tensor) -> Tensor:
    out = torch.zeros_like(q)
    for b, row in enumerate(DOCUMENTS):
        for n in row.unique():
            at = (row == n).nonzero()[:, 0]
            out[b : b + 1, :, at] = attention(*(y[b : b + 1, :, at] for y in (q, k, v)), x=x[b : b + 1, at])
    return out


def close(found: Tensor, expected: Tensor) -> bool:
    return torch.allclose(found, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", SOUND)
@pytest.mark.parametrize("causal", [True, False])
def test_documents_are_told_by_positions_by_numbers_or_by_a_mask(name: str, causal: bool) -> None:
    sizes: dict[str, Any] = {"heads": H, "head_dim": DH, "layers": 2, "causal": causal, "context_length": T}
    position, (q, k, v, x) = moved(Position(make_scheme(name), **sizes).double(), 0.3), tensors()
    attention = Attention(position)
    expected = alone(attention, q, k, v, x)
    told: list[dict[str, Tensor]] = [{"positions": POSITIONS}, {"documents": DOCUMENTS}, {"mask": MASK}]
    told += [{"positions": POSITIONS, "mask": torch.ones(2, T)}]
    for how in told:
        assert close(attention(q, k, v, x=x, **how), expected), how.keys()
    few = [y[:, ::2].repeat_interleave(2, 1) for y in (k, v)]
    grouped = attention(q, k[:, ::2], v[:, ::2], x=x, documents=DOCUMENTS)
    assert close(grouped, attention(q, *few, x=x, documents=DOCUMENTS))
    mixed = position.mix(x, documents=DOCUMENTS)
    for b, row in enumerate(DOCUMENTS):
        for n in row.unique():
            at = row == n
            assert close(mixed[b : b + 1, at], position.mix(x[b : b + 1, at]))
    if causal:
        assert close(attention(q[:, :, -4:], k, v, x=x, positions=POSITIONS), expected[:, :, -4:])
        assert close(attention(q[:, :, 5:6], k, v, x=x, positions=POSITIONS, offset=5), expected[:, :, 5:6])


@pytest.mark.parametrize("name", ["rope", "t5", "fire", "forgetting", "path", "cope", "scaled"])
def test_a_compiled_graph_keeps_them_apart(name: str) -> None:
    position, (q, k, v, x) = moved(Position(make_scheme(name), heads=H, head_dim=DH).double(), 0.3), tensors()
    attention = Attention(position)
    torch._dynamo.reset()
    compiled = torch.compile(attention, backend="eager")
    expected = alone(attention, q, k, v, x)
    for how in ({"positions": POSITIONS}, {"documents": DOCUMENTS}, {"mask": MASK}):
        assert close(compiled(q, k, v, x=x, **how), expected), how.keys()


def test_padding_is_none_of_them() -> None:
    attention, (q, k, v, x) = Attention(ALiBi(H)), tensors()
    expected = alone(attention, q, k, v, x)
    padded = [torch.cat([y[:, :, :2], y, y[:, :, :1]], 2) for y in (q, k, v)]
    mask = torch.nn.functional.pad(MASK, (2, 1))
    positions = torch.nn.functional.pad(POSITIONS, (2, 1))
    for how in ({"mask": mask}, {"mask": mask.clamp(max=1), "positions": positions}):
        assert close(attention(*padded, **how)[:, :, 2:-1], expected)
    one = torch.nn.functional.pad(torch.arange(T), (2, 1), value=1).expand(2, -1)  # as of one padded text
    found = attention(*padded, mask=mask.clamp(max=1), positions=one)
    assert close(found[:, :, 2:-1], attention(q, k, v))


@pytest.mark.parametrize("name", SOUND)
def test_no_queries_of_several_documents_give_an_empty_result(name: str) -> None:
    attention = Attention(Position(make_scheme(name), heads=H, head_dim=DH, layers=2, context_length=T).double())
    q, k, v, x = tensors()
    assert attention(q[:, :, :0], k, v, x=x, documents=DOCUMENTS).shape == (2, H, 0, DH)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.float16])
def test_a_mask_of_any_dtype(dtype: torch.dtype) -> None:
    attention, (q, k, v, _) = Attention(moved(Shaw(heads=H, head_dim=DH).double(), 0.3)), tensors()
    padded = torch.ones(2, T)
    padded[1, :3] = 0
    for mask in (MASK, padded):
        out = attention(q, k, v, mask=mask.to(dtype)) * (mask != 0)[:, None, :, None]
        assert close(out, attention(q, k, v, mask=mask) * (mask != 0)[:, None, :, None])


def test_arguments_that_tell_of_no_documents() -> None:
    attention, (q, k, v, _) = Attention(Shaw(H, DH)), tensors()
    wrong = [
        ({"documents": DOCUMENTS[:, 1:]}, "documents="),
        ({"documents": DOCUMENTS.flip(1)}, "documents="),
        ({"positions": POSITIONS // 2}, "positions="),
        ({"mask": MASK.flip(1)}, "mask="),
        ({"mask": MASK + 1}, "mask="),
    ]
    for how, problem in wrong:
        with pytest.raises(SettingError, match=f"^{problem}"):
            attention(q, k, v, **how)


def logits_alone(model: Any, texts: list[Tensor]) -> Tensor:
    return torch.cat([model(text[None]).logits for text in texts], 1)


@pytest.mark.parametrize("make", [gpt2, llama])
@pytest.mark.parametrize("name", ATTENTION_ALONE)
def test_a_packed_batch_in_transformers(name: str, make: Callable[..., Any]) -> None:
    """As its collator tells it, with a cache and without, and what is written after a packed prompt."""
    model, texts = make(make_scheme(name)), [torch.randint(1, V, (length,)) for length in (6, 1, 9)]
    expected = logits_alone(model, texts)
    for said in ({}, {"return_seq_idx": True}, {"return_flash_attn_kwargs": True}):
        collator = transformers.DataCollatorWithFlattening(return_position_ids=not said, return_tensors="pt", **said)
        batch = collator([{"input_ids": text.tolist()} for text in texts])
        batch.pop("labels")
        for use_cache in (False, True):
            assert torch.allclose(model(**batch, use_cache=use_cache).logits, expected, atol=2e-5), said
    ids, positions = torch.cat(texts)[None], torch.cat([torch.arange(len(text)) for text in texts])[None]
    other = ids.clone()
    other[:, :6] = other[:, :6] % (V - 1) + 1
    first, second = (model(x, position_ids=positions).logits[:, 6:] for x in (ids, other))
    assert torch.equal(first, second)
    how: dict[str, Any] = {"max_new_tokens": 5, "do_sample": False}
    written = model.generate(texts[-1][None], use_cache=False, **how)[:, -5:]
    for cache in ({"use_cache": False}, {}, {"cache_implementation": "static"}):
        found = model.generate(ids, position_ids=positions, **how, **cache)[:, -5:]
        assert torch.equal(found, written), cache


def test_rows_of_a_batch_and_gradients_in_transformers() -> None:
    model = gpt2(make_scheme("t5"))
    again = copy.deepcopy(model)
    ids = torch.randint(1, V, (2, T))
    model(ids, position_ids=POSITIONS).logits.square().sum().backward()
    for b, row in enumerate(DOCUMENTS):
        for n in row.unique():
            again(ids[b : b + 1, row == n]).logits.square().sum().backward()
    for mine, theirs in zip(model.parameters(), again.parameters(), strict=True):
        if theirs.grad is not None:
            assert mine.grad is not None
            assert (mine.grad - theirs.grad).abs().max() <= 1e-4 * theirs.grad.abs().max() + 1e-6


@pytest.mark.parametrize("make", [gpt2, llama])
@pytest.mark.parametrize("removed", [True, False])
def test_a_model_that_goes_back_to_attention_of_transformers(removed: bool, make: Callable[..., Any]) -> None:
    """Its layers get what they would have got without an `Attention`."""
    model = make(make_scheme("t5"))
    never = copy.deepcopy(model)
    for layer in never.modules():
        layer._forward_pre_hooks.clear()
        layer._forward_pre_hooks_with_kwargs.clear()
    for layer in [layer for layer in model.modules() if "attend" in layer._modules] if removed else []:
        del layer.attend
    tokens, positions = torch.randint(1, V, (1, 12)), torch.cat([torch.arange(5), torch.arange(7)])[None]
    for name in ("sdpa", "eager"):
        logits = []
        for each in (model, never):
            each.set_attn_implementation(name)
            cache = transformers.DynamicCache(config=each.config)
            first = each(tokens, position_ids=positions, past_key_values=cache, use_cache=True).logits
            settings = {"past_key_values": cache, "position_ids": positions[:, -1:] + 1}
            logits.append(torch.cat([first, each(tokens[:, :1], **settings).logits], 1))
        assert torch.equal(*logits)
