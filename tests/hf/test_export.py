"""Weights out to transformers and in from it: equal logits, equal tokens, and what is refused."""

import dataclasses
import json
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path

import pytest
import torch
from common import EXPORTED, SOUND, UNBOUNDED, RunScript, compose_config, make_scheme, moved
from refusals import refused
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F

import poslab
from poslab import GPT
from poslab.config.schema import OF_BLOCK
from poslab.data.tokenizer import Bytes, Characters, Symbols, Vocabulary, load_tokenizer, observed_ids
from poslab.errors import SettingError
from poslab.hf.export import export
from poslab.hf.pretrained import init_from_pretrained, rotation_of
from poslab.model.architectures import ARCHITECTURES, hf_equivalent
from poslab.model.conversion import settings_of
from poslab.model.memory import MemoryGPT, Retrieval
from poslab.model.mlp import SwiGLU
from poslab.runs.checkpoint import Checkpoint, load_checkpoint
from poslab.runs.initial import initial_files

transformers = pytest.importorskip("transformers")

SIZES = {"vocab_size": 50257, "context_length": 16, "embed_dim": 16, "num_layers": 2, "num_heads": 2}
# The schemes of configs/pos that an architecture of transformers computes.
KNOWN = [name for name in SOUND if "hf_equivalent" in vars(type(make_scheme(name)))]


def checkpoint_of(model: GPT) -> Checkpoint:
    vocabulary = Vocabulary(load_tokenizer("gpt2"))
    return Checkpoint(Path("file"), model.eval(), vocabulary, "scheme", "sha256", False, {})


def logits(folder: Path, tokens: Tensor, **settings: object) -> Tensor:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, **settings).eval()
    with torch.no_grad():
        return model(tokens).logits


@pytest.mark.parametrize("name", KNOWN)
def test_transformers_gives_the_same_logits(name: str, tmp_path: Path) -> None:
    for number, settings in enumerate(({}, *type(make_scheme(name)).variants)):
        model = moved(GPT(make_scheme(name, **settings), dropout=0.0, **SIZES), 0.1)
        if hf_equivalent(model) is None:
            continue
        folder = tmp_path / str(number)
        export(checkpoint_of(model), folder)
        tokens = torch.randint(SIZES["vocab_size"], (2, SIZES["context_length"]))
        torch.testing.assert_close(logits(folder, tokens), model(tokens), atol=1e-5, rtol=1e-5)


def test_an_architecture_is_asked_for_every_setting_of_the_block() -> None:
    """Or a model with a new one would be exported without it."""
    assert {*OF_BLOCK} <= settings_of(GPT(make_scheme(KNOWN[0]), **SIZES)).keys()


