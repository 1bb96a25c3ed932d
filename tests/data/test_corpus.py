"""Bundled files, windows, splitting, tokenising in pieces, the cache, and no network."""

import hashlib
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
import regex
import tiktoken
import torch
from common import REPOSITORY
from hypothesis import given, settings
from hypothesis import strategies as st
from tiktoken_ext import openai_public

from poslab.config.files import find_files
from poslab.config.schema import DataConfig
from poslab.data import SlidingWindowDataset, corpus
from poslab.data.corpus import load_corpus
from poslab.data.module import TextDataModule
from poslab.data.tokenizer import Characters, load_tokenizer
from poslab.data.windows import CoveringWindows
from poslab.errors import SettingError, UserError


def tiktoken_patterns() -> list[str]:
    """The pattern of every encoding that tiktoken has, taken from its own definitions without their vocabularies."""
    nothing = mock.Mock(return_value={})
    with mock.patch.multiple(openai_public, load_tiktoken_bpe=nothing, data_gym_to_mergeable_bpe_ranks=nothing):
        return sorted({make()["pat_str"] for make in openai_public.ENCODING_CONSTRUCTORS.values()})


VERDICT = REPOSITORY / "data" / "the-verdict.txt"
SHAKESPEARE = REPOSITORY / "data" / "tinyshakespeare.txt"


def test_bundled_files_are_the_originals(reference_cases: dict) -> None:
    for name, sha256 in reference_cases["files_sha256"].items():
        assert hashlib.sha256((REPOSITORY / "data" / name).read_bytes()).hexdigest() == sha256, name
        assert sha256 in (REPOSITORY / "data" / "README.md").read_text(), name


def test_reference_windows(reference_cases: dict, gpt2: tiktoken.Encoding) -> None:
    case = reference_cases["sliding_window"]
    token_ids = gpt2.encode_ordinary(case["text_start"])
    dataset = SlidingWindowDataset(token_ids, case["max_length"], case["stride"])
    windows = [dataset[i] for i in range(case["batch_size"])]
    inputs = torch.stack([window for window, _ in windows])
    assert inputs.tolist() == case["inputs"]
    assert inputs.dtype == torch.int64
    for i, (_, target) in enumerate(windows):
        assert target.tolist() == token_ids[4 * i + 1 : 4 * i + 5]
    embedding = torch.nn.Embedding(case["vocab_size"], case["embedding_dim"])
    assert list(embedding(inputs).shape) == case["embedded_shape"]
    assert gpt2.n_vocab == case["vocab_size"]


def test_verdict_and_shakespeare_counts(reference_cases: dict, gpt2: tiktoken.Encoding, tmp_path: Path) -> None:
    case = reference_cases["the_verdict"]
    loaded = load_corpus(str(VERDICT), gpt2, tmp_path)
    assert loaded.sha256 == case["sha256"]
    assert (len(loaded.train), len(loaded.validation)) == (case["train_tokens"], case["validation_tokens"])
    whole = gpt2.encode_ordinary(VERDICT.read_text())
    assert (len(whole), len(set(whole))) == (case["gpt2_tokens"], case["distinct_gpt2_tokens"])
    case = reference_cases["tinyshakespeare"]
    whole = gpt2.encode_ordinary(SHAKESPEARE.read_text())
    assert (len(whole), len(set(whole))) == (case["gpt2_tokens"], case["distinct_gpt2_tokens"])


@given(length=st.integers(0, 40), max_length=st.integers(1, 12), stride=st.integers(1, 15))
@settings(max_examples=200, deadline=None)
def test_windows_by_definition(length: int, max_length: int, stride: int) -> None:
    token_ids = list(range(100, 100 + length))
    dataset = SlidingWindowDataset(token_ids, max_length, stride)
    expected = []
    start = 0
    while start + max_length < length:
        expected.append((token_ids[start : start + max_length], token_ids[start + 1 : start + max_length + 1]))
        start += stride
    assert len(dataset) == len(expected)
    assert [(x.tolist(), y.tolist()) for x, y in dataset] == expected
    if expected:
        assert dataset[-1][0].tolist() == expected[-1][0]


