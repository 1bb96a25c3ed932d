"""Decoders within torch's transforms of functions: per-sample gradients and export."""

import pytest
import torch
from common import SCHEMES
from strong_models import VOCAB, some_tokens, strong_model

from poslab.processors import in_transform

every_scheme = pytest.mark.parametrize("name", SCHEMES)


@every_scheme
@pytest.mark.parametrize("length", [12, 260])  # the latter beyond what dense attention is chosen for
@pytest.mark.filterwarnings("ignore:There is a performance drop")  # where torch maps an operator by a loop
def test_gradients_of_each_text_add_up_to_the_gradient_of_all(name: str, length: int) -> None:
    model, tokens = strong_model(name, num_layers=1, context_length=length), some_tokens(2, length)
    parameters = dict(model.named_parameters())

    def total(parameters: dict[str, torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, parameters, (tokens,)).logsumexp(-1).sum()

    of_one = torch.func.grad(lambda parameters, text: total(parameters, text[None]))
    of_each = torch.func.vmap(of_one, in_dims=(None, 0))(parameters, tokens)
    total(parameters, tokens).backward()
    for key, parameter in parameters.items():
        torch.testing.assert_close(of_each[key].sum(0), parameter.grad, rtol=1e-3, atol=2e-3)


@every_scheme
@pytest.mark.parametrize("length", [12, 260])
def test_export(name: str, length: int) -> None:
    model, tokens = strong_model(name, num_layers=1, context_length=length), torch.randint(VOCAB, (2, length))
    exported = torch.export.export(model, (tokens,)).module()
    torch.testing.assert_close(exported(tokens), model(tokens), rtol=1e-5, atol=1e-5)


def test_a_compiled_function_is_in_no_transform() -> None:
    def which(x: torch.Tensor) -> torch.Tensor:
        return x * (2 if in_transform() else 3)

    one = torch.ones(())
    assert torch.func.vmap(which)(torch.ones(2)).tolist() == [2, 2]
    assert torch.compile(which, fullgraph=True, backend="eager")(one) == which(one) == 3