def test_the_tokenizer_is_the_same(tmp_path: Path) -> None:
    checkpoint = checkpoint_of(GPT(make_scheme(KNOWN[0]), **SIZES))
    export(checkpoint, tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in ("It's a  test,\n\nfoo 123", " é東京 \t\U0001f600", ""):
        assert tokenizer.encode(text) == checkpoint.vocabulary.encode(text)


TEXT = "It's a  test,\n\nfoo 123, \u00e9\u6771\u4eac \t\U0001f600"


@pytest.mark.parametrize(
    ("vocabulary", "text", "strange"),
    [
        (Vocabulary(Bytes()), TEXT, None),
        (Vocabulary(Bytes(), observed_ids(torch.tensor(list(TEXT.encode())))), TEXT, "x"),
        (Vocabulary(Characters(), observed_ids(torch.tensor(list(map(ord, TEXT))))), TEXT, "x"),
        (Symbols(("a", "bc", "EOS")), "bc a EOS a", "d"),
    ],
    ids=["bytes", "observed bytes", "characters", "symbols"],
)
def test_the_tokenizer_of_a_vocabulary_of_our_own_is_the_same(
    vocabulary: Vocabulary | Symbols, text: str, strange: str | None, tmp_path: Path
) -> None:
    """It has the ids and the text back, and refuses a token that the model doesn't know, as it does here."""
    model = GPT(make_scheme(KNOWN[0]), **SIZES | {"vocab_size": vocabulary.size})
    said = export(dataclasses.replace(checkpoint_of(model), vocabulary=vocabulary), tmp_path / "out")
    exec(f"from transformers import AutoTokenizer\nfound = {said[1].partition(': ')[2]}", names := {})
    tokenizer = names["found"]
    assert tokenizer.encode(text) == vocabulary.encode(text)
    assert tokenizer.encode("") == []
    assert tokenizer.decode(vocabulary.encode(text)) == text
    if strange is not None:
        with pytest.raises(Exception, match=r"unknown|UNK"):
            tokenizer.encode(strange)


def test_without_a_tokenizer_transformers_makes_none(tmp_path: Path) -> None:
    vocabulary = Vocabulary(load_tokenizer("gpt2"), torch.arange(100, dtype=torch.int32))
    model = GPT(make_scheme(KNOWN[0]), **SIZES | {"vocab_size": 100})
    export(dataclasses.replace(checkpoint_of(model), vocabulary=vocabulary), tmp_path / "out")
    with pytest.raises(ValueError, match="tokenizer"):
        transformers.AutoTokenizer.from_pretrained(tmp_path / "out")


def test_a_setting_without_an_architecture_is_named(trained: Callable[..., Path], tmp_path: Path) -> None:
    run = trained("experiment=smoke", "trainer=cpu", "pos=rope", "pos.still=0.5")
    said = export(load_checkpoint(run), tmp_path / "out")
    assert said[0].startswith("no architecture of transformers computes pos=rope pos.still=0.5, so")


def test_other_schemes_bring_code_and_load_in_both(
    trained: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    name = next(n for n in SOUND if n not in KNOWN and make_scheme(n).overrides("tables"))
    run = trained("experiment=smoke", "trainer=cpu", f"pos={name}", "data.vocabulary=observed")
    said = export(load_checkpoint(run), tmp_path / "out")
    assert said[0].startswith(f"no architecture of transformers computes pos={name}, so the folder brings code")
    ours, again = poslab.load(run), poslab.load(tmp_path / "out")
    tokens = torch.randint(ours.tokenizer.size, (2, 8))
    torch.testing.assert_close(again(tokens), ours(tokens), atol=0, rtol=0)
    assert again.position.seed == ours.position.seed == 1
    torch.testing.assert_close(logits(tmp_path / "out", tokens, trust_remote_code=True), ours(tokens), atol=0, rtol=0)
    meanings = json.loads((tmp_path / "out" / "tokens.json").read_text())
    assert meanings == [ours.tokenizer.decode([i]) for i in range(ours.tokenizer.size)]


def with_code(name: str, **sizes: object) -> "transformers.PreTrainedModel":
    from poslab.hf.modeling_poslab import PoslabConfig, PoslabForCausalLM

    sizes = SIZES | {"dropout": 0.0} | sizes
    vocab_size = sizes.pop("vocab_size")
    config = PoslabConfig(pos={"_target_": name}, model=sizes, vocab_size=vocab_size)
    return moved(PoslabForCausalLM(config).eval(), 0.1)


@pytest.mark.parametrize("name", ["absolute", "t5", "cope", "forgetting"])
def test_left_padded_texts_are_those_alone(name: str) -> None:
    """Logits, gradients and what is generated: of positions that end, biases, scores and token states."""
    model = with_code(name)
    texts = [torch.randint(SIZES["vocab_size"], (1, length)) for length in (12, 7, 1)]
    batch = torch.cat([F.pad(text, (12 - text.shape[1], 0)) for text in texts])
    mask = torch.cat([F.pad(torch.ones_like(text), (12 - text.shape[1], 0)) for text in texts])
    together, alone = model(batch, attention_mask=mask, labels=batch), [model(text, labels=text) for text in texts[:2]]
    logits = torch.cat([*(out.logits[0] for out in alone), model(texts[2]).logits[0]])
    torch.testing.assert_close(together.logits[mask.bool()], logits, atol=1e-5, rtol=1e-5)
    loss = (11 * alone[0].loss + 6 * alone[1].loss) / 17
    torch.testing.assert_close(together.loss, loss)
    gradients = [torch.autograd.grad(of, list(model.parameters())) for of in (together.loss, loss)]
    torch.testing.assert_close(*gradients, atol=1e-6, rtol=1e-4)
    settings = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0, "use_cache": True}  # which changes nothing
    written = model.generate(batch, attention_mask=mask, **settings)[:, 12:]
    assert written.tolist() == [
        model.generate(text, attention_mask=torch.ones_like(text), **settings)[0, text.shape[1] :].tolist()
        for text in texts
    ]


def test_a_text_keeps_the_positions_that_were_drawn_for_it() -> None:
    model = with_code("randomized")
    gpt = model.gpt[0]
    gpt.position.seed, text = 5, torch.randint(SIZES["vocab_size"], (1, 4))
    settings = {"do_sample": False, "use_cache": False}
    written = model.generate(text, max_new_tokens=6, **settings)
    assert written.tolist() == gpt.generate(text, 6, temperature=0.0).tolist()
    assert model.generate(text, max_new_tokens=3, **settings).tolist() == written[:, :7].tolist()
    logits = gpt(written, positions=gpt.position.text_positions(10))
    torch.testing.assert_close(model(written).logits, logits)
    assert not torch.allclose(logits, gpt(written))


def test_right_padding_is_never_looked_at() -> None:
    model, tokens = with_code("t5"), torch.randint(SIZES["vocab_size"], (2, 9))
    mask = torch.tensor([[1] * 9, [0, 0, *[1] * 4, 0, 0, 0]])
    logits = model(tokens, attention_mask=mask).logits
    torch.testing.assert_close(logits[1, 2:6], model(tokens[1:, 2:6]).logits[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("causal", "mask", "problem"),
    [
        (True, [[1, 1, 1], [1, 0, 1]], r"row 1 of attention_mask has zeros between ones"),
        (True, [[0, 0, 0], [1, 1, 1]], r"row 0 of attention_mask is all zeros"),
        (True, [[1, 1, 1], [-1, 1, 1]], r"attention_mask must hold ones and zeros, nothing else"),
        (True, [[1, 1, 1]], r"attention_mask must be \(2, 3\), as input_ids are; not \(1, 3\)"),
        (True, [[[0, 1, 1]]], r"attention_mask must be \(2, 3\), as input_ids are; not \(1, 1, 3\)"),
        (False, [[1, 1, 1], [0, 1, 1]], r"this model is not causal"),
    ],
)
def test_masks_that_cannot_be(causal: bool, mask: list[object], problem: str) -> None:
    model = with_code("nope", causal=causal)
    tokens = torch.randint(SIZES["vocab_size"], (2, 3))
    with pytest.raises(ValueError, match=problem):
        model(tokens, attention_mask=torch.tensor(mask))


@pytest.mark.parametrize("name", KNOWN)
def test_gpt2_of_transformers_begins_a_run(name: str, tmp_path: Path) -> None:
    """The position table of GPT-2 is kept by the scheme that has the same one, and only by that."""
    theirs = _gpt2(tmp_path)
    model = GPT(make_scheme(name), dropout=0.0, **SIZES).eval()
    said = init_from_pretrained(model, tmp_path, Vocabulary(load_tokenizer("gpt2")))
    tokens = torch.randint(SIZES["vocab_size"], (2, SIZES["context_length"]))
    kept = "kept" in said
    assert kept == bool(list(model.position_tables.parameters()))
    with torch.no_grad():
        if not kept:
            theirs.transformer.wpe.weight.zero_()
            model.position.scheme = make_scheme("nope")
        torch.testing.assert_close(model(tokens), theirs(tokens).logits, atol=1e-5, rtol=1e-5)


def test_a_smaller_vocabulary_takes_its_rows(tmp_path: Path) -> None:
    theirs = _gpt2(tmp_path)
    observed = torch.tensor([3, 5, 50256], dtype=torch.int32)
    model = GPT(None, **SIZES | {"vocab_size": 3})
    said = init_from_pretrained(model, tmp_path, Vocabulary(load_tokenizer("gpt2"), observed))
    assert said.endswith("what it knows of positions is left out")
    assert model.token_embedding.weight.equal(theirs.transformer.wte.weight[observed])


def test_what_is_no_such_gpt2_is_refused(tmp_path: Path) -> None:
    begin = partial(init_from_pretrained, folder=tmp_path, vocabulary=Vocabulary(load_tokenizer("gpt2")))
    _gpt2(tmp_path)
    with pytest.raises(SettingError, match=rf"^init_from={tmp_path}: .*model\.num_layers=2"):
        begin(GPT(None, **SIZES | {"num_layers": 3}))
    with pytest.raises(SettingError, match=r"transformer\.wte\.weight.*\(50257, 16\).*\(7, 16\)"):
        begin(GPT(None, **SIZES | {"vocab_size": 7}))
    letters = Vocabulary(Characters(), torch.tensor([97, 98, 233], dtype=torch.int32))
    with pytest.raises(SettingError, match="characters"):
        begin(GPT(None, **SIZES | {"vocab_size": 3}), vocabulary=letters)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"activation_function": "relu"}))
    with pytest.raises(SettingError, match=r"activation_function.*relu.*gelu_new"):
        begin(GPT(None, **SIZES))


