"""torch's private names: what poslab does in a version of torch that lacks one."""

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from common import make_scheme
from torch import nn

from poslab import GPT, processors
from poslab.attention import attend
from poslab.attention.kernels import blockwise, flash
from poslab.attention.kernels.products import products_for
from poslab.contract.checks import CHECKS
from poslab.contract.trial import NotTried
from poslab.positions import RelativeTerms
from poslab.training.machine import bfloat16_units

SMALL = {"vocab_size": 11, "context_length": 8, "embed_dim": 8, "num_layers": 1, "num_heads": 2, "dropout": 0.0}


def uncompiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """torch.compile as it was before torch 2.13, without `isolate_recompiles`."""
    return function


class Without:
    """Module of torch without one of its names."""

    def __init__(self, module: Any, name: str) -> None:
        self.module, self.name = module, name

    def __getattr__(self, name: str) -> Any:
        if name == self.name:
            raise AttributeError(name)
        return getattr(self.module, name)


def trained(**settings: Any) -> nn.Module:
    torch.manual_seed(0)
    model = GPT(**SMALL | settings)
    model(torch.arange(8)[None]).logsumexp(-1).sum().backward()
    return model


@pytest.mark.parametrize("config", [SimpleNamespace(recompile_limit=8), SimpleNamespace()], ids=["limit", "no limit"])
def test_it_compiles_without_a_limit_for_each_function(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", uncompiled)
    monkeypatch.setattr(torch._dynamo, "config", config)
    assert processors.compiled(torch.neg) is torch.neg
    assert getattr(config, "recompile_limit", 64) == 64


def test_the_names_are_those_of_this_torch() -> None:
    """Or the fallbacks would be all that is used, and nobody would notice."""
    torch.compile(torch.neg)
    assert "isolate_recompiles" in inspect.signature(torch.compile).parameters or torch.__version__ < (2, 13)
    assert torch._dynamo.config.recompile_limit > 0
    assert torch._functorch.config.force_non_lazy_backward_lowering is False
    with processors.backward_compiled_at_once():
        assert torch._functorch.config.force_non_lazy_backward_lowering is True
    assert processors.compiler_errors() == (torch._dynamo.exc.TorchDynamoException,)
    assert processors.cpu_capabilities()
    assert processors.cpu_flash_kernels() is not None
    with processors.largest_tensor() as seen:
        torch.zeros(3, 7).split(2)
    assert seen.bytes == 84
    assert processors.float32_products() != "bf16"
    with products_for(torch.bfloat16, torch.device("cpu")):
        assert processors.float32_products() == "bf16"


@pytest.mark.parametrize("owner", [torch._functorch, torch], ids=["config", "_functorch"])
def test_it_trains_without_the_setting_of_the_backward_pass(owner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.compile(torch.neg)  # which loads the configuration
    monkeypatch.setattr(torch, "compile", uncompiled)
    monkeypatch.delattr(owner, "config" if owner is torch._functorch else "_functorch")
    expected, found = trained(), trained(compile=True)
    assert torch.equal(found.token_embedding.weight.grad, expected.token_embedding.weight.grad)


@pytest.mark.parametrize("missing", ["exc", "exc.TorchDynamoException"])
def test_any_runtime_error_of_an_unknown_compiler_leaves_the_model_uncompiled(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(function: Callable[..., Any]) -> Callable[..., Any]:
        def compiled(*_: Any) -> None:
            raise RuntimeError("no kernel")

        return compiled

    monkeypatch.delattr(f"torch._dynamo.{missing}")
    monkeypatch.setattr(torch, "compile", fails)
    with pytest.warns(UserWarning, match="no kernel"):
        model = trained(compile=True)
    assert model.token_embedding.weight.grad.any()


def test_without_what_torch_says_of_a_cpu_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    assert processors.cpu_capabilities() == {}
    assert bfloat16_units() is None


@pytest.mark.parametrize("kernel", ["", "_backward"], ids=["forward", "backward"])
def test_without_flash_attention_for_cpus_poslabs_own_kernel_computes(
    kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = (2, 3, 512, 16)
    q, k, v = torch.randn(3, *sizes).unbind()
    bias, null = (RelativeTerms(0, 511, bias=-torch.rand(3, 512)), RelativeTerms(0, 0, null=torch.rand(3)))
    expected = [attend(q, k, v, terms) for terms in (bias, null)]
    name = f"_scaled_dot_product_flash_attention_for_cpu{kernel}"
    monkeypatch.setattr(torch.ops, "aten", Without(torch.ops.aten, name))
    assert processors.cpu_flash_kernels() is None
    monkeypatch.setattr(blockwise, "flash_attention", None)
    for terms, out in zip((bias, null), expected, strict=True):
        monkeypatch.setattr(flash, "_KERNELS", (None, None))
        with pytest.raises(TypeError, match="not callable"):
            attend(q, k, v, terms)
        monkeypatch.setattr(flash, "_KERNELS", processors.cpu_flash_kernels())
        torch.testing.assert_close(attend(q, k, v, terms), out)


@pytest.mark.parametrize("missing", ["_python_dispatch", "_python_dispatch.TorchDispatchMode"])
def test_a_contract_without_operations_of_torch_says_so(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(f"torch.utils.{missing}")
    with pytest.raises(NotTried, match="torch"):
        next(CHECKS["linear memory"](make_scheme("nope")))


@pytest.mark.parametrize("matmul", [None, SimpleNamespace()], ids=["no matmul", "no precision"])
def test_products_without_a_precision_are_exact(matmul: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends, "mkldnn", SimpleNamespace(matmul=matmul) if matmul else SimpleNamespace())
    x = torch.randn(64, 64)
    exact = x @ x
    with products_for(torch.bfloat16, torch.device("cpu")):
        assert processors.float32_products() == "ieee"
        assert torch.equal(x @ x, exact)
