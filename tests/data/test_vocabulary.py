"""data.vocabulary=observed: fewer ids for the same text, and what happens to words that it doesn't have."""

import json
from pathlib import Path
from unittest import mock

import pytest
import tiktoken
import torch
from common import REPOSITORY, compose_config
from hypothesis import given, settings
from hypothesis import strategies as st

from poslab.config.schema import DataConfig
from poslab.data import corpus
from poslab.data.corpus import Corpus, load_corpus
from poslab.data.module import TextDataModule
from poslab.data.tokenizer import Vocabulary, load_tokenizer, observed_ids
from poslab.data.windows import CoveringWindows
from poslab.errors import SettingError
from poslab.training.train import train

VERDICT = REPOSITORY / "data" / "the-verdict.txt"
FOREIGN = "Ein Café in 東京 – “naïve” 🙂 и так далее.\n" * 20


@pytest.fixture(scope="module")
def verdict(gpt2: tiktoken.Encoding, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return load_corpus(str(VERDICT), gpt2, tmp_path_factory.mktemp("cache"), observed_only=True)


def original(loaded: Corpus, part: str) -> list[int]:
    """A part's tokens as ids of the encoding."""
    assert loaded.vocabulary.observed is not None
    return loaded.vocabulary.observed[getattr(loaded, part).long()].tolist()


def cached(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


def test_the_verdict_has_1417_tokens(verdict: Corpus, gpt2: tiktoken.Encoding) -> None:
    text = VERDICT.read_text()
    split = int(0.9 * len(text))
    expected = sorted({*gpt2.encode_ordinary(text[:split]), *gpt2.encode_ordinary(text[split:])})
    assert verdict.vocabulary.observed is not None
    assert verdict.vocabulary.observed.tolist() == expected
    assert (verdict.vocabulary.size, verdict.vocabulary.name) == (1417, "observed")
    assert len(set(gpt2.encode_ordinary(text))) == 1416  # the split cuts a word in two


def test_both_parts_map_back_to_the_very_same_tokens(verdict: Corpus, gpt2: tiktoken.Encoding, tmp_path: Path) -> None:
    full = load_corpus(str(VERDICT), gpt2, tmp_path)
    for part in ("train", "validation"):
        assert getattr(verdict, part).dtype == torch.uint16
        assert original(verdict, part) == getattr(full, part).tolist()
    assert verdict.sha256 == full.sha256
    assert int(max(verdict.train.long().max(), verdict.validation.long().max())) == 1416
    assert int(min(verdict.train.long().min(), verdict.validation.long().min())) == 0


def test_windows_are_those_of_the_full_vocabulary(tmp_path: Path) -> None:
    def module(vocabulary: str) -> TextDataModule:
        config = DataConfig(str(VERDICT), vocabulary=vocabulary, stride=64, cache_dir=str(tmp_path))
        return TextDataModule(config, context_length=256, seed=3)

    full, observed = module("full"), module("observed")
    ids = observed.vocabulary.observed
    assert ids is not None
    for loader in ("train_dataloader", "val_dataloader"):
        pairs = list(zip(getattr(full, loader)(), getattr(observed, loader)(), strict=True))
        assert pairs
        for (*_, wanted_inputs, wanted_targets), (*_, inputs, targets) in pairs:
            counted = targets != CoveringWindows.IGNORED
            assert torch.equal(ids[inputs[counted]].long(), wanted_inputs[counted])
            assert torch.equal(ids[targets[counted]].long(), wanted_targets[counted])
            assert (wanted_targets[~counted] == CoveringWindows.IGNORED).all()


def test_full_is_the_default_and_changes_nothing(gpt2: tiktoken.Encoding, tmp_path: Path) -> None:
    config = compose_config(f"data.cache_dir={tmp_path}")
    assert config.data.vocabulary == "full"
    data = TextDataModule(config.data, context_length=256, seed=1)
    text = VERDICT.read_text()
    assert data.corpus.train.tolist() == gpt2.encode_ordinary(text[: int(0.9 * len(text))])
    assert (data.vocabulary.name, data.vocabulary.size, data.vocabulary.observed) == ("full", 50257, None)
    assert data.vocabulary.encode("xylophone zebras") == gpt2.encode_ordinary("xylophone zebras")
    assert {file.suffix for file in tmp_path.iterdir()} == {".tokens", ".ends", ".parts"}


@pytest.mark.parametrize("text", [VERDICT.read_text(), FOREIGN], ids=["verdict", "foreign"])
def test_text_survives_encoding_and_decoding(text: str, gpt2: tiktoken.Encoding, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(text)
    loaded = load_corpus(str(tmp_path / "text.txt"), gpt2, tmp_path, observed_only=True)
    vocabulary, split = loaded.vocabulary, int(0.9 * len(text))
    for part, own in ((loaded.train, text[:split]), (loaded.validation, text[split:])):
        assert vocabulary.decode(part.tolist()) == own
        assert vocabulary.encode(own) == part.tolist()
    assert (vocabulary.encode(""), vocabulary.decode([])) == ([], "")


@given(tokens=st.lists(st.integers(0, 60), min_size=1, max_size=40))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_narrowing_by_definition(tokens: list[int]) -> None:
    ids = observed_ids(torch.tensor(tokens, dtype=torch.int32))
    assert ids.dtype == torch.int32
    assert ids.tolist() == sorted(set(tokens))
    narrowed = Vocabulary(load_tokenizer("gpt2"), ids).narrow(torch.tensor(tokens, dtype=torch.int32))
    assert narrowed.tolist() == [sorted(set(tokens)).index(token) for token in tokens]
    assert narrowed.dtype == torch.int32


def test_ids_that_there_are_not(verdict: Corpus, gpt2: tiktoken.Encoding) -> None:
    for vocabulary in (verdict.vocabulary, Vocabulary(gpt2)):
        for ids in ([-1], [0, vocabulary.size]):
            with pytest.raises(SettingError, match=f"must be from 0 to {vocabulary.size - 1}"):
                vocabulary.decode(ids)


def test_ids_of_a_long_text_are_found_in_pieces() -> None:
    tokens = torch.zeros(3 * 2**20, dtype=torch.int32)
    tokens[[5, 2**20, 2**20 + 1, -1]] = torch.tensor([40_000, 7, 50_256, 9], dtype=torch.int32)
    assert observed_ids(tokens).tolist() == [0, 7, 9, 40_000, 50_256]
    assert observed_ids(torch.empty(0, dtype=torch.int32)).tolist() == []


@pytest.mark.parametrize("piece", [1, 3, 50])
def test_renumbering_in_pieces_changes_nothing(
    piece: int, gpt2: tiktoken.Encoding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text.txt").write_text(FOREIGN[:200])
    whole = load_corpus(str(tmp_path / "text.txt"), gpt2, tmp_path / "whole", observed_only=True)
    monkeypatch.setattr(corpus, "_BLOCK", piece)
    pieces = load_corpus(str(tmp_path / "text.txt"), gpt2, tmp_path / "pieces", observed_only=True)
    assert torch.equal(whole.train, pieces.train)
    assert torch.equal(whole.validation, pieces.validation)


def test_a_text_of_one_letter(gpt2: tiktoken.Encoding, tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("a")
    loaded = load_corpus(str(tmp_path / "one.txt"), gpt2, tmp_path, observed_only=True)
    assert (loaded.train.tolist(), loaded.validation.tolist(), loaded.vocabulary.size) == ([], [0], 1)


def test_a_whole_text_is_tokenised_in_one_piece(gpt2: tiktoken.Encoding, tmp_path: Path) -> None:
    split = load_corpus(str(VERDICT), gpt2, tmp_path)
    whole = load_corpus(str(VERDICT), gpt2, tmp_path, split=corpus.WHOLE)
    assert len(whole.train) == 0
    assert whole.validation.tolist() == gpt2.encode_ordinary(VERDICT.read_text())
    assert len(load_corpus(str(VERDICT), gpt2, tmp_path).train) == len(split.train)


def test_second_load_reads_the_files_of_the_first(
    gpt2: tiktoken.Encoding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load_corpus(str(VERDICT), gpt2, tmp_path, observed_only=True)
    files = cached(tmp_path)
    assert len(files) == 4
    monkeypatch.setattr("poslab.data.token_cache.GrowingFiles", None)
    monkeypatch.setattr(Vocabulary, "narrow", None)
    again = load_corpus(str(VERDICT), gpt2, tmp_path, observed_only=True)
    assert torch.equal(first.train, again.train)
    assert torch.equal(first.validation, again.validation)
    assert cached(tmp_path) == files


@pytest.mark.parametrize("lost", ["tokens", "parts", "observed"])
def test_a_missing_file_is_written_again(lost: str, gpt2: tiktoken.Encoding, tmp_path: Path) -> None:
    first = load_corpus(str(VERDICT), gpt2, tmp_path, observed_only=True)
    expected, files = first.train.clone(), cached(tmp_path)
    next(tmp_path.glob(f"*.{lost}")).unlink()
    assert torch.equal(load_corpus(str(VERDICT), gpt2, tmp_path, observed_only=True).train, expected)
    written = {Path(name).suffix[1:] for name, time in cached(tmp_path).items() if files[name] != time}
    assert written == ({"observed"} if lost == "observed" else {"tokens", "ends", "parts"})


def test_interrupted_renumbering_leaves_whole_files_only(
    gpt2: tiktoken.Encoding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_corpus(str(VERDICT), gpt2, tmp_path)
    before = cached(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(corpus, "_BLOCK", 1000)
        narrow = mock.Mock(side_effect=[torch.zeros(1000, dtype=torch.int32), KeyboardInterrupt])
        patch.setattr(Vocabulary, "narrow", narrow)
        with pytest.raises(KeyboardInterrupt):
            load_corpus(str(VERDICT), gpt2, tmp_path, observed_only=True)
    assert cached(tmp_path) == before
    loaded = load_corpus(str(VERDICT), gpt2, tmp_path, observed_only=True)
    assert (len(loaded.train), len(loaded.validation)) == (4612, 534)


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("I HAD zebras", "' ze'"),  # "bras" is known
        ("the 漢字 of é", "' 漢字 é'"),
        ("I HAD always thought xylophones", "' xylophones'"),
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


def smoke(folder: Path, *overrides: str) -> dict:
    quick = ("trainer.max_epochs=1", "trainer.max_steps=1", "trainer.limit_val_batches=1", "sample.new_tokens=1")
    return vars(train(compose_config("experiment=smoke", "trainer=cpu", *quick, f"run_dir={folder}", *overrides)))


def test_a_run_with_the_observed_vocabulary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    summary = smoke(tmp_path / "run", "data.vocabulary=observed", 'sample.prompt="I HAD always"')
    written = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (written["vocabulary"], written["vocabulary_size"]) == ("observed", 1417)
    assert summary["params_trunk"] == 1417 * 32 + 2 * (12 * 32**2 + 13 * 32) + 2 * 32
    assert 7 < summary["last_val_loss"] < 7.6  # ln 1,417 = 7.3
    assert "sample   I HAD always" in capsys.readouterr().out
    assert "vocabulary: observed" in (tmp_path / "run" / "config.yaml").read_text()


def test_every_word_of_the_text_can_be_prompted(verdict: Corpus) -> None:
    words = VERDICT.read_text().split(" ")[:400]
    for start in range(0, 400, 20):
        prompt = " " + " ".join(words[start : start + 20])
        assert verdict.vocabulary.decode(verdict.vocabulary.encode(prompt)) == prompt
