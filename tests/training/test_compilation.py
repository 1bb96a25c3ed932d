"""How a run is compiled, by its settings, device and data; and that CUDA graphs change nothing in its steps."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from common import compose_config
from refusals import refused
from torch import Tensor

from poslab import GPT
from poslab.positions.t5 import T5
from poslab.training import compilation as module
from poslab.training.compilation import compilation, compilation_warnings, graphs_problem, missing_compiler
from poslab.training.loss import language_model_loss

GRAPHS = "model.compile=reduce-overhead"
SIZES: dict[str, Any] = {"vocab_size": 40, "context_length": 32, "embed_dim": 32, "num_layers": 1, "num_heads": 2}


@pytest.fixture
def on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "device_of", lambda trainer: "cpu" if trainer.accelerator == "cpu" else "cuda")
    monkeypatch.setattr(module, "compiler_problem", lambda device: None)


@pytest.mark.parametrize(
    ("overrides", "processes", "expected"),
    [
        ("", 1, True),
        ("model.compile=true", 1, True),
        ("model.compile=false", 1, False),
        ("trainer.strategy=fsdp", 2, False),
        ("trainer=cpu", 1, False),
        ("trainer=cpu model.compile=true", 1, True),
        (GRAPHS, 1, "reduce-overhead"),
        (f"{GRAPHS} data.order=stream data.stride=null", 1, "reduce-overhead"),
        (f"{GRAPHS} data=copy data.min_length=8 data.max_length=8", 1, "reduce-overhead"),
        (f"{GRAPHS} trainer=cpu", 1, True),
        (GRAPHS, 2, True),
        (f"{GRAPHS} data=copy", 1, True),
        (f"{GRAPHS} data.documents=apart", 1, True),
        (f"{GRAPHS} trainer.accumulate_grad_batches=2", 1, True),
        (f"{GRAPHS} pos=nope model.memory_length=8 data.order=stream data.stride=null", 1, True),
    ],
)
@pytest.mark.usefixtures("on_cuda")
def test_a_run_has_cuda_graphs_where_they_are_asked_for_and_its_batches_have_one_length(
    overrides: str, processes: int, expected: bool | str
) -> None:
    config = compose_config(*overrides.split())
    assert compilation(config, processes) == expected
    typed = config.model.compile == "reduce-overhead"
    assert len(compilation_warnings(config, processes)) == (typed and expected is True)


def test_another_mode_of_the_compiler_is_refused() -> None:
    with refused("model.compile", "graphs", "true or false", "reduce-overhead", "null"):
        compose_config("model.compile=graphs")


def test_amd_has_no_cuda_graphs(on_cuda: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert graphs_problem(compose_config(GRAPHS), 1) is None
    monkeypatch.setattr(torch.version, "hip", "7.0")
    assert "AMD" in str(graphs_problem(compose_config(GRAPHS), 1))


@pytest.mark.parametrize("typed", ["model.compile=true", GRAPHS])
def test_without_a_compiler_a_run_trains_uncompiled(typed: str, on_cuda: None, monkeypatch: pytest.MonkeyPatch) -> None:
    config = compose_config(typed)
    monkeypatch.setattr(module, "compiler_problem", lambda device: f"no compiler for {device}")
    assert not compilation(config, 1)
    (warning,) = compilation_warnings(config, 1)
    assert warning.startswith(typed)
    assert "no compiler for cuda" in warning
    assert missing_compiler(compose_config("model.compile=false").model, config.trainer) == []


def test_a_graph_serves_the_largest_batch_of_a_training_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last batch of an epoch is smaller; and a resumed run may begin with it."""
    calls: list[tuple[str, int]] = []

    def compile(function: Callable[..., Tensor], mode: str = "default", **options: Any) -> Callable[..., Tensor]:
        def run(tokens: Tensor, positions: Tensor) -> Tensor:
            calls.append((mode, len(tokens)))
            return function(tokens, positions)

        return run

    monkeypatch.setattr(torch, "compile", compile)
    model = GPT(T5(), **SIZES, compile="reduce-overhead")
    for rows in (2, 4, 2, 4):
        model(torch.randint(40, (rows, 32)))
    assert calls == [("reduce-overhead", 2), ("reduce-overhead", 4), ("default", 2), ("reduce-overhead", 4)]
    model.eval()(torch.randint(40, (4, 32)))
    model.train()(torch.randint(40, (4, 32)), documents=torch.arange(2).repeat_interleave(16).expand(4, -1))
    assert len(calls) == 4
    GPT(T5(), **SIZES, compile=True)(torch.randint(40, (4, 32)))
    assert calls[4:] == [("default", 4)]


def losses(compile: Any, device: str, steps: range, before: dict[str, Any] | None = None, dropout: float = 0.0) -> Any:
    """Train a decoder as a run does, the last batch smaller: the losses, and what it needs to go on.

    before: what an earlier call returned.
    """
    torch.manual_seed(0)
    model = GPT(T5(), **SIZES, dropout=dropout, compile=compile).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    if before is not None:
        model.load_state_dict(before["model"])
        optimizer.load_state_dict(before["optimizer"])
        torch.set_rng_state(before["rng"])
        if device == "cuda":
            torch.cuda.set_rng_state(before["rng of cuda"])
    found = []
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        tokens = torch.randint(40, (2 if step == 5 else 4, 33), generator=generator).to(device)
        loss = language_model_loss(model, tokens[:, :-1], tokens[:, 1:])
        optimizer.zero_grad()  # between the passes, as Lightning does
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        found.append(loss.item())
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state()}
    if device == "cuda":
        state["rng of cuda"] = torch.cuda.get_rng_state()
    return found, state


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method")  # which the compiler itself calls
def test_the_mode_changes_nothing_on_a_cpu() -> None:
    plain, _ = losses(False, "cpu", range(8))
    compiled, _ = losses("reduce-overhead", "cpu", range(8))
    assert compiled == pytest.approx(plain, abs=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_graphs_train_to_the_same_losses() -> None:
    plain, _ = losses(True, "cuda", range(8))
    graphed, _ = losses("reduce-overhead", "cuda", range(8))
    assert graphed == pytest.approx(plain, abs=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_with_cuda_graphs_training_goes_on_to_the_bit(dropout: float) -> None:
    whole, _ = losses("reduce-overhead", "cuda", range(8), dropout=dropout)
    first, state = losses("reduce-overhead", "cuda", range(4), dropout=dropout)
    rest, _ = losses("reduce-overhead", "cuda", range(4, 8), state, dropout)
    assert first + rest == whole
