"""The block's parts: equal to transformers' blocks with the same weights, and with every scheme what they are alone."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from common import SCHEMES, RunScript, assert_refused, make_scheme
from torch import Tensor, nn

from poslab import GPT
from poslab.config.nodes import TARGET
from poslab.contract.checks import CHECKS
from poslab.contract.trial import NotTried, compare
from poslab.errors import SettingError
from poslab.model.mlp import GELU, ReLU2, SwiGLU
from poslab.positions.nope import NoPE
from poslab.positions.rope import RoPE

SIZES: dict[str, Any] = {"vocab_size": 61, "context_length": 40, "embed_dim": 48, "num_layers": 3, "num_heads": 4}
LLAMA: dict[str, Any] = {"norm": nn.RMSNorm, "mlp": SwiGLU, "biases": False, "tied": False, "dropout": 0.0}
# Everything that a block may have besides, as the nodes of a command line.
RICH: dict[str, Any] = {
    "norm": {TARGET: "torch.nn.RMSNorm"},
    "mlp": {TARGET: "poslab.model.mlp.SwiGLU"},
    "qk_norm": "rms",
    "gate": "element",
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 8,
    "biases": False,
    "tied": False,
    "window": 11,
}


def random_model(**settings: Any) -> GPT:
    torch.manual_seed(0)
    model = GPT(**SIZES | settings).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def rms_norm(module: Any, x: Tensor) -> Tensor:
    return x * (x.square().mean(-1, keepdim=True) + module.variance_epsilon).rsqrt() * module.weight


@pytest.mark.parametrize(("family", "head_dim"), [("Llama", 12), ("Qwen3", 20)])
def test_modern_is_the_block_of_transformers(family: str, head_dim: int) -> None:
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, f"{family}Config")(
        vocab_size=61, hidden_size=48, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, head_dim=head_dim, rms_norm_eps=1e-6, tie_word_embeddings=False, attention_bias=False,
        max_position_embeddings=40, attn_implementation="sdpa",
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )  # fmt: skip
    theirs = getattr(transformers, f"{family}ForCausalLM")(config).double().eval()
    for module in theirs.modules():  # theirs compute norms and angles in float32 whatever the weights are
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = partial(rms_norm, module)
    angles = torch.arange(40.0).double()[:, None] * 10000.0 ** (-torch.arange(0, head_dim, 2).double() / head_dim)
    angles = angles.tile(1, 2)[None]
    theirs.model.rotary_emb.forward = lambda x, position_ids: (angles.cos(), angles.sin())
    qk_norm = "rms" if family == "Qwen3" else "none"
    norm = lambda width: nn.RMSNorm(width, eps=1e-6)  # noqa: E731
    ours = random_model(pos=RoPE(), **LLAMA | {"norm": norm}, num_kv_heads=2, qk_norm=qk_norm, head_dim=head_dim)
    own, weights = ours.state_dict(), {}
    weights["model.embed_tokens.weight"], weights["lm_head.weight"] = own["token_embedding.weight"], own["head.weight"]
    weights["model.norm.weight"] = own["final_norm.weight"]
    for layer in range(3):
        block, there = f"blocks.{layer}", f"model.layers.{layer}"
        parts = own[f"{block}.attention.query_key_value.weight"].split([4 * head_dim, 2 * head_dim, 2 * head_dim])
        weights |= {f"{there}.self_attn.{part}_proj.weight": x for part, x in zip("qkv", parts, strict=True)}
        weights[f"{there}.self_attn.o_proj.weight"] = own[f"{block}.attention.project.weight"]
        gate_up = own[f"{block}.mlp.expand.weight"].chunk(2)
        weights |= {f"{there}.mlp.{part}_proj.weight": x for part, x in zip(("gate", "up"), gate_up, strict=True)}
        weights[f"{there}.mlp.down_proj.weight"] = own[f"{block}.mlp.project.weight"]
        weights[f"{there}.input_layernorm.weight"] = own[f"{block}.attention_norm.weight"]
        weights[f"{there}.post_attention_layernorm.weight"] = own[f"{block}.mlp_norm.weight"]
        if qk_norm == "rms":
            for part, name in (("q", "query"), ("k", "key")):
                weights[f"{there}.self_attn.{part}_norm.weight"] = own[f"{block}.attention.{name}_norm.weight"]
    theirs.load_state_dict(weights, strict=True)
    tokens = torch.randint(61, (2, 40))
    with torch.no_grad():
        expected, found = theirs(tokens).logits, ours(tokens)
    assert (found - expected).abs().max() < 1e-10 * expected.abs().max()


@pytest.mark.parametrize("part", ["no look ahead", "kernels", "cache", "memory", "files", "export"])
@pytest.mark.parametrize("name", SCHEMES)
def test_every_scheme_works_in_every_block(name: str, part: str) -> None:
    try:
        compare(CHECKS[part], make_scheme(name), **RICH)
    except NotTried as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("name", SCHEMES)
def test_every_scheme_rounds_to_bfloat16_in_every_block(name: str) -> None:
    """Normalised queries and keys have larger scores, and so more rounding, than the contract's limit is for."""
    for what, found, expected, room in CHECKS["bfloat16"](make_scheme(name), **RICH):
        assert (found - expected).abs().max() <= 2 * room * expected.abs().max().clamp(min=1), what


