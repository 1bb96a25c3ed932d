"""scripts/generate.py: its output and what it refuses; poslab.load."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from common import ENDING, ENDLESS, RunScript, assert_refused
from processes import Script
from runs_to_evaluate import make_run

import poslab
from poslab.commands.generate import show_text
from poslab.data.tokenizer import Vocabulary, load_tokenizer
from poslab.errors import SettingError
from poslab.runs.checkpoint import load_checkpoint

ODD = 'Hello, "world"! (it\'s ${odd}) [x] a=b {c: d} \\ $HOME #1 ~ é 漢字 😀 <|endoftext|>'


@pytest.fixture
def runs(made: Callable[..., Path]) -> dict[str, Path]:
    return {name: made(f"pos={name}", "data.vocabulary=full") for name in (ENDLESS, ENDING)}


@pytest.mark.parametrize("name", [ENDLESS, ENDING])
def test_the_text_alone_stands_on_stdout(name: str, script: RunScript, runs: dict[str, Path]) -> None:
    code, text, said = script(f"ckpt={runs[name]}", f"prompt={ODD}", "max_new_tokens=20", "seed=3", "device=cpu")
    assert code == 0
    model = poslab.load(runs[name])
    (expected,) = model.generate([model.tokenizer.encode(ODD)], 20, temperature=0.8, top_k=40, seed=3)
    assert text == model.tokenizer.decode(expected) + "\n"
    assert text.startswith(ODD)
    assert said.splitlines()[-1].startswith("20 tokens in ")
    assert said.splitlines()[-1].endswith(" tokens/s")


def test_several_prompts_and_samples(script: RunScript, runs: dict[str, Path]) -> None:
    arguments = ("prompt=He said, yes", "prompt=No", "samples=2", "max_new_tokens=7", "temperature=1.0", "top_k=null")
    code, text, said = script(f"ckpt={runs[ENDLESS]}", *arguments)
    assert code == 0
    pages = dict(page.split("\n", 1) for page in text.removeprefix("== ").split("\n== "))
    assert list(pages) == [f"prompt {p}, sample {s}" for p in (1, 2) for s in (1, 2)]
    model = poslab.load(runs[ENDLESS])
    prompts = [model.tokenizer.encode(prompt) for prompt in ("He said, yes", "No") for _ in range(2)]
    expected = [model.tokenizer.decode(ids) for ids in model.generate(prompts, 7, seed=1)]
    assert [content.rstrip("\n") for content in pages.values()] == [content.rstrip("\n") for content in expected]
    assert "28 tokens in " in said


def test_notes_about_what_the_model_can_not_see(script: RunScript, runs: dict[str, Path]) -> None:
    """Notes go to stderr, a line each, and name no scheme; the context is 32 tokens."""
    for name, run in runs.items():
        model = poslab.load(run)
        ends = model.pos.max_length(model.shape) is not None
        _, _, said = script(f"ckpt={run}", "prompt=" + "a b " * 30, "max_new_tokens=3")
        *notes, _ = said.splitlines()
        assert notes[0] == "note: of the prompt's 61 tokens the model reads the last 32"
        assert [note[:65] for note in notes[1:]] == [
            "note: this model knows 32 positions; beyond them each token is co"
        ] * ends
        assert name not in said.replace("note", "")
        _, _, said = script(f"ckpt={run}", "prompt=short", "max_new_tokens=30")
        assert len(said.splitlines()) == 1
        code, text, said = script(f"ckpt={run}", "prompt=short", "max_new_tokens=40", "strict=true")
        assert (code, bool(text)) == ((2, False) if ends else (0, True))
        if ends:
            assert said.startswith(
                "error: max_new_tokens=40: this position scheme knows 32 positions, and the prompt has"
            )


def test_words_that_the_model_does_not_know(script: RunScript, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", f"pos={ENDLESS}")  # with the text's own vocabulary
    refused = script(f"ckpt={run}", "prompt=I had", "prompt=Some zebras")
    assert_refused(refused, "prompt=Some zebras: the model knows only the 1,417 tokens of the text")
    assert refused[1] == ""
    assert load_checkpoint(run / "checkpoints" / "last.ckpt").vocabulary.end_of_text is None


def test_no_memory_is_said(runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: poslab.GPT, device: str) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(poslab.GPT, "to", refuse)
    with pytest.raises(SettingError, match="memory"):
        poslab.load(runs[ENDLESS])


@pytest.mark.skipif(os.name != "posix", reason="needs named pipes")
def test_a_reader_that_has_seen_enough(runs: dict[str, Path], tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    arguments = (f"ckpt={runs[ENDLESS]}", "prompt=Yes", "max_new_tokens=3000")
    script = Script("generate", *arguments, cwd=tmp_path, stdout=pipe)
    reading = os.open(pipe, os.O_RDONLY)
    assert os.read(reading, 3) == b"Yes"
    os.close(reading)
    result = script.finish()
    assert (result.returncode, result.stderr) == (141, "")


# Characters


def test_a_character_is_printed_when_it_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    text = "a 😀漢é b"
    vocabulary, seen = Vocabulary(load_tokenizer("gpt2")), []

    def tokens() -> Iterator[int]:
        for token in vocabulary.encode(text):
            yield token
            seen.append(capsys.readouterr().out)

    show_text(vocabulary, None, "", [], tokens())
    seen.append(capsys.readouterr().out)
    assert "".join(seen) == text + "\n"
    assert "\ufffd" not in "".join(seen)
    assert "" in seen  # of the first part of a character, nothing
    show_text(vocabulary, None, "", vocabulary.encode("a😀")[:-1], [])  # a part of a character at the end
    assert capsys.readouterr().out == "a\ufffd\n"


@pytest.mark.parametrize(("is_terminal", "shown"), [(True, "·[2J red·"), (False, "\x1b[2J red\x07")])
def test_a_terminal_obeys_no_model(
    is_terminal: bool, shown: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    vocabulary = Vocabulary(load_tokenizer("bytes"))
    show_text(vocabulary, None, "", vocabulary.encode("\x1b[2J"), vocabulary.encode(" red\x07"))
    assert capsys.readouterr().out == shown + "\n"


def test_end_of_text_ends_a_text_and_is_plain_text_in_a_prompt(capsys: pytest.CaptureFixture[str]) -> None:
    vocabulary = Vocabulary(load_tokenizer("gpt2"))
    assert vocabulary.end_of_text == 50256
    prompt = vocabulary.encode("<|endoftext|>")
    assert 50256 not in prompt
    new = [*vocabulary.encode(" one"), 50256, *vocabulary.encode(" two")]
    assert show_text(vocabulary, 50256, "", prompt, new) == 2  # the end counts
    assert capsys.readouterr().out == "<|endoftext|> one\n"
