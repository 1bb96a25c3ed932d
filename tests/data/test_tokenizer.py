"""Encodings by character and by byte, and data.vocabulary=observed: fewer ids for the same text, and words that it
doesn't have."""

import json
from pathlib import Path

import pytest
import tiktoken
import torch
from common import RunScript, assert_refused, compose_config
from corpora import VERDICT
from hypothesis import given, settings
from hypothesis import strategies as st

from poslab import load
from poslab.data.corpus import Corpus, Split, load_corpus
from poslab.data.tokenizer import Vocabulary, load_tokenizer, observed_ids
from poslab.errors import SettingError
from poslab.evaluation.files import own_text
from poslab.evaluation.losses import sliding_losses
from poslab.runs.checkpoint import load_checkpoint
from poslab.training.train import train

QUICK = ("experiment=smoke", "trainer=cpu", "trainer.max_epochs=1", "sample.new_tokens=0", "data.batch_size=4")


@pytest.mark.parametrize(
    ("settings", "vocabulary"),
    [(["data.vocabulary=full"], "observed"), (["data.encoding=bytes", "data.vocabulary=full"], "full")],
)
def test_an_alphabet_is_that_of_its_text(settings: list[str], vocabulary: str) -> None:
    assert compose_config("data=shakespeare_characters", *settings).plain["data"]["vocabulary"] == vocabulary


def test_a_run_by_character_is_used_later(run_script: RunScript, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    train(compose_config(*QUICK, f"data.path={VERDICT}", "data.encoding=characters", f"run_dir={folder}"))
    model = load(folder)
    assert model.tokenizer.decode(model.tokenizer.encode("I HAD")) == "I HAD"
    of_text = f"the model knows only the {model.tokenizer.size} characters of the text it was trained on"
    assert_refused(run_script("generate", f"ckpt={folder}", "prompt=one Käse"), f"Käse: {of_text}, not 'Kä'\n")
    code, _, errors = run_script("evaluate", f"ckpt={folder}", "lengths=[16]")
    assert (code, errors) == (0, "")
    other = tmp_path / "other.txt"
    other.write_text("A café, and much more of it")
    assert_refused(run_script("evaluate", f"ckpt={folder}", f"data_path={other}", "lengths=[4]"), "not 'é'\n")


def test_a_run_by_byte_reads_anything(run_script: RunScript, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 8)
    folder = tmp_path / "run"
    train(compose_config(*QUICK, f"data.path={tmp_path / 'binary'}", "data.encoding=bytes", f"run_dir={folder}"))
    code, output, _ = run_script("generate", f"ckpt={folder}", "prompt=Käse", "max_new_tokens=2", "top_k=1")
    assert (code, output[:4]) == (0, "Käse")


def test_the_test_part_is_what_is_reported(tmp_path: Path) -> None:
    parts = ("data.validation_share=0.2", "data.test_share=0.1", "data.vocabulary=observed")
    summary = train(compose_config(*QUICK, *parts, "evaluation.lengths=[16]", f"run_dir={tmp_path}"))
    checkpoint = load_checkpoint(tmp_path)
    corpus = load_corpus(str(VERDICT), load_tokenizer("gpt2"), tmp_path / "cache", True, Split(0.2, 0.1))
    losses = sliding_losses(checkpoint.model, corpus.validation[: 8 * 4 * 32 + 1], 32, 32).losses
    assert summary.best_val_loss == pytest.approx(float(losses.mean()), rel=1e-5)  # of the batches that smoke takes
    text = own_text(checkpoint)
    assert text.name == "the-verdict.txt, test part"
    assert len(text.tokens) == summary.test_tokens
    expected = sliding_losses(checkpoint.model, text.tokens, 32, 32).losses.mean()
    assert summary.test_loss == pytest.approx(float(expected))
    assert json.loads((tmp_path / "evaluation.json").read_text())["text"] == "the-verdict.txt, test part"
    assert json.loads((tmp_path / "evaluation.json").read_text())["tokens"] == len(text.tokens) - 1


@pytest.mark.usefixtures("no_network")
def test_gpt2_without_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cache = tmp_path / "tiktoken"
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(cache))
    tokenizer = load_tokenizer("gpt2")
    assert tokenizer.decode(tokenizer.encode("Every effort moves you")) == "Every effort moves you"
    assert tokenizer.eot_token == 50256
    assert not cache.exists()
    with pytest.raises(SettingError, match="could not download"):
        load_tokenizer("cl100k_base")


@pytest.fixture(scope="module")
def verdict(gpt2: tiktoken.Encoding, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return load_corpus(str(VERDICT), gpt2, tmp_path_factory.mktemp("cache"), observed_only=True)


def test_ids_of_a_long_text_are_found_in_pieces() -> None:
    tokens = torch.zeros(3 * 2**20, dtype=torch.int32)
    tokens[[5, 2**20, 2**20 + 1, -1]] = torch.tensor([40_000, 7, 50_256, 9], dtype=torch.int32)
    assert observed_ids(tokens).tolist() == [0, 7, 9, 40_000, 50_256]
    assert observed_ids(torch.empty(0, dtype=torch.int32)).tolist() == []


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("I HAD zebras", "' ze'"),  # "bras" is known
        ("xylophone " * 1000, "'xylophone xylophone xylophone x'"),
    ],
)
def test_words_outside_are_named(prompt: str, words: str, verdict: Corpus) -> None:
    with pytest.raises(SettingError) as refusal:
        verdict.vocabulary.encode(prompt, "sample.prompt")
    assert refusal.value.option == "sample.prompt"
    assert "the model knows only the 1,417 tokens of the text it was trained on" in str(refusal.value)
    assert str(refusal.value).endswith(f"not {words}")


@given(text=st.text(st.sampled_from("I HAD always thought zé漢🙂\n"), max_size=30))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_a_prompt_is_encoded_right_or_refused(text: str) -> None:
    encoding = load_tokenizer("gpt2")
    known = set(encoding.encode_ordinary("I HAD always thought é\n"))
    vocabulary = Vocabulary(encoding, torch.tensor(sorted(known), dtype=torch.int32))
    tokens = encoding.encode_ordinary(text)
    if set(tokens) <= known:
        assert vocabulary.decode(vocabulary.encode(text)) == text
    else:
        with pytest.raises(SettingError, match="knows only"):
            vocabulary.encode(text)


def test_ids_that_there_are_not(verdict: Corpus) -> None:
    for ids in ([-1], [0, verdict.vocabulary.size]):
        with pytest.raises(SettingError, match=rf"\b{verdict.vocabulary.size - 1}\b"):
            verdict.vocabulary.decode(ids)