PLAIN: dict[str, Any] = {"dropout": 0.0}
CHANGES: dict[str, dict[str, Any]] = {
    "norm": {"norm": nn.RMSNorm},
    "no norm": {"norm": nn.Identity},
    "mlp": {"mlp": ReLU2},
    "queries and keys": {"qk_norm": "rms"},
    "keys": {"qk_norm": "key"},
    "grouped": {"num_kv_heads": 2},
    "gate of heads": {"gate": "head"},
    "gate of numbers": {"gate": "element"},
    "window": {"window": 5},
    "head": {"tied": False},
    "wide heads": {"head_dim": 20},
}


@pytest.mark.parametrize("change", CHANGES)
def test_each_part_changes_what_the_model_computes(change: str) -> None:
    plain, changed = (random_model(**PLAIN | settings) for settings in ({}, CHANGES[change]))
    tokens = torch.randint(61, (2, 40))
    shapes = {name: x.shape for name, x in changed.state_dict().items()}
    changed.load_state_dict({n: x for n, x in plain.state_dict().items() if x.shape == shapes.get(n)}, strict=False)
    assert not torch.allclose(plain(tokens), changed(tokens), rtol=1e-3)


def test_no_biases() -> None:
    model = random_model(**PLAIN, biases=False, gate="head", mlp=GELU)
    assert not [name for name, _ in model.named_parameters() if name.endswith("bias")]
    assert torch.isfinite(model(torch.randint(61, (2, 40)))).all()


def test_a_window_hides_what_is_farther_back() -> None:
    """In one layer, the last token sees itself and four before it."""
    model = random_model(**PLAIN, window=5, num_layers=1, pos=RoPE())
    tokens = torch.randint(61, (1, 40))
    farther, near = tokens.clone(), tokens.clone()
    farther[0, :35] = (tokens[0, :35] + 1) % 61
    near[0, 35] = (tokens[0, 35] + 1) % 61
    last: Tensor = model(tokens)[0, -1]
    assert torch.allclose(model(farther)[0, -1], last, atol=1e-12)
    assert not torch.allclose(model(near)[0, -1], last, atol=1e-6)