def test_a_folder_with_something_in_it_stays(trained: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(SettingError, match=r"^to="):
        export(checkpoint_of(GPT(None, **SIZES)), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_memory_stays_behind(tmp_path: Path) -> None:
    assert len(export(checkpoint_of(GPT(make_scheme(KNOWN[0]), **SIZES)), tmp_path / "none")) == 2
    remembering = MemoryGPT(make_scheme(next(name for name in KNOWN if name in UNBOUNDED)), memory_length=8, **SIZES)
    assert "transformers knows nothing of its memory" in export(checkpoint_of(remembering), tmp_path / "some")[-1]
    with refused("ckpt", "file"):
        export(checkpoint_of(MemoryGPT(None, **SIZES, retrieval=Retrieval(layer=1))), tmp_path / "retrieved")
    assert not (tmp_path / "retrieved").exists()


def test_export_script_and_a_run_that_begins_there(
    run_script: RunScript, trained: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = trained("experiment=smoke", "trainer=cpu", "pos=absolute")
    assert run_script("export", f"ckpt={run}", "to=exported")[0] == 0
    exec(EXPORTED, names := {})  # as its README shows it
    assert names["model"].config.model_type == "gpt2"
    code, output, errors = run_script("export", f"ckpt={run}", "to=out")
    assert (code, errors) == (0, "")
    assert "a gpt2 model: AutoModelForCausalLM.from_pretrained('out')" in output
    config = compose_config("init_from=out")
    assert config.settings.init_from == str(tmp_path / "out")


def _gpt2(folder: Path) -> "transformers.GPT2LMHeadModel":
    sizes = {"n_positions": 24, "n_embd": 16, "n_layer": 2, "n_head": 2}
    theirs = moved(transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)).eval(), 0.1)
    theirs.save_pretrained(folder)
    return theirs


LLAMA = {"norm": torch.nn.RMSNorm, "mlp": SwiGLU, "biases": False, "tied": False, "num_heads": 4, "num_kv_heads": 2}
FORMS = {
    "gpt2": ("absolute", {}),
    "gpt_neox": ("rope", {"fraction": 0.5}),
    "llama": ("rope", {"scaling": "llama3", "factor": 4.0, "original_context": 8}),
    "qwen3": ("rope", {"scaling": "yarn", "factor": 2.0, "original_context": 8, "base": 1e6}),
}


def model_of(form: str, **sizes: object) -> GPT:
    """A model that the architecture computes, with random weights."""
    name, settings = FORMS[form]
    block = {"llama": LLAMA, "qwen3": LLAMA | {"qk_norm": "rms", "head_dim": 12}}.get(form, {})
    sizes = SIZES | {"embed_dim": 32, "dropout": 0.0} | block | sizes
    if "norm" in sizes:
        sizes["norm"] = partial(torch.nn.RMSNorm, eps=1e-6)
    return moved(GPT(make_scheme(name, **settings), **sizes).eval(), 0.1)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_each_architecture_out_and_in_again(form: str, tied: bool, tmp_path: Path) -> None:
    """Logits of transformers, of a model that begins with the folder, and of transformers' own folder."""
    model = model_of(form, tied=tied)
    said = export(checkpoint_of(model), tmp_path / "out")
    assert said[0].startswith(f"a {form} model: ")
    tokens = torch.randint(SIZES["vocab_size"], (2, SIZES["context_length"]))
    torch.testing.assert_close(logits(tmp_path / "out", tokens), model(tokens), atol=1e-4, rtol=1e-4)
    theirs = moved(transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval(), 0.1)
    theirs.save_pretrained(tmp_path / "theirs")
    begun = model_of(form, tied=tied)
    said_of_positions = init_from_pretrained(begun, tmp_path / "theirs", Vocabulary(load_tokenizer("gpt2")))
    assert ("kept" if form == "gpt2" else ", as here") in said_of_positions
    with torch.no_grad():
        torch.testing.assert_close(begun(tokens), theirs(tokens).logits, atol=1e-4, rtol=1e-4)


def test_what_other_weights_need_is_said_as_one_types_it(tmp_path: Path) -> None:
    export(checkpoint_of(model_of("qwen3")), tmp_path / "out")
    with pytest.raises(SettingError) as refusal:
        init_from_pretrained(model_of("gpt2", num_layers=1), tmp_path / "out", Vocabulary(load_tokenizer("gpt2")))
    said = str(refusal.value)
    assert "its weights need model.num_layers=2 model.num_heads=4 model.head_dim=12 model.num_kv_heads=2 " in said
    assert "model/norm=rms model.norm.eps=1e-06 model/mlp=swiglu model.mlp.factor=2.75 " in said
    assert "model.qk_norm=rms model.biases=false model.tied=false" in said
    config = json.loads((tmp_path / "out/config.json").read_text())
    (tmp_path / "out/config.json").write_text(json.dumps(config | {"model_type": "mamba"}))
    with pytest.raises(SettingError, match=r"model_type.*mamba.*gpt2, gpt_neox, llama, qwen3"):
        init_from_pretrained(model_of("qwen3"), tmp_path / "out", Vocabulary(load_tokenizer("gpt2")))


def test_another_vocabulary_is_refused_by_its_size_and_by_its_tokenizer(tmp_path: Path) -> None:
    model = model_of("gpt2", vocab_size=30001)
    export(checkpoint_of(model), tmp_path / "out")
    for file in ("vocab.json", "merges.txt"):
        (tmp_path / "out" / file).unlink()
    vocabulary = Vocabulary(load_tokenizer("gpt2"))
    with pytest.raises(SettingError, match=r"30,001.*data\.encoding=gpt2.*50,257"):
        init_from_pretrained(model_of("gpt2"), tmp_path / "out", vocabulary)
    export(checkpoint_of(model_of("gpt2")), tmp_path / "same")
    init_from_pretrained(model_of("gpt2"), tmp_path / "same", vocabulary)
    ids = json.loads((tmp_path / "same/vocab.json").read_text())
    ids["Ġthe"], ids["Ġof"] = ids["Ġof"], ids["Ġthe"]
    (tmp_path / "same/vocab.json").write_text(json.dumps(ids))
    with pytest.raises(SettingError, match=r"data\.encoding=gpt2.*286.*' the'.*' of'"):
        init_from_pretrained(model_of("gpt2"), tmp_path / "same", vocabulary)
    damaged = [("tokenizer.json", text) for text in ("{}", '{"model"', '{"model": {"vocab": [1]}}', "5", "null")]
    for file, text in [*(("vocab.json", text) for text in ("[1]", "5", "null", '{"a": "b"}')), *damaged]:
        (tmp_path / "same/vocab.json").unlink(missing_ok=True)
        (tmp_path / "same" / file).write_text(text)
        with pytest.raises(SettingError, match=f"{file}"):
            init_from_pretrained(model_of("gpt2"), tmp_path / "same", vocabulary)


@pytest.mark.parametrize("form", ARCHITECTURES)
def test_what_a_configuration_leaves_out_is_as_transformers_has_it(form: str, tmp_path: Path) -> None:
    """Every field, with a model of its own for what has no default that is small enough."""
    architecture = ARCHITECTURES[form]
    assert architecture.defaults.keys() == {*architecture.names.values(), *architecture.fixed, "tie_word_embeddings"}
    config_class = type(transformers.AutoConfig.for_model(form))
    theirs = {field.name: field.default for field in fields(config_class)}
    for name, default in architecture.defaults.items():
        assert theirs.get(name, False) == default, name
    for here, there in architecture.aliases.items():
        assert config_class.attribute_map[here] == there
    assert rotation_of({}, form) == (getattr(config_class(), "rope_parameters", None) or {})

    model = model_of(form, tied=architecture.defaults["tie_word_embeddings"])
    export(checkpoint_of(model), tmp_path / "out")
    whole, tokens = json.loads((tmp_path / "out/config.json").read_text()), torch.randint(50257, (2, 16))
    usual = {name for name, value in architecture.defaults.items() if whole.get(name) == value}
    assert {"tie_word_embeddings", architecture.names["norm_eps"]} <= usual
    short = {name: value for name, value in whole.items() if name not in usual and name not in ("dtype", "poslab")}
    back = {there: here for here, there in architecture.aliases.items()}
    (tmp_path / "out/config.json").write_text(json.dumps({back.get(name, name): x for name, x in short.items()}))
    expected = logits(tmp_path / "out", tokens)
    begun = model_of(form, tied=architecture.defaults["tie_word_embeddings"])
    init_from_pretrained(begun, tmp_path / "out", Vocabulary(load_tokenizer("gpt2")))
    with torch.no_grad():
        torch.testing.assert_close(begun(tokens), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"n_embd": "16"}, "n_embd is '16'"),
        ({"n_head": 0}, "n_head is 0"),
        ({"n_layer": 2.0}, "n_layer is 2.0"),
        ({"layer_norm_epsilon": True}, "layer_norm_epsilon is True"),
        ({"is_causal": False}, "is_causal"),
        ({"quantization_config": {"bits": 8}}, "quantiz"),
        ({"model_type": ["gpt2"]}, "model_type"),
        ([], "config.json"),
    ],
)
def test_a_configuration_that_is_none(change: dict[str, object] | list[object], problem: str, tmp_path: Path) -> None:
    _gpt2(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change if isinstance(change, dict) else change))
    with pytest.raises(SettingError, match=f"^init_from=.*{problem}"):
        init_from_pretrained(GPT(None, **SIZES), tmp_path, Vocabulary(load_tokenizer("gpt2")))


