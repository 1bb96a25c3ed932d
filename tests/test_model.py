"""The decoder by itself: shapes, initialisation, sizes that don't fit, generation."""

import subprocess
import sys

import pytest
import torch

import poslab
from conftest import SCHEMES, make_scheme
from poslab import GPT
from poslab.errors import SettingError
from poslab.generate import generate

SMALL = {"vocab_size": 61, "context_length": 16, "embed_dim": 24, "num_layers": 2, "num_heads": 2}


def test_importing_the_package_loads_no_torch() -> None:
    check = "import sys, poslab, poslab.positions.t5, poslab.positions.shaw; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", check], check=True)
    assert poslab.GPT is GPT
    assert poslab.positions.RelativeTerms
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        poslab.nothing  # noqa: B018


def test_tokens_to_logits_without_lightning_or_hydra() -> None:
    assert GPT(**SMALL)(torch.zeros(3, 7, dtype=torch.long)).shape == (3, 7, 61)


def test_defaults_are_the_mini_model() -> None:
    counts = GPT(make_scheme("absolute")).parameter_counts()
    assert counts["trunk"] == 50257 * 256 + 4 * (12 * 256**2 + 13 * 256) + 2 * 256
    assert counts["scheme"] == 256 * 256


def test_gpt2_has_124_million_parameters() -> None:
    with torch.device("meta"):
        sizes = {"context_length": 1024, "embed_dim": 768, "num_layers": 12, "num_heads": 12}
        model = GPT(make_scheme("absolute"), **sizes)
    assert model.parameter_counts()["total"] == 124_439_808


def test_head_is_the_token_embedding() -> None:
    model = GPT(**SMALL).eval()
    tokens = torch.randint(0, 61, (2, 5))
    assert torch.allclose(model(tokens), model.hidden(tokens) @ model.token_embedding.weight.T, atol=1e-6)
    assert sum(p.shape == (61, 24) for p in model.parameters()) == 1


def test_initialisation_is_gpt2s() -> None:
    model = GPT(vocab_size=997, context_length=16, embed_dim=128, num_layers=8, num_heads=4)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert torch.equal(parameter, torch.zeros_like(parameter)), name
        elif "norm" in name:
            assert torch.equal(parameter, torch.ones_like(parameter)), name
        else:
            expected = 0.02 / 4 if "project" in name else 0.02  # 1 / sqrt(2 * 8 layers)
            assert abs(parameter.std().item() / expected - 1) < 0.05, name


def test_untrained_loss_is_that_of_a_uniform_guess() -> None:
    model = GPT(make_scheme("shaw"), dropout=0.0, **SMALL)
    logits = model(torch.randint(0, 61, (8, 16)))
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.randint(0, 61, (128,)))
    assert abs(loss.item() - torch.tensor(61.0).log().item()) < 0.1


@pytest.mark.parametrize(
    ("sizes", "option"),
    [
        ({"num_heads": 5}, "num_heads"),
        ({"num_heads": 0}, "num_heads"),
        ({"context_length": 0}, "context_length"),
        ({"vocab_size": 0}, "vocab_size"),
        ({"num_layers": -1}, "num_layers"),
        ({"attention_backend": "flash"}, "attention_backend"),
    ],
)
def test_impossible_sizes(sizes: dict, option: str) -> None:
    with pytest.raises(SettingError) as refusal:
        GPT(**(SMALL | sizes))
    assert refusal.value.option == option


@pytest.mark.parametrize("name", SCHEMES)
def test_backends_agree_in_the_model(name: str) -> None:
    tokens = torch.randint(0, 61, (2, 16))
    logits = []
    terms = GPT(make_scheme(name), **SMALL).relative_terms(4)[0]
    general = terms is not None and (terms.keys is not None or terms.values is not None)
    for backend in ("reference", "auto" if general else "sdpa"):
        torch.manual_seed(0)
        logits.append(GPT(make_scheme(name), dropout=0.0, attention_backend=backend, **SMALL)(tokens))
    assert torch.allclose(*logits, atol=1e-5)


@pytest.mark.parametrize("name", SCHEMES)
def test_generation(name: str) -> None:
    model = GPT(make_scheme(name), **SMALL)
    prompt = torch.randint(0, 61, (2, 5))

    def draw(seed: int, **settings: float) -> torch.Tensor:
        return generate(model, prompt, 30, generator=torch.Generator().manual_seed(seed), **settings)

    before = torch.get_rng_state()
    text = draw(1, temperature=1.0, top_k=10)  # past the context, too
    assert torch.equal(torch.get_rng_state(), before)
    assert text.shape == (2, 35)
    assert torch.equal(text[:, :5], prompt)
    assert torch.equal(text, draw(1, temperature=1.0, top_k=10))
    assert not torch.equal(text, draw(2, temperature=1.0, top_k=10))
    greedy = draw(1, temperature=0)
    assert torch.equal(greedy, draw(2, temperature=0))
    assert model.training  # as it was
    assert torch.equal(greedy[:, 5], model.eval()(prompt)[:, -1].argmax(-1))
    assert torch.equal(draw(3, temperature=1.0, top_k=1), greedy)
    assert torch.equal(draw(3, temperature=1e-320, top_k=10), greedy)


def test_generation_refuses_a_diverged_model() -> None:
    model = GPT(**SMALL)
    with torch.no_grad():
        model.final_norm.weight.fill_(float("nan"))
    with pytest.raises(ValueError, match="not finite"):
        generate(model, torch.zeros(1, 3, dtype=torch.long), 2)
