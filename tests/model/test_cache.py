"""Reading with a cache is reading: for every scheme, the logits are those of the full pass, however the text comes."""

import numpy as np
import pytest
import torch
from common import SCHEMES, VARIANTS, make_scheme
from foreign_schemes import Abacus
from refusals import refused
from strong_models import CONTEXT, NAMES, SIZES, close, some_tokens, strong_model, with_window
from torch import Tensor

from poslab import GPT
from poslab.errors import SettingError
from poslab.model.cache import KeyValueCache
from poslab.model.memory import MemoryGPT

ONE_BY_ONE, UNEVEN, PROMPT_AND_ONE = [1] * 40, [3, 1, 20, 1, 15], [39, 1]


def in_chunks(model: GPT, tokens: Tensor, sizes: list[int], cache: KeyValueCache) -> Tensor:
    """Return logits (B, T, V) of tokens (B, T), read in chunks of these sizes."""
    return torch.cat([model(chunk, cache) for chunk in tokens.split(sizes, dim=1)], dim=1)


every_scheme = pytest.mark.parametrize("name", NAMES)


@every_scheme
@pytest.mark.parametrize(("window", "sizes"), [(7, ONE_BY_ONE), (None, UNEVEN)])
def test_rows_of_unequal_length_are_each_their_own_text(name: str, sizes: list[int], window: int | None) -> None:
    model = strong_model(name)
    padding = torch.tensor([0, 11, 38])
    tokens = some_tokens(3, CONTEXT)
    found = in_chunks(model, tokens, sizes, KeyValueCache(window, padding))
    assert found.isfinite().all()
    for row, own, skipped in zip(tokens, found, padding.tolist(), strict=True):
        text = row[None, skipped:]
        expected = model(text) if window is None else with_window(model, text, window)
        assert close(own[None, skipped:], expected)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_cache_serves_other_settings(name: str) -> None:
    test_rows_of_unequal_length_are_each_their_own_text(name, UNEVEN, window=7)


@every_scheme
@pytest.mark.parametrize(("window", "sizes"), [(1, UNEVEN), (13, PROMPT_AND_ONE)])
def test_a_window_hides_what_is_older(name: str, window: int, sizes: list[int]) -> None:
    model = strong_model(name)
    tokens = some_tokens(2, CONTEXT)
    found = in_chunks(model, tokens, sizes, KeyValueCache(window))
    assert close(found, with_window(model, tokens, window))
    if window == 1:  # even a scheme that sees hardly more than its neighbours notices
        assert not close(found, model(tokens))


@every_scheme
def test_past_the_context(name: str) -> None:
    """Any number of tokens, in a window of the context; or an error that names the last position."""
    context, length = 12, 60
    model, tokens, cache = strong_model(name, context_length=context), some_tokens(1, length), KeyValueCache(context)
    longest = model.pos.max_length(model.shape)
    if longest is None or longest >= length:
        found = in_chunks(model, tokens, [context, *[1] * (length - context)], cache)
        assert close(found, with_window(model, tokens, context))
        assert max(layer.keys.buffer.shape[-2] for layer in cache.read) <= 4 * context  # old keys are dropped
    else:
        in_chunks(model, tokens[:, :longest], [longest - 3, 3], cache)
        with pytest.raises(SettingError, match=rf"\b{longest + 1}\b.*\b{longest}\b"):
            model(tokens[:, :1], cache)


def test_a_cache_keeps_no_gradients() -> None:
    assert not strong_model("mixed").hidden(some_tokens(1, 5), KeyValueCache()).requires_grad


def test_a_model_that_sees_the_future_has_no_cache() -> None:
    model = GPT(make_scheme(SCHEMES[0]), causal=False, **SIZES)
    with refused("cache", "given"):
        model(some_tokens(1, 3), KeyValueCache())


def test_terms_are_made_a_few_times_and_not_for_each_token(monkeypatch: pytest.MonkeyPatch) -> None:
    model = strong_model("mixed")
    made: list[int] = []
    make = model.position.terms
    monkeypatch.setattr(model.position, "terms", lambda reach, **at: (made.append(reach.stop), make(reach, **at))[1])
    in_chunks(model, some_tokens(1, 100), [10, *[1] * 90], KeyValueCache(64))
    assert made == [20, 42, 64]


def test_embeddings_by_the_ids_of_a_text_so_far() -> None:
    """A digit's place in its number, over the whole text, at positions of each row, and by cache within segments."""
    text = torch.tensor([[3, 40, 1, 2, 3, 40, 41, 7, 7, 7, 7, 7, 7, 7]])
    places = [1, 0, 1, 2, 3, 0, 0, 1, 2, 3, 4, 5, 6, 6]
    found = Abacus().embed({"place": torch.arange(7.0)[:, None]}, torch.zeros(1, 14, 1), torch.arange(14), text)
    assert found[0, :, 0].tolist() == places
    model, rows = strong_model("abacus"), torch.cat([text, text.flip(1)])
    assert close(model(rows, positions=torch.arange(14).repeat(2, 1)), model(rows))
    remembering = strong_model("abacus", MemoryGPT, context_length=5, memory_length=4)
    cache = remembering.new_cache()
    by_cache = [remembering.hidden(part, cache) for part in rows.split([4, 1, 3, 6], dim=1)]
    assert close(torch.cat(by_cache, dim=1), remembering.hidden_in_segments(rows)[0])


def test_positions_of_numpy_may_change_between_passes() -> None:
    model, tokens, numbers = strong_model("rope"), some_tokens(1, 4), np.arange(4)
    given = torch.from_numpy(numbers)
    model(tokens, positions=given)
    numbers *= 2
    assert torch.equal(model(tokens, positions=given), model(tokens, positions=given.clone()))
