"""Texts that are odd train, each character of them as it stands; only what is no text is refused."""

import math
from pathlib import Path

import pytest
import tiktoken
from common import compose_config
from runs_to_resume import TINY

from poslab.data.corpus import load_corpus
from poslab.training.train import train

ODD = {
    "line ends of Windows": "one\r\ntwo and three\r\n" * 60,
    "line ends of old Macs": "one\rtwo and three\r" * 60,
    "one very long line": "word " * 100_000,
    "one very long word": "a" * 20_000,
    "emoji": "😀👨‍👩‍👧🏳️‍🌈 " * 60,
    "right to left": "العربية עברית " * 100,
    "end of text as text": "before <|endoftext|> after " * 60,
    "nothing but spaces": " \n\t" * 600,
    "control characters": "\x01\x1b[31m\x7f\u2028\u200b\ufeff" * 60,
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_odd_texts_are_read_as_they_are(text: str, gpt2: tiktoken.Encoding, tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_bytes(text.encode())
    corpus = load_corpus(str(file), gpt2, tmp_path / "cache")
    whole = [*corpus.train.tolist(), *corpus.validation.tolist()]
    assert gpt2.decode_bytes(whole) == text.encode()


def test_odd_texts_train(tmp_path: Path) -> None:
    """All of them, as the files of a folder."""
    for number, text in enumerate(ODD.values()):
        (tmp_path / "texts").mkdir(exist_ok=True)
        (tmp_path / "texts" / f"{number}.txt").write_bytes(text[:600].encode())
    settings = (f"data.path={tmp_path / 'texts'}", f"run_dir={tmp_path / 'run'}", "trainer.max_epochs=1")
    summary = train(compose_config(*TINY, *settings, "trainer.limit_train_batches=null", "data.batch_size=64"))
    assert summary.best_val_loss is not None
    assert math.isfinite(summary.best_val_loss)