@given(count=st.integers(2, 40), length=st.integers(1, 45), stride=st.integers(1, 45))
@settings(max_examples=200, deadline=None)
def test_covering_windows_predict_every_token_but_the_first(count: int, length: int, stride: int) -> None:
    text, stride = torch.arange(100, 100 + count, dtype=torch.int32), min(stride, length)
    windows = list(CoveringWindows(text, length, stride))
    predicted: list[int] = []
    for number, (index, inputs, targets) in enumerate(windows):
        assert index == number
        assert inputs.dtype == targets.dtype == torch.int64
        assert inputs.shape == targets.shape == (length,)
        counted = targets != CoveringWindows.IGNORED
        assert torch.equal(targets[counted], inputs[counted] + 1)
        assert number == len(windows) - 1 or counted.all()
        predicted += targets[counted].tolist()
    assert sorted(set(predicted)) == text[1:].tolist()
    assert stride < length or len(predicted) == count - 1
    assert windows[-1][0] == 0 or targets[length - stride] != CoveringWindows.IGNORED  # no window too many


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_windows_are_int64_whatever_the_tokens_are(dtype: torch.dtype) -> None:
    window, target = SlidingWindowDataset(torch.arange(20, dtype=dtype), 5, 3)[1]
    assert window.dtype == target.dtype == torch.int64
    assert (window.tolist(), target.tolist()) == ([3, 4, 5, 6, 7], [4, 5, 6, 7, 8])


def test_windows_store_nothing_but_the_array() -> None:
    token_ids = torch.zeros(10_000_000, dtype=torch.int32)
    dataset = SlidingWindowDataset(token_ids, 1024, 1)
    assert len(dataset) == 10_000_000 - 1024
    assert dataset.token_ids.data_ptr() == token_ids.data_ptr()
    assert set(vars(dataset)) == {"token_ids", "max_length", "stride"}


@pytest.mark.parametrize(("max_length", "stride"), [(0, 1), (1, 0), (-1, 1)])
def test_impossible_windows(max_length: int, stride: int) -> None:
    with pytest.raises(SettingError):
        SlidingWindowDataset([1, 2, 3], max_length, stride)


TRICKY = [
    "plain words, and punctuation!\n\nNew paragraph...\n",
    "  leading and trailing   spaces   \n\t\n  x\r\nCRLF\r\n\r\n",
    "numbers 1234567 and 12 34\nemoji 😀 👨‍👩‍👧 العربية עברית 漢字かな。\n次の行\n",
    "don't we've I'M they'LL <|endoftext|> _under_score_ a_\nb",
    "x" * 50 + " " * 30 + "\n" * 7 + "y",
]


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 50, 1 << 20])
@pytest.mark.parametrize("text", [*TRICKY, "".join(TRICKY) * 3], ids=lambda text: repr(text[:10]))
def test_tokenising_in_pieces_changes_nothing(
    text: str, piece: int, gpt2: tiktoken.Encoding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "_PIECE", piece)
    file = tmp_path / "text.txt"
    file.write_bytes(text.encode())
    loaded = load_corpus(str(file), gpt2, tmp_path / "cache")
    split = int(0.9 * len(text))
    assert loaded.train.tolist() == gpt2.encode_ordinary(text[:split])
    assert loaded.validation.tolist() == gpt2.encode_ordinary(text[split:])


@given(text=st.text(st.sampled_from("ab1 \n\r\t.,'é漢_\u00a0\u0301"), min_size=1, max_size=60), piece=st.integers(1, 9))
@settings(max_examples=300, deadline=None)
def test_pieces_of_random_text(text: str, piece: int) -> None:
    gpt2 = load_tokenizer("gpt2")
    pieces = (text[i : i + piece] for i in range(0, len(text), piece))
    tokens = [token for piece in corpus._cut(pieces, gpt2) for token in corpus._encoded(gpt2, piece).tokens.tolist()]
    assert tokens == gpt2.encode_ordinary(text)


@pytest.mark.parametrize("line", ["これは文です。\n", "foo(bar);\n", "“Yes!”\n", "a\r\n"])
def test_no_line_is_too_odd_to_cut_after(line: str) -> None:
    """Otherwise a long text would be tokenised in one piece, in memory."""
    text = line * 1000
    assert corpus._last_safe_cut(text, since=0) > len(text) - 3 * len(line)


@given(
    text=st.text(st.sampled_from("ab1 \n\r\t.,'(;/。é漢字_\u00a0“"), min_size=1, max_size=60),
    encoding=st.sampled_from(tiktoken_patterns()),
)
@settings(max_examples=400, deadline=None)
def test_cuts_are_word_boundaries_of_every_encoding(text: str, encoding: str) -> None:
    """The patterns alone: vocabularies other than gpt2's are not here."""
    whole = regex.findall(encoding, text)
    starts = {sum(map(len, whole[:i])) for i in range(len(whole) + 1)}
    for cut in (match.end() for match in corpus._SAFE_CUT.finditer(text)):
        assert cut in starts
        assert [*regex.findall(encoding, text[:cut]), *regex.findall(encoding, text[cut:])] == whole