@pytest.mark.parametrize("rotation", [5, "linear", [1]])
def test_a_rotation_that_is_none(rotation: object, tmp_path: Path) -> None:
    export(checkpoint_of(model_of("gpt_neox")), tmp_path / "out")
    config = json.loads((tmp_path / "out/config.json").read_text())
    (tmp_path / "out/config.json").write_text(json.dumps(config | {"rope_parameters": rotation}))
    with pytest.raises(SettingError, match=r"^init_from=.*can't be read"):
        init_from_pretrained(model_of("gpt_neox"), tmp_path / "out", Vocabulary(load_tokenizer("gpt2")))


@pytest.mark.parametrize("name", ["wte", "h.0.attn.c_attn", "h.1.mlp.c_fc"])
def test_a_number_for_a_weight_is_refused(name: str, tmp_path: Path) -> None:
    _gpt2(tmp_path)
    weights = load_file(file := tmp_path / "model.safetensors")
    save_file(weights | {f"transformer.{name}.weight": torch.tensor(1.0)}, file)
    with pytest.raises(SettingError, match=r"^init_from="):
        init_from_pretrained(GPT(None, **SIZES), tmp_path, Vocabulary(load_tokenizer("gpt2")))


@pytest.mark.parametrize("name", ["wte", "wpe", "h.0.attn.c_attn"])
def test_weights_of_whole_numbers_are_refused(name: str, tmp_path: Path) -> None:
    _gpt2(tmp_path)
    weights = load_file(file := tmp_path / "model.safetensors")
    name = f"transformer.{name}.weight"
    save_file(weights | {name: weights[name].to(torch.int8), "transformer.h.0.attn.bias": torch.ones(3) > 0}, file)
    with pytest.raises(SettingError, match=r"^init_from=.*torch\.int8"):
        init_from_pretrained(GPT(make_scheme("absolute"), **SIZES), tmp_path, Vocabulary(load_tokenizer("gpt2")))


