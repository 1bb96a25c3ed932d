"""The decoder by itself: shapes, initialisation, sizes that don't fit, generation."""

import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from common import RICHEST, SCHEMES, make_scheme
from refusals import refused

import poslab
from poslab import GPT
from poslab.errors import SettingError
from poslab.model.generate import generate
from poslab.positions import ModelShape, PositionScheme, RelativeTerms
from poslab.positions.absolute import Absolute
from poslab.training.summary import training_backend

SMALL = {"vocab_size": 61, "context_length": 16, "embed_dim": 24, "num_layers": 2, "num_heads": 2}


def import_in_a_process(modules: list[str], unwanted: str) -> None:
    check = f"import sys, {', '.join(modules)}; assert {unwanted!r} not in sys.modules"
    subprocess.run([sys.executable, "-c", check], check=True)


def test_poslab_alone_needs_no_torch() -> None:
    import_in_a_process(["poslab"], "torch")
    assert poslab.GPT is GPT
    assert poslab.positions.RelativeTerms
    with pytest.raises(AttributeError, match="nothing"):
        poslab.nothing  # noqa: B018


@pytest.mark.slow
def test_a_model_from_a_file_needs_no_lightning() -> None:
    commands = [f"poslab.commands.{name}" for name in ("evaluate", "explain", "generate")]
    import_in_a_process(commands, "pytorch_lightning")


def test_defaults_are_the_mini_model_and_gpt2_has_124_million_parameters() -> None:
    with torch.device("meta"):
        mini = GPT()
        gpt2 = GPT(Absolute(), context_length=1024, embed_dim=768, num_layers=12, num_heads=12)
    assert mini.parameter_counts()["trunk"] == 50257 * 256 + 4 * (12 * 256**2 + 13 * 256) + 2 * 256
    assert gpt2.parameter_counts()["total"] == 124_439_808


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", SCHEMES)
def test_hidden_at_computes_only_targets_and_nothing_else_changes(name: str, causal: bool) -> None:
    scheme = make_scheme(name)
    try:
        model = GPT(scheme, **SMALL, dropout=0.0, causal=causal).eval()
    except SettingError:
        pytest.skip("knows nothing but what came before")
    tokens, counting = torch.randint(0, 61, (3, 9)), torch.arange(9)
    by_row = counting.tile(3, 1) + torch.tensor([[0], [2], [5]])
    masks = [torch.rand(3, 9) < 0.3, counting.expand(3, 9) > 5, counting.expand(3, 9) == 8]
    for target_mask, positions in zip(masks, (None, by_row, counting.flip(0)), strict=True):
        target_mask = target_mask.clone()
        target_mask[1, 7] = True
        expected = model.hidden(tokens, positions=positions)[target_mask]
        weight = torch.randn_like(expected)
        grads = torch.autograd.grad((expected * weight).sum(), list(model.parameters()), allow_unused=True)
        found = model.hidden_at(target_mask, tokens, positions)
        others = torch.autograd.grad((found * weight).sum(), list(model.parameters()), allow_unused=True)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(others, grads, atol=1e-4, rtol=1e-4)


def test_hidden_at_of_all_tokens_has_the_bits_of_hidden() -> None:
    model = GPT(make_scheme(RICHEST), **SMALL)
    tokens = torch.randint(0, 61, (3, 9))
    model.eval()
    found = model.hidden_at(torch.ones(3, 9, dtype=torch.bool), tokens)
    assert torch.equal(found, model.hidden(tokens).flatten(0, 1))


@pytest.mark.parametrize(("init_std", "token_std"), [(0.02, 0.02), (0.05, 0.125)])
def test_initialisation_is_gpt2s(init_std: float, token_std: float) -> None:
    """Tokens, what a block adds to them, and learned positions keep their proportion with another std."""
    sizes = {"vocab_size": 997, "context_length": 96, "embed_dim": 128, "num_layers": 8, "num_heads": 4}
    model = GPT(Absolute(), init_std=init_std, **sizes)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert torch.equal(parameter, torch.zeros_like(parameter)), name
        elif "norm" in name:
            assert torch.equal(parameter, torch.ones_like(parameter)), name
        else:
            of_block = init_std / 4 if "project" in name else init_std  # 1 / sqrt(2 * 8 layers)
            expected = of_block if "blocks" in name else token_std
            assert abs(parameter.std().item() / expected - 1) < 0.05, name


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("num_heads", 5), ("num_heads", 0), ("context_length", 0), ("num_layers", -1), ("embed_dim", -4)),
        *(("vocab_size", 0), ("attention_backend", "flash")),
    ],
)
def test_impossible_settings(option: str, value: object) -> None:
    with pytest.raises(SettingError, match=f"^{option}={value}: "):
        GPT(**(SMALL | {option: value}))