def test_byte_order_mark_is_dropped_and_line_ends_stay(gpt2: tiktoken.Encoding, tmp_path: Path) -> None:
    file = tmp_path / "windows.txt"
    file.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\nthree\r\nfour\r\n")
    loaded = load_corpus(str(file), gpt2, tmp_path)
    assert gpt2.decode([*loaded.train.tolist(), *loaded.validation.tolist()]) == "one\r\ntwo\r\nthree\r\nfour\r\n"


def test_folders_and_globs_are_joined_by_end_of_text(gpt2: tiktoken.Encoding, tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "b.txt").write_text("second file\n")
    (tmp_path / "a.txt").write_text("first file\n")
    (tmp_path / "deep" / "er" / "c.txt").write_text("third file, which is longer than the others are\n")
    (tmp_path / "notes.md").write_text("not a text")
    for path in (tmp_path, tmp_path / "**" / "*.txt"):
        loaded = load_corpus(str(path), gpt2, tmp_path / "cache")
        text = gpt2.decode([*loaded.train.tolist(), *loaded.validation.tolist()])
        assert text == (
            "first file\n<|endoftext|>second file\n<|endoftext|>third file, which is longer than the others are\n"
        )
    assert loaded.train.tolist().count(gpt2.eot_token) == 2


@pytest.mark.parametrize("observed", [False, True])
@pytest.mark.parametrize("piece", [2, 1 << 20])
def test_each_file_of_a_text_is_a_document(
    piece: int, observed: bool, gpt2: tiktoken.Encoding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "_PIECE", piece)
    for name, text in {"a": "one two\n", "b": "three\n", "c": "four five six\n" * 9}.items():
        (tmp_path / f"{name}.txt").write_text(text)
    loaded = load_corpus(str(tmp_path), Characters(), tmp_path / "cache", observed)
    assert loaded.documents == 3
    assert {name: ends.tolist() for name, ends in loaded.ends.items()} == {"train": [8, 14], "validation": []}
    loaded = load_corpus(str(tmp_path), gpt2, tmp_path / "cache", observed)
    starts = [0, *loaded.ends["train"].tolist()]
    assert loaded.vocabulary.decode(loaded.train[: starts[1]].tolist()) == "one two\n<|endoftext|>"
    assert loaded.vocabulary.decode(loaded.train[starts[1] : starts[2]].tolist()) == "three\n<|endoftext|>"
    assert len(starts) == 3
    alone = load_corpus(str(tmp_path / "c.txt"), gpt2, tmp_path / "cache", observed)
    assert (alone.documents, dict(alone.ends)) == (None, {})