@pytest.mark.parametrize("name", ["config.json", "tokens.json", "vocab.json"])
def test_a_file_that_is_nested_without_end_is_refused(name: str, tmp_path: Path) -> None:
    _gpt2(tmp_path)
    (tmp_path / name).write_text("[" * 100_000)
    with pytest.raises(SettingError, match=r"^init_from=.*recursion"):
        init_from_pretrained(GPT(None, **SIZES), tmp_path, Vocabulary(load_tokenizer("gpt2")))


def test_a_configuration_of_gpt_neox_alone_has_another_block(tmp_path: Path) -> None:
    export(checkpoint_of(model_of("gpt_neox")), tmp_path / "out")
    config = json.loads((tmp_path / "out/config.json").read_text())
    del config["use_parallel_residual"]
    (tmp_path / "out/config.json").write_text(json.dumps(config))
    with pytest.raises(SettingError, match="use_parallel_residual is True"):
        init_from_pretrained(model_of("gpt_neox"), tmp_path / "out", Vocabulary(load_tokenizer("gpt2")))


def test_shards_are_read_as_one_file(tmp_path: Path) -> None:
    """Of transformers' own model, by `init_from`, and of an exported one, by `poslab.load`."""
    theirs, tokens = _gpt2(tmp_path / "whole"), torch.randint(50257, (2, 16))
    theirs.save_pretrained(tmp_path / "shards", max_shard_size="1MB")
    index = tmp_path / "shards/model.safetensors.index.json"
    assert index.exists()
    assert not (tmp_path / "shards/model.safetensors").exists()
    begun = GPT(make_scheme("absolute"), dropout=0.0, **SIZES).eval()
    init_from_pretrained(begun, tmp_path / "shards", Vocabulary(load_tokenizer("gpt2")))
    with torch.no_grad():
        torch.testing.assert_close(begun(tokens), theirs(tokens).logits, atol=1e-5, rtol=1e-5)
    files = initial_files(str(tmp_path / "shards"))
    assert {file.name for file in files} > {"config.json", index.name}
    assert len(files) == 2 + len([*index.parent.glob("model-*.safetensors")])
    with refused("ckpt", index):
        poslab.load(tmp_path / "shards")

    listed = json.loads(index.read_text())
    shard = next(iter(listed["weight_map"].values()))
    whole = dict.fromkeys(listed["weight_map"], "../whole/model.safetensors")
    damages = [("{", "JSON"), ("[]", "weight_map"), ('{"weight_map": {}}', "weight_map")]
    damages.append((json.dumps({"weight_map": whole}), r"'../whole/model.safetensors'"))
    damages.append((json.dumps({"weight_map": listed["weight_map"] | {"more": shard}}), f"{shard} lacks more"))
    damages.append((json.dumps({"weight_map": listed["weight_map"] | {"a": "b.safetensors"}}), "b.safetensors"))
    for text, problem in damages:
        index.write_text(text)
        with pytest.raises(SettingError, match=f"^init_from=.*{problem}"):
            init_from_pretrained(begun, tmp_path / "shards", Vocabulary(load_tokenizer("gpt2")))


