"""Decoders within torch's transforms of functions: per-sample gradients and export."""

import pytest
import torch
from common import SCHEMES
from strong_models import VOCAB, some_tokens, strong_model

every_scheme = pytest.mark.parametrize("name", SCHEMES)


@every_scheme
@pytest.mark.filterwarnings("ignore:There is a performance drop")  # where torch maps an operator by a loop
def test_gradients_of_each_text_add_up_to_the_gradient_of_all(name: str) -> None:
    model, tokens = strong_model(name), some_tokens(3, 12)
    parameters = dict(model.named_parameters())

    def total(parameters: dict[str, torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, parameters, (tokens,)).logsumexp(-1).sum()

    of_one = torch.func.grad(lambda parameters, text: total(parameters, text[None]))
    of_each = torch.func.vmap(of_one, in_dims=(None, 0))(parameters, tokens)
    total(parameters, tokens).backward()
    for key, parameter in parameters.items():
        torch.testing.assert_close(of_each[key].sum(0), parameter.grad, rtol=1e-4, atol=1e-4)


@every_scheme
def test_export(name: str) -> None:
    model, tokens = strong_model(name), torch.randint(VOCAB, (2, 12))
    exported = torch.export.export(model, (tokens,)).module()
    torch.testing.assert_close(exported(tokens), model(tokens), rtol=1e-5, atol=1e-5)
