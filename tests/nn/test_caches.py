"""Attention in GPT-2 and Llama of transformers: with each of its caches what it writes without, alone and padded."""

import copy
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from common import make_scheme
from torch import Tensor

from poslab.nn import Attention, T5Bias, text_mask
from poslab.positions.layers import Entry, Layers

transformers = pytest.importorskip("transformers")

from models_of_transformers import (  # noqa: E402
    ATTENTION_ALONE,
    SIZES,
    D,
    H,
    L,
    NoRotation,
    V,
    gpt2,
    llama,
    register,
    with_scheme,
)

WINDOW = 7
NEW = 9  # tokens
registered = pytest.fixture(scope="module", autouse=True)(register)


def written(model: Any, tokens: Tensor, mask: Tensor | None = None, **cache: Any) -> Tensor:
    """Return the logits of each new token, (NEW, B, V)."""
    how: dict[str, Any] = {"max_new_tokens": NEW, "do_sample": False, "return_dict_in_generate": True}
    how |= {"output_logits": True} | ({} if mask is None else {"attention_mask": mask})
    return torch.stack(model.generate(tokens, **how, **cache).logits)


def close(found: Tensor, expected: Tensor) -> bool:
    return torch.allclose(found, expected, rtol=0, atol=2e-4)


def sliding(model: Any, kinds: list[str]) -> tuple[Any, Any]:
    """Return caches, one that grows and one of fixed size, whose layers keep so much as their kinds say."""
    config = copy.deepcopy(model.config)
    config.layer_types, config.sliding_window = kinds, WINDOW
    return transformers.DynamicCache(config=config), transformers.StaticCache(config=config, max_cache_len=30)


def test_a_llama_whose_rotary_embedding_is_switched_off_as_on_the_page_has_none() -> None:
    model, tokens = llama(make_scheme("shaw")), torch.randint(1, V, (2, 11))
    logits = model(tokens).logits
    model.model.rotary_emb = NoRotation()
    assert torch.equal(model(tokens).logits, logits)


@pytest.mark.parametrize("make", [gpt2, llama])
@pytest.mark.parametrize("name", ATTENTION_ALONE)
def test_a_cache_of_all_keys(name: str, make: Any) -> None:
    model, tokens = make(make_scheme(name)), torch.randint(1, V, (2, 11))
    mask = torch.ones_like(tokens)
    mask[1, :4] = 0
    texts = [tokens[:1], tokens[1:, 4:]]
    alone = [written(model, text, use_cache=False) for text in texts]
    assert close(written(model, tokens, mask, use_cache=False), torch.cat(alone, 1))
    static = {"cache_implementation": "static"}
    others = [
        {"cache_implementation": kind} for kind in ("hybrid", "sliding_window")
    ]  # which keep all that is asked of
    for cache in ({}, static, static | {"max_cache_len": 30}, static | {"prefill_chunk_size": 4}, *others):
        assert close(written(model, tokens, mask, **cache), torch.cat(alone, 1)), cache
        assert close(written(model, texts[0], **cache), alone[0]), cache
        assert close(written(model, texts[0], mask[:1], **cache), alone[0]), cache


class LosslesslyQuantized(transformers.cache_utils.QuantizedLayer):
    """Layer of transformers' quantized cache, which keeps the newest keys apart from the others, with exact numbers."""

    def _quantize(self, tensor: Tensor, axis: int) -> Tensor:
        return tensor.clone()

    def _dequantize(self, q_tensor: Tensor) -> Tensor:
        return q_tensor


@pytest.mark.parametrize("make", [gpt2, llama])
@pytest.mark.parametrize("name", ATTENTION_ALONE)
def test_a_cache_that_is_quantized(name: str, make: Any) -> None:
    model, tokens = make(make_scheme(name)), torch.randint(1, V, (2, 11))
    mask = torch.ones_like(tokens)
    mask[1, :4] = 0
    alone = [written(model, text, use_cache=False) for text in (tokens[:1], tokens[1:, 4:])]

    def cache() -> Any:
        return transformers.Cache(layers=[LosslesslyQuantized(residual_length=3) for _ in range(L)])

    assert close(written(model, tokens[:1], cache=cache()), alone[0])
    assert close(written(model, tokens, mask, cache=cache()), torch.cat(alone, 1))