@pytest.mark.parametrize("pos", ["absolute", "t5"])
def test_what_transformers_has_tuned_is_loaded(pos: str, trained: Callable[..., Path], tmp_path: Path) -> None:
    run = trained("experiment=smoke", "trainer=cpu", f"pos={pos}", "data.vocabulary=observed")
    export(load_checkpoint(run), tmp_path / "out")
    settings = {"trust_remote_code": True} if pos == "t5" else {}
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out", **settings)
    tuned = moved(theirs.eval(), 0.1)
    tuned.save_pretrained(tmp_path / "tuned")
    tuned.save_pretrained(tmp_path / "shards", max_shard_size="50KB")
    assert not (tmp_path / "shards/model.safetensors").exists()
    in_shards = poslab.load(tmp_path / "shards").state_dict()
    assert all(weight.equal(in_shards[name]) for name, weight in poslab.load(tmp_path / "tuned").state_dict().items())
    for shard in (tmp_path / "shards").glob("model-00001-*.safetensors"):
        shard.unlink()
    with pytest.raises(SettingError, match=r"^ckpt=.*model-00001-of-.* is missing$"):
        poslab.load(tmp_path / "shards")
    ours, tokens = poslab.load(tmp_path / "tuned"), torch.randint(ours_size(run), (2, 8))
    with torch.no_grad():
        torch.testing.assert_close(ours(tokens), tuned(tokens).logits, atol=1e-5, rtol=1e-5)
    assert ours.tokenizer.decode([1, 2]) == poslab.load(run).tokenizer.decode([1, 2])
    expected = tuned(tokens).logits
    tuned.resize_token_embeddings(ours_size(run) + 7)
    tuned.save_pretrained(tmp_path / "resized")
    with torch.no_grad():
        torch.testing.assert_close(poslab.load(tmp_path / "resized")(tokens), expected, atol=1e-5, rtol=1e-5)