def test_gates_multiply_what_leaves_each_head() -> None:
    """Closed for one head, it is as if the rows of `project` for that head were zero."""
    for gate, rows in (("head", slice(1, 2)), ("element", slice(12, 24))):
        model = random_model(**PLAIN, gate=gate, num_layers=1, pos=NoPE())
        of_gate, attention = model.blocks[0].attention.gate, model.blocks[0].attention
        with torch.no_grad():
            of_gate.weight.zero_()
            of_gate.bias.zero_()
            half = model(tokens := torch.randint(61, (2, 40)))
            attention.project.weight.mul_(0.5)
            attention.gate = None
            assert torch.allclose(model(tokens), half)
            attention.gate, attention.project.weight.data = of_gate, attention.project.weight * 2
            of_gate.bias[rows] = -1e9
            closed = model(tokens)
            of_gate.bias[rows] = 0
            attention.project.weight[:, 12:24] = 0
            assert torch.allclose(model(tokens), closed)


def test_modern_has_as_many_parameters_as_mini_in_its_blocks() -> None:
    sizes = {"vocab_size": 1, "context_length": 8, "embed_dim": 256, "num_layers": 4, "num_heads": 4}
    mini, modern = GPT(**sizes), GPT(**sizes, **LLAMA, qk_norm="rms")
    counts = [sum(p.numel() for p in model.blocks.parameters()) for model in (mini, modern)]
    assert counts[1] == pytest.approx(counts[0], rel=0.01)


OWN = """
import torch
from torch import nn

class Norm(nn.Module):
    def __init__(self, width, power=1.0):
        super().__init__()
        self.scale, self.power = nn.Parameter(torch.ones(width)), power
    def forward(self, x):
        return self.scale * x / (x.abs().mean(-1, keepdim=True) + 1e-3) ** self.power

class Ahead(Norm):
    def forward(self, x):
        return super().forward(x) + x.mean(1, keepdim=True)
"""


def test_a_part_from_outside(run_script: RunScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It trains, loads where its code is allowed, and is tried before, as by check."""
    monkeypatch.chdir(tmp_path)
    Path("own_norm.py").write_text(OWN)
    small = ("trainer.max_steps=2", "model.embed_dim=16", "model.num_layers=1", "model.context_length=16")
    few = ("trainer.limit_val_batches=1", "sample.new_tokens=0", "run_dir=run")
    Path("own/model/norm").mkdir(parents=True)
    Path("own/model/norm/mine.yaml").write_text("_target_: own_norm.Norm\npower: 0.5\n")
    assert run_script("train", "--config-dir", "own", "model/norm=mine", *small, *few)[0] == 0
    assert_refused(run_script("evaluate", "ckpt=run"), "its block is own_norm.Norm, which is none of")
    code, output, _ = run_script("export", "ckpt=run", "to=out", "allow_code=true")
    assert code == 0
    loading = output.partition("AutoModelForCausalLM.")[2].partition("\n")[0]
    names = {"AutoModelForCausalLM": pytest.importorskip("transformers").AutoModelForCausalLM}
    exec(f"model = AutoModelForCausalLM.{loading}", names)
    assert type(names["model"].blocks[0].attention_norm).__name__ == "Norm"
    code, output, _ = run_script("check", "nope", "norm=own_norm.Ahead")
    assert (code, "no look ahead         differs: logits before a changed token" in output) == (1, True)
    refused = run_script("train", "model.norm._target_=own_norm.Ahead", *small, *few)
    assert_refused(refused, "model=own_norm.Ahead: no look ahead: logits before a changed token: off by")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_kv_heads": 3}, "num_kv_heads=3: must divide num_heads=4"),
        ({"qk_norm": "layer"}, "qk_norm=layer: unknown; valid: none, rms, key"),
        ({"gate": "heads"}, "gate=heads: unknown; did you mean head?"),
        ({"window": 0}, "window=0: must be at least 1"),
        ({"num_heads": 5}, "num_heads=5: must divide embed_dim=48"),
        ({"head_dim": 0}, "head_dim=0: must be at least 1"),
    ],
)
def test_forms_that_there_are_not(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message.replace("?", r"\?")):
        GPT(**SIZES | settings)
