"""Schemes in models of other people, a plain GPT and transformers' GPT-2: they train as in poslab's own."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from common import moved, python_in
from plain_gpt import Config, PlainGPT
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from poslab import GPT
from poslab.model.architectures import GPT2
from poslab.nn import ALiBi, Attention, Fire, Position, Shaw, T5Bias

transformers = pytest.importorskip("transformers")

V, T, D, L, H = 50, 32, 64, 2, 4
NAMED = {cls.__name__: cls for cls in (T5Bias, Shaw, Fire, ALiBi)}


@pytest.fixture(scope="module", autouse=True)
def page() -> dict[str, Any]:
    """The names that the page's code makes, which registers attention of transformers as a reader does."""
    names: dict[str, Any] = {"model": PlainGPT(Config())}
    for block in python_in("src/poslab/nn/README.md"):
        exec(block, names)
    return names


def plain(positions: list[Position]) -> nn.Module:
    model = PlainGPT(Config(V, T, L, H, D))
    for block, position in zip(model.transformer["h"], positions, strict=True):
        block.attn.attend = Attention(position)
    return model


def gpt2(positions: list[Position]) -> nn.Module:
    none = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    sizes = {"vocab_size": V, "n_positions": T, "n_embd": D, "n_layer": L, "n_head": H}
    ends = {"bos_token_id": 0, "eos_token_id": None}
    config = transformers.GPT2Config(**sizes, **none, **ends, attn_implementation="attend")
    model = transformers.GPT2LMHeadModel(config)
    for block, position in zip(model.transformer.h, positions, strict=True):
        block.attn.attend = Attention(position)
    return model


def with_weights(model: nn.Module, ours: GPT) -> nn.Module:
    """Give a model in GPT-2's names the weights of poslab's GPT, and no positions of its own."""
    weights = {}
    for here, (there,) in GPT2.theirs(ours).items():
        tensor = ours.state_dict()[here]
        weights[there] = tensor if isinstance(model, PlainGPT) else GPT2.layout(here, tensor, ours, False)
    left = model.load_state_dict(weights, strict=False)
    assert not left.unexpected_keys
    nn.init.zeros_(dict(model.named_parameters())["transformer.wpe.weight"]).requires_grad_(False)
    return model.double()