def ours_size(run: Path) -> int:
    return poslab.load(run).tokenizer.size


def test_arguments_of_transformers_are_obeyed_or_refused() -> None:
    model = with_code("t5")
    text = torch.randint(SIZES["vocab_size"], (1, 5))
    spread = 2 * torch.arange(5)[None]
    expected = model.gpt[0](text, positions=spread)
    torch.testing.assert_close(model(text, position_ids=spread).logits, expected, atol=0, rtol=0)
    assert not torch.allclose(expected, model(text).logits)
    padded, mask = F.pad(text, (2, 0)), torch.tensor([[0, 0, 1, 1, 1, 1, 1]])
    alone = model(text, output_hidden_states=True)
    states = model(
        padded, attention_mask=mask, output_hidden_states=True, position_ids=mask.cumsum(1) - 1
    ).hidden_states
    assert len(states) == SIZES["num_layers"] + 1
    for one, of_text in zip(states, alone.hidden_states, strict=True):
        torch.testing.assert_close(one[:, 2:], of_text)
    torch.testing.assert_close(F.linear(states[-1][:, 2:], model.gpt[0].head_weight), alone.logits)
    assert model(text, return_dict=False)[0].equal(alone.logits)
    with pytest.raises(ValueError, match="position_ids"):
        model(padded, attention_mask=mask, position_ids=torch.arange(7)[None])
    with pytest.raises(ValueError, match=r"^output_attentions: "):
        model(text, output_attentions=True)
    with pytest.raises(ValueError, match=r"^token_type_ids: "):
        model(text, token_type_ids=0 * text)