def test_changed_content_is_not_taken_from_the_cache(gpt2: tiktoken.Encoding, tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    for text in ("one two three four five", "six seven eight nine ten"):
        file.write_text(text)
        loaded = load_corpus(str(file), gpt2, tmp_path / "cache")
        assert gpt2.decode([*loaded.train.tolist(), *loaded.validation.tolist()]) == text


def test_another_encoding_has_tokens_of_its_own(gpt2: tiktoken.Encoding, tmp_path: Path) -> None:
    by_bytes = {bytes([value]): value for value in range(256)}
    single = tiktoken.Encoding("single", pat_str=r"[\s\S]", mergeable_ranks=by_bytes, special_tokens={})
    file = tmp_path / "text.txt"
    file.write_text("one two three four five")
    for encoding in (gpt2, single):
        loaded = load_corpus(str(file), encoding, tmp_path / "cache")
        assert encoding.decode([*loaded.train.tolist(), *loaded.validation.tolist()]) == file.read_text()


def test_an_interrupted_tokenisation_leaves_nothing(
    gpt2: tiktoken.Encoding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(corpus, "_cut", interrupted)
        with pytest.raises(KeyboardInterrupt):
            load_corpus(str(VERDICT), gpt2, tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert len(load_corpus(str(VERDICT), gpt2, tmp_path).train) == 4612


def truncate(file: Path) -> None:
    os.truncate(file, 6000)


def flip_a_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[1000] ^= 1
    file.write_bytes(content)


def lengthen(file: Path) -> None:
    file.write_bytes(file.read_bytes() + bytes(8))


def empty(file: Path) -> None:
    os.truncate(file, 0)


def write_half(file: Path) -> None:
    """As after a power cut: all of its length, but the disk has only the beginning."""
    size = file.stat().st_size
    os.truncate(file, size // 2)
    os.truncate(file, size)


def leave_out_the_checksum(file: Path) -> None:
    """As token files were before they had one."""
    os.truncate(file, 4 * 4612)


@pytest.mark.parametrize("damage", [truncate, flip_a_bit, lengthen, empty, write_half, leave_out_the_checksum])
@pytest.mark.parametrize("observed", [False, True])
def test_a_damaged_cache_is_made_anew(
    damage: Callable[[Path], None],
    observed: bool,
    gpt2: tiktoken.Encoding,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first = load_corpus(str(VERDICT), gpt2, tmp_path, observed)
    train, validation = first.train.tolist(), first.validation.tolist()
    del first  # a file that is mapped changes under its reader
    written = {file: file.read_bytes() for file in tmp_path.iterdir()}
    (damaged,) = tmp_path.glob("*.observed.train.bin" if observed else "*.train.bin")
    damage(damaged)
    assert capsys.readouterr().err == ""
    again = load_corpus(str(VERDICT), gpt2, tmp_path, observed)
    assert capsys.readouterr().err == f"warning: {damaged} is damaged or another's; it is made anew from the text\n"
    assert (again.train.tolist(), again.validation.tolist()) == (train, validation)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == written
    load_corpus(str(VERDICT), gpt2, tmp_path, observed)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["text.txt", "c.jsonl"])
def test_a_cache_file_under_another_name_is_made_anew(
    name: str, gpt2: tiktoken.Encoding, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As where two are swapped: a file holds tokens of one text only."""
    file, made = tmp_path / name, {}
    for text in ("one two three four five six", "six five four three two one"):
        file.write_text(f'{{"text": "{text}"}}\n' * 10)
        cache = tmp_path / text
        made[text] = load_corpus(str(file), gpt2, cache).train.tolist(), {file.name for file in cache.iterdir()}
    (one, _), (other, names) = made.values()
    assert one != other
    for mine, theirs in zip(sorted(names), sorted((tmp_path / "one two three four five six").iterdir()), strict=True):
        (cache / mine).write_bytes(theirs.read_bytes())
    assert load_corpus(str(file), gpt2, cache).train.tolist() == other
    assert capsys.readouterr().err.count("is damaged or another's; it is made anew from the text\n") == 2


def test_a_damaged_cache_that_cannot_be_replaced(
    gpt2: tiktoken.Encoding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_corpus(str(VERDICT), gpt2, tmp_path)
    (damaged,) = tmp_path.glob("*.train.bin")
    truncate(damaged)
    monkeypatch.setattr("os.replace", mock.Mock(side_effect=PermissionError))  # as where Windows has it open
    with pytest.raises(UserError, match=r"^data\.cache_dir=.*\.train\.bin can't be made anew; name another$"):
        load_corpus(str(VERDICT), gpt2, tmp_path)


@pytest.mark.parametrize("passes", [0, 1, 2, 3])  # of each part, the characters are counted, then tokenised
def test_a_text_that_changes_while_it_is_read_is_not_stored(
    passes: int, gpt2: tiktoken.Encoding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the unchanged text would later be taken for what was stored under its hash."""
    file, cache = tmp_path / "text.txt", tmp_path / "cache"
    original, other = VERDICT.read_text(), SHAKESPEARE.read_text()
    expected = load_corpus(str(VERDICT), gpt2, tmp_path / "apart")
    file.write_text(original)
    read, times = corpus.find_files, iter(range(10))

    def changing(path: str) -> list[Path]:
        if next(times) == passes:
            file.write_text(other)
        return read(path)

    with monkeypatch.context() as patch:
        patch.setattr(corpus, "find_files", changing)
        with pytest.raises(SettingError, match="the text changed while it was read; start again once it is complete"):
            load_corpus(str(file), gpt2, cache)
    file.write_text(original)
    loaded = load_corpus(str(file), gpt2, cache)
    assert (loaded.sha256, loaded.train.tolist(), loaded.validation.tolist()) == (
        expected.sha256,
        expected.train.tolist(),
        expected.validation.tolist(),
    )


def test_a_text_that_grows_while_it_is_tokenised(
    gpt2: tiktoken.Encoding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "text.txt"
    file.write_text("one two three four five six seven\n" * 100)
    monkeypatch.setattr(corpus, "_PIECE", 1000)
    last_safe_cut = corpus._last_safe_cut

    def growing(text: str, since: int) -> int:
        with file.open("a") as opened:
            opened.write("eight\n")
        return last_safe_cut(text, since)

    monkeypatch.setattr(corpus, "_last_safe_cut", growing)
    with pytest.raises(SettingError, match="changed while it was read"):
        load_corpus(str(file), gpt2, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


BAD_TEXTS = {
    "empty": (b"", "empty"),
    "a byte order mark": (b"\xef\xbb\xbf", "empty"),
    "latin1": ("déjà vu".encode("latin1"), "not UTF-8"),
    "utf16": ("text".encode("utf-16"), "not UTF-8"),
    "binary": (b"\x00\x01text", "null bytes"),
}


@pytest.mark.parametrize("kind", BAD_TEXTS)
def test_bad_texts_are_refused_and_leave_nothing(kind: str, gpt2: tiktoken.Encoding, tmp_path: Path) -> None:
    content, problem = BAD_TEXTS[kind]
    file = tmp_path / "bad.txt"
    file.write_bytes(content)
    with pytest.raises(SettingError, match=problem) as refusal:
        load_corpus(str(file), gpt2, tmp_path / "cache")
    assert str(file) in str(refusal.value)
    assert not list((tmp_path / "cache").glob("*"))
    assert file.read_bytes() == content


def test_missing_files(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.txt", tmp_path / "*.txt", tmp_path):
        with pytest.raises(SettingError, match="no "):
            find_files(str(path))


def module_of(path: Path, cache: Path, context_length: int = 256, seed: int = 1, **settings: object) -> TextDataModule:
    return TextDataModule(DataConfig(str(path), cache_dir=str(cache), **settings), context_length, seed)


def test_split_comes_before_windows(tmp_path: Path) -> None:
    data = module_of(VERDICT, tmp_path, stride=64)
    assert len(data.train_windows) == len(range(0, 4612 - 256, 64))
    windows = list(data.validation_windows)
    assert len(windows) == 3  # side by side: 534 tokens, starts 0, 256 and 512
    assert torch.equal(data.corpus.validation[:-1].long(), torch.cat([inputs for _, inputs, _ in windows])[:533])


def test_order_depends_on_the_seed_alone(tmp_path: Path) -> None:
    def batches(seed: int, noise: int) -> list[torch.Tensor]:
        torch.manual_seed(noise)
        data = module_of(VERDICT, tmp_path, seed=seed, stride=64)
        return [batch[0] for batch in data.train_dataloader()]

    first, same, other = batches(1, noise=0), batches(1, noise=9), batches(2, noise=0)
    assert all(torch.equal(a, b) for a, b in zip(first, same, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_workers_change_nothing(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the process would start: in jobs of a sweep that is another kind."""
    monkeypatch.setattr(
        multiprocessing.context._default_context, "_actual_context", multiprocessing.get_context(method)
    )

    def two_epochs(workers: int) -> list[torch.Tensor]:
        data = module_of(VERDICT, tmp_path, stride=512, num_workers=workers)
        loader = data.train_dataloader()
        return [batch[0] for _ in range(2) for batch in loader]

    assert all(torch.equal(a, b) for a, b in zip(two_epochs(0), two_epochs(1), strict=True))


def test_bad_text_is_the_fault_of_data_path(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(SettingError, match=r"^data\.path=.*: the text is empty"):
        module_of(tmp_path / "empty.txt", tmp_path / "cache")


@pytest.mark.parametrize("context_length", [534, 5000])
def test_text_too_short_for_a_window(context_length: int, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"validation part .* 534 tokens; up to 533 would fit") as refusal:
        module_of(VERDICT, tmp_path, context_length)
    assert refusal.value.option == "model.context_length"
    assert len(module_of(VERDICT, tmp_path, 533).validation_windows) == 1
    assert len(module_of(VERDICT, tmp_path, 532).validation_windows) == 2


def test_one_token_text(tmp_path: Path) -> None:
    (tmp_path / "tiny.txt").write_text("a")
    with pytest.raises(SettingError, match="no context would fit"):
        module_of(tmp_path / "tiny.txt", tmp_path / "cache", 1)


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