class NoStream(nullcontext[None]):
    def wait_stream(self, other: Any) -> None:
        pass


@pytest.mark.parametrize("make", [gpt2, llama])
@pytest.mark.parametrize("name", ["t5", "alibi", "rope", "shaw", "kerple", "fire", "sink"])
def test_a_cache_that_is_offloaded(name: str, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Layer by layer, by streams of CUDA, in whose place here is nothing: what is offloaded is there at once."""
    monkeypatch.setattr(torch, "Stream", NoStream)
    monkeypatch.setattr(torch.cuda, "default_stream", lambda device: NoStream())
    model, tokens = make(make_scheme(name)), torch.randint(1, V, (2, 11))
    mask = torch.ones_like(tokens)
    mask[1, :4] = 0
    alone = [written(model, text, use_cache=False) for text in (tokens[:1], tokens[1:, 4:])]
    for kind in ("offloaded", "offloaded_static"):
        assert close(written(model, tokens[:1], cache_implementation=kind), alone[0]), kind
        assert close(written(model, tokens, mask, cache_implementation=kind), torch.cat(alone, 1)), kind


@pytest.mark.parametrize("make", [gpt2, llama])
@pytest.mark.parametrize("name", ["t5", "alibi", "rope", "shaw", "kerple", "fire", "sink"])
@pytest.mark.parametrize("windows", [(WINDOW, WINDOW), (WINDOW, None), (None, WINDOW)])
def test_a_cache_that_slides(name: str, windows: tuple[int | None, ...], make: Any) -> None:
    """In all layers, or in some, whose scheme has that window."""
    scheme = Layers(layers=tuple(Entry(make_scheme(name), window) for window in windows))
    model, tokens = make(scheme), torch.randint(1, V, (2, 11))
    kinds = ["full_attention" if window is None else "sliding_attention" for window in windows]
    mask = torch.ones_like(tokens)
    mask[1, :4] = 0
    texts = [tokens[:1], tokens[1:, 4:]]
    alone = [written(model, text, use_cache=False) for text in texts]
    for number in (0, 1):
        assert close(written(model, texts[0], cache=sliding(model, kinds)[number]), alone[0]), number
        assert close(written(model, tokens, mask, cache=sliding(model, kinds)[number]), torch.cat(alone, 1)), number


@pytest.mark.parametrize("name", ["t5", "rope", "fire"])
def test_free_places_that_no_mask_names(name: str) -> None:
    """Where attention is registered without `text_mask`: keys at the end that are zeros are none."""
    model, tokens = gpt2(make_scheme(name)), torch.randint(1, V, (2, 11))
    expected = written(model, tokens, use_cache=False)
    transformers.AttentionMaskInterface.register("attend", lambda attention_mask=None, **_: attention_mask)
    try:
        assert close(written(model, tokens, cache_implementation="static"), expected)
    finally:
        transformers.AttentionMaskInterface.register("attend", text_mask)
    attention = Attention(T5Bias(heads=H))
    q, k, v = torch.randn(3, 2, H, 9, 8).unbind()
    whole = attention(q, k, v)
    room = torch.zeros(2, H, 4, 8)
    wider = [torch.cat([y, room], 2) for y in (k, v)]
    assert close(attention(q[:, :, 5:], *wider), whole[:, :, 5:])


def test_a_models_own_window() -> None:
    """As Mistral's, which gives it to its attention."""
    sizes = {"vocab_size": V, "hidden_size": D, "intermediate_size": 48, "num_hidden_layers": L, "sliding_window": 5}
    heads = {"num_attention_heads": H, "num_key_value_heads": 2, "max_position_embeddings": 64}
    model = transformers.MistralForCausalLM(transformers.MistralConfig(**sizes, **heads, **SIZES))
    model.model.rotary_emb = NoRotation()
    with_scheme(model, [layer.self_attn for layer in model.model.layers], make_scheme("alibi"))
    tokens = torch.randint(1, V, (2, 11))
    expected = written(model, tokens, use_cache=False)
    for cache in ({}, {"cache_implementation": "static"}):
        assert close(written(model, tokens, **cache), expected)
    with torch.no_grad():
        seen, changed = model(tokens).logits, model(tokens.index_fill(1, torch.tensor([0]), 3)).logits
    reach = L * 4 + 1  # of the first token, over two layers
    assert torch.equal(seen[:, reach:], changed[:, reach:])