@pytest.mark.parametrize("name", ["absolute", "t5", "forgetting", "canon", "randomized"])
def test_a_packed_batch_is_its_documents_alone(name: str) -> None:
    """Logits, loss and gradients, as the collator of transformers says where documents begin, and what is generated."""
    model, texts = with_code(name), [torch.randint(SIZES["vocab_size"], (1, length)) for length in (7, 1, 12, 3)]
    alone = [model(text, labels=text) for text in texts if text.shape[1] > 1]
    logits = torch.cat([model(text).logits for text in texts], 1)
    loss = (6 * alone[0].loss + 11 * alone[1].loss + 2 * alone[2].loss) / 19
    gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    for said in ({}, {"return_seq_idx": True}, {"return_flash_attn_kwargs": True}):
        collator = transformers.DataCollatorWithFlattening(return_position_ids=not said, return_tensors="pt", **said)
        batch = collator([{"input_ids": text[0].tolist()} for text in texts])
        packed = model(**batch)
        torch.testing.assert_close(packed.logits, logits, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(packed.loss, loss)
        found = torch.autograd.grad(packed.loss, list(model.parameters()), allow_unused=True)
        torch.testing.assert_close(found, gradients, atol=1e-6, rtol=1e-4)
    ids, positions = torch.cat(texts, 1), torch.cat([torch.arange(text.shape[1]) for text in texts])[None]
    torch.testing.assert_close(model(ids, position_ids=positions, labels=ids).loss, loss)
    how = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0}
    written = model.generate(ids, position_ids=positions, **how)[:, -5:]
    assert torch.equal(written, model.generate(texts[-1], **how)[:, -5:])


def test_padding_is_no_document() -> None:
    """Positions of padding, whatever they are, nor a packed row that is padded on either side."""
    model, texts = with_code("t5"), [torch.randint(SIZES["vocab_size"], (1, length)) for length in (4, 3)]
    alone = torch.cat([model(text).logits for text in texts], 1)
    mask = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1, 1, 0]])
    ids = F.pad(torch.cat(texts, 1), (2, 1))
    for of_padding in (0, 1):
        text = F.pad(torch.arange(4), (2, 0), value=of_padding)[None]
        found = model(ids[:, :6], attention_mask=mask[:, :6], position_ids=text).logits
        torch.testing.assert_close(found[:, 2:], alone[:, :4])
        positions = torch.tensor([[of_padding, of_padding, 0, 1, 2, 3, 0, 1, 2, of_padding]])
        found = model(ids, attention_mask=mask, position_ids=positions).logits
        torch.testing.assert_close(found[:, 2:-1], alone)


def test_gradients_of_accumulated_batches_are_those_of_one() -> None:
    """The trainer of transformers gives the number of targets, and doesn't divide the losses."""
    model, texts = with_code("t5").train(), torch.randint(SIZES["vocab_size"], (2, 5))
    model(texts, labels=texts).loss.backward()
    (whole,) = (parameter.grad.clone() for parameter in [model.token_embedding.weight])
    model.zero_grad()
    for text in texts.split(1):
        model(text, labels=text, num_items_in_batch=torch.tensor(8)).loss.backward()
    torch.testing.assert_close(model.token_embedding.weight.grad, whole)


@pytest.mark.parametrize("tied", [True, False])
def test_tokens_are_added_as_transformers_does(tied: bool) -> None:
    model = with_code("t5", tied=tied)
    text = torch.randint(SIZES["vocab_size"], (1, 5))
    before = model(text).logits
    model.resize_token_embeddings(50304)
    assert model.get_input_embeddings().num_embeddings == model(text).logits.shape[-1] == 50304
    torch.testing.assert_close(model(text).logits[..., : SIZES["vocab_size"]], before)