@dataclass(frozen=True)
class LastLayerOnly(PositionScheme):
    """Values by distance in layer 1 and nothing before it."""

    def relative(self, tables: Any, shape: ModelShape, layer: int, distances: range) -> RelativeTerms | None:
        return RelativeTerms(0, 1, values=torch.zeros(2, shape.head_dim)) if layer == 1 else None


@dataclass(frozen=True)
class KeysByDistance(PositionScheme):
    def relative(self, tables: Any, shape: ModelShape, layer: int, distances: range) -> RelativeTerms:
        return RelativeTerms(0, 1, keys=torch.zeros(2, shape.head_dim))


def test_every_layer_is_asked_for_its_backend() -> None:
    with refused("attention_backend", "sdpa"):
        GPT(LastLayerOnly(), attention_backend="sdpa", **SMALL)
    model, cpu = GPT(LastLayerOnly(), dropout=0.0, **(SMALL | {"context_length": 300})), torch.device("cpu")
    assert training_backend(model, cpu) == "blockwise, sdpa"
    assert training_backend(GPT(LastLayerOnly(), **SMALL), cpu) == "reference"
    assert training_backend(GPT(dropout=0.0, attention_backend="blockwise", **SMALL), cpu) == "blockwise"


@pytest.mark.parametrize(("dtype", "backend"), [(torch.float32, "banded"), (torch.float64, "blockwise")])
def test_a_gpu_compiles_no_attention_in_float64(
    dtype: torch.dtype, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("poslab.attention.kernels.flex.flex_problem", lambda device: None)
    model = GPT(KeysByDistance(), dropout=0.0, **(SMALL | {"context_length": 600})).to(dtype)
    assert training_backend(model, torch.device("cuda")) == backend


def test_what_does_not_compile_trains_uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo.exc import TorchDynamoException

    def compiled(tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        raise TorchDynamoException("backend='inductor' raised:\nno kernel\nfor this")

    model, tokens = GPT(dropout=0.0, **SMALL), torch.randint(SMALL["vocab_size"], (2, 8))
    expected = model(tokens)
    monkeypatch.setattr(model, "_compiled", compiled)
    with pytest.warns(UserWarning, match="no kernel"):
        assert torch.equal(model(tokens), expected)
    assert torch.equal(model(tokens), expected)  # without another warning


@pytest.mark.slow
def test_what_compiles_forward_only_trains_uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backward pass that can't be compiled is found in the forward pass, where there is still another way."""

    from functorch.compile import nop
    from torch._dynamo.backends.common import aot_autograd

    def no_kernel(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        raise ValueError("no kernel")

    backend = aot_autograd(fw_compiler=nop, bw_compiler=no_kernel)
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    model, tokens = GPT(dropout=0.0, compile=True, **SMALL), torch.randint(SMALL["vocab_size"], (2, 8))
    with pytest.warns(UserWarning, match="ValueError: no kernel"):
        model(tokens).sum().backward()
    assert model.token_embedding.weight.grad is not None


@pytest.mark.slow
def test_many_models_of_a_process_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo.testing import CompileCounter

    compiled = CompileCounter()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=compiled))
    sizes = range(2, 20, 2)
    for embed_dim in sizes:
        model = GPT(dropout=0.0, compile=True, **(SMALL | {"embed_dim": embed_dim, "num_layers": 1}))
        model.hidden(torch.zeros(2, 8, dtype=torch.int64))
    assert compiled.frame_count == len(sizes)


def test_generation_refuses_a_diverged_model() -> None:
    model = GPT(**SMALL)
    with torch.no_grad():
        model.final_norm.weight.fill_(float("nan"))
    with pytest.raises(ValueError, match="not finite"):
        generate(model, torch.zeros(1, 3, dtype=torch.long), 2)
