"""No tokens, no queries, no texts: empty results of the right shape, and gradients of nothing, by every scheme."""

import pytest
import torch
from common import SOUND, make_scheme, moved
from torch import Tensor

from poslab import GPT
from poslab.attention import BACKENDS, attend, scheme_attention
from poslab.model.cache import KeyValueCache
from poslab.nn import Attention, Position

H, DH, T, V = 4, 8, 24, 9
every_scheme = pytest.mark.parametrize("name", SOUND)
either_direction = pytest.mark.parametrize("causal", [True, False])


def some_tensors() -> tuple[Tensor, ...]:
    """Return q, k, v and x."""
    q, k, v = torch.randn(3, 2, H, T, DH).unbind()
    return q.requires_grad_(), k, v, torch.randn(2, T, H * DH)


@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "flex"])
@pytest.mark.parametrize(("rows", "queries", "keys"), [(2, 0, 0), (2, 0, T), (0, T, T), (2, 3, 0)])
def test_attend(backend: str, rows: int, queries: int, keys: int) -> None:
    q, k, v, _ = some_tensors()
    q, k, v = q[:rows, :, :queries], k[:rows, :, :keys], v[:rows, :, :keys]
    out = attend(q, k, v, backend=backend)
    assert out.shape == q.shape
    assert not out.any()
    out.sum().backward()


@every_scheme
@either_direction
def test_modules(name: str, causal: bool) -> None:
    position = moved(Position(make_scheme(name), heads=H, head_dim=DH, context_length=T, causal=causal), 0.3)
    attention, (q, k, v, x) = Attention(position), some_tensors()
    empty = [y[:, :, :0] for y in (q, k, v)]
    nowhere, mask = torch.zeros(2, 0, dtype=torch.int64), torch.ones(2, 0)
    for more in ({}, {"positions": nowhere}, {"positions": nowhere[0]}, {"mask": mask}):
        out = attention(*empty, x=x[:, :0], **more)
        assert out.shape == (2, H, 0, DH)
        out.sum().backward()
    for more in ({}, {"positions": torch.arange(T)}, {"mask": torch.ones(2, T)}):
        assert attention(q[:, :, :0], k, v, x=x, **more).shape == (2, H, 0, DH)
    assert attention(q[:0], k[:0], v[:0], x=x[:0]).shape == (0, H, T, DH)
    assert attention(empty[0], *(y[:, :2] for y in empty[1:]), x=x[:, :0]).shape == (2, H, 0, DH)
    assert position.embed(x[:, :0]).shape == position.embed(x[:, :0], nowhere).shape == (2, 0, H * DH)
    assert position.mix(x[:, :0]).shape == (2, 0, H * DH)
    if "rotate(q, k)" in position.needs:
        assert [y.shape for y in position.rotate(empty[0], k)] == [empty[0].shape, k.shape]
        at = {"q_positions": nowhere, "k_positions": nowhere}
        assert position.rotate(empty[0], empty[1], **at)[1].shape == (2, H, 0, DH)
    if "position(Tq, Tk)" in position.needs:
        some = torch.arange(5)
        found = position(0), position(0, 5), position.at(nowhere, nowhere), position.at(some, nowhere, causal=False)
        assert [y.shape for y in found] == [(1, H, 0, 0), (1, H, 0, 5), (2, H, 0, 0), (2, H, 5, 0)]
        assert callable(position.score_mod(0))
    out = scheme_attention(position.scheme, position.own_tables, *empty, x=x[:, :0], causal=causal)
    assert out.shape == (2, H, 0, DH)


@every_scheme
@either_direction
def test_decoders(name: str, causal: bool) -> None:
    sizes = {"vocab_size": V, "context_length": T, "embed_dim": 32, "num_layers": 2, "num_heads": H, "dropout": 0.0}
    model, tokens = moved(GPT(make_scheme(name), causal=causal, **sizes), 0.3), torch.randint(V, (2, T))
    for mode in (model.train(), model.eval()):
        logits = mode(tokens[:, :0])
        assert logits.shape == mode(tokens[:, :0], positions=torch.arange(0)).shape == (2, 0, V)
        logits.sum().backward()
        assert mode(tokens[:0]).shape == (0, T, V)
    assert model.hidden_at(torch.zeros(2, 0, dtype=torch.bool), tokens[:, :0]).shape == (0, 32)
    if causal:
        cache, parts = KeyValueCache(), (tokens[:, :0], tokens[:, :9], tokens[:, 9:9], tokens[:, 9:])
        positions = model.position.text_positions(T)
        by_cache = torch.cat([model(part, cache) for part in parts], 1)
        expected = model(tokens) if positions is None else by_cache
        torch.testing.assert_close(by_cache, expected, rtol=0, atol=1e-4)