def positions_of(ours: GPT, named: Callable[..., Position]) -> list[Position]:
    """Return a module for each layer with its table, or one for all that share it."""
    if ours.pos.share_layers:
        shared = named(H, D // H).double()
        shared.load_state_dict({f"tables.{name}": table for name, table in ours.position.own_tables.items()})
        return [shared] * L
    layers, tables = [named(H, D // H).double() for _ in range(L)], ours.position.own_tables
    for layer, position in enumerate(layers):
        position.load_state_dict({f"tables.{name}": table[layer : layer + 1] for name, table in tables.items()})
    return layers


def trained(model: nn.Module, logits: Callable[[Tensor], Tensor], batches: Tensor) -> Tensor:
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.5)
    for tokens in batches:
        loss = F.cross_entropy(logits(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return logits(batches[0]).detach()


@pytest.mark.parametrize("make", [plain, gpt2])
@pytest.mark.parametrize("name", NAMED)
def test_it_trains_as_in_poslabs_gpt(name: str, make: Callable[[list[Position]], nn.Module]) -> None:
    named = NAMED[name]
    scheme = named(H, D // H).scheme
    sizes = {"vocab_size": V, "context_length": T, "embed_dim": D, "num_layers": L, "num_heads": H, "dropout": 0.0}
    ours = moved(GPT(scheme, **sizes).double(), 0.05)
    positions = positions_of(ours, named)
    theirs = with_weights(make(positions), ours)
    before = copy.deepcopy(positions[0].state_dict())
    batches = torch.randint(V, (5, 4, T))

    def logits(tokens: Tensor) -> Tensor:
        out = theirs(tokens)
        return out if isinstance(theirs, PlainGPT) else out.logits

    assert torch.allclose(logits(batches[0]), ours(batches[0]), atol=1e-6)
    found, expected = trained(theirs, logits, batches), trained(ours, ours, batches)
    assert torch.allclose(found, expected, atol=1e-6)
    # Not every table changes: what a bias adds to all keys alike has a gradient of 0, but for rounding.
    after, expected_after = positions[0].state_dict(), positions_of(ours, named)[0].state_dict()
    assert all(torch.allclose(table, expected_after[name], atol=1e-6) for name, table in after.items())
    assert not before or any(not torch.allclose(table, after[name]) for name, table in before.items())


@pytest.mark.parametrize("cache", [{}, {"cache_implementation": "static"}, {"use_cache": False}], ids=str)
@pytest.mark.parametrize("name", NAMED)
def test_gpt2_writes_with_a_cache_and_padded_what_it_writes_alone_without(name: str, cache: dict[str, Any]) -> None:
    model = moved(gpt2([NAMED[name](H, D // H) for _ in range(L)]), 0.1).eval()
    nn.init.zeros_(model.transformer.wpe.weight)  # because the library counts padding as positions of a text alone
    texts, how = [torch.randint(1, V, (length,)) for length in (9, 4, 1)], {"do_sample": False, "pad_token_id": 0}
    alone = [model.generate(text[None], max_new_tokens=12, use_cache=False, **how)[0, len(text) :] for text in texts]
    rows = [F.pad(torch.stack([text, torch.ones_like(text)]), (9 - len(text), 0)) for text in texts]
    tokens, mask = torch.stack(rows, 1)
    written = model.generate(tokens, attention_mask=mask, max_new_tokens=12, **cache, **how)
    assert torch.equal(written[:, 9:], torch.stack(alone))


@pytest.mark.parametrize("layers", [2, 12])
@pytest.mark.parametrize("shared", ["position", "attention", "parameter", "bias"])
def test_a_shared_table_is_saved_once(shared: str, layers: int, tmp_path: Path) -> None:
    """By transformers, whichever modules share it, and loaded again, into all of them."""

    def make() -> Any:
        sizes = {"vocab_size": V, "n_positions": T, "n_embd": D, "n_layer": layers, "n_head": H}
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, attn_implementation="attend"))
        position = T5Bias(H, D // H)
        attention = Attention(position)
        for block in model.transformer.h:
            block.attn.attend = attention if shared == "attention" else Attention(position)
            if shared == "parameter":
                block.attn.attend = Attention(T5Bias(H, D // H))
                block.attn.attend.position.tables.bias = position.tables.bias
            if shared == "bias":
                block.attn.attend = position
        return model

    model, tokens = make(), torch.randint(V, (2, T))
    attends = [block.attn.attend for block in model.transformer.h]
    tables = {id(table) for attend in attends for table in attend.parameters()}
    assert len(tables) == 1
    model.save_pretrained(tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    (name,) = (name for name in saved if "tables" in name)
    table = next(attends[0].parameters())
    assert torch.equal(saved[name], table)
    again = make()
    assert not again.load_state_dict(saved, strict=False).unexpected_keys
    assert all(torch.equal(next(block.attn.attend.parameters()), table) for block in again.transformer.h)
    if shared != "bias":
        assert torch.equal(again.eval()(tokens).logits, model.eval()(tokens).logits)


def test_the_page(page: dict[str, Any]) -> None:
    """What its comments say, and that its models train."""
    tokens = torch.randint(50, (2, 32))
    assert [*page["models"]] == [*NAMED]
    page["model"](tokens).logsumexp(-1).sum().backward()
    for model in (page["gpt2"], *page["models"].values()):
        model(tokens, labels=tokens).loss.backward()
    of_models = [page["model"].transformer["h"], *(m.transformer.h for m in (page["gpt2"], *page["models"].values()))]
    for blocks, named in zip(of_models, (T5Bias, T5Bias, *NAMED.values()), strict=True):
        position = blocks[0].attn.attend.position
        assert type(position) is named
        assert all(table.grad.any() for table in position.parameters())
    assert "Attention(position)(q, k, v, x=x)" in Position(page["Forgetting"](), heads=4, head_dim=16).needs
    assert torch.allclose(page["step"], page["attention"](page["q"], page["k"], page["v"])[:, :, 9:10], atol=1e-6)
    assert torch.equal(page["step"], page["same"])
    assert torch.equal(page["mask"], page["bias"](32)[:, :, 9:10, :10])
    assert torch.allclose(
        page["out"],
        F.scaled_dot_product_attention(page["q"], page["k"], page["v"], attn_mask=page["position"](32)),
        atol=1e-6,
    )
    bias = page["bias"]
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=1, n_head=4, n_embd=64)).eval()
    assert not torch.allclose(model(tokens, attention_mask=bias(32)).logits, model(tokens).logits)
