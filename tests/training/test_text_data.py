"""The data module of a text: which windows train and validate, in which order, and texts too short for one."""

import multiprocessing
from pathlib import Path

import pytest
import torch
from corpora import VERDICT, text_data

from poslab.errors import SettingError


def test_split_comes_before_windows(tmp_path: Path) -> None:
    data = text_data(VERDICT, tmp_path, stride=64)
    assert len(data.train_windows) == len(range(0, 4612 - 256, 64))
    windows = list(data.validation_windows)
    assert len(windows) == 3  # side by side: 534 tokens, starts 0, 256 and 512
    assert torch.equal(data.corpus.validation[:-1].long(), torch.cat([inputs for _, inputs, _ in windows])[:533])


def test_order_depends_on_the_seed_alone(tmp_path: Path) -> None:
    def batches(seed: int, noise: int) -> list[torch.Tensor]:
        torch.manual_seed(noise)
        data = text_data(VERDICT, tmp_path, seed=seed, stride=64)
        return [batch[0] for batch in data.train_dataloader()]

    first, same, other = batches(1, noise=0), batches(1, noise=9), batches(2, noise=0)
    assert all(torch.equal(a, b) for a, b in zip(first, same, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_workers_change_nothing(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any start method gives the same batches: jobs of a sweep have another one."""
    monkeypatch.setattr(
        multiprocessing.context._default_context, "_actual_context", multiprocessing.get_context(method)
    )

    def two_epochs(workers: int) -> list[torch.Tensor]:
        data = text_data(VERDICT, tmp_path, stride=512, num_workers=workers)
        loader = data.train_dataloader()
        return [batch[0] for _ in range(2) for batch in loader]

    assert all(torch.equal(a, b) for a, b in zip(two_epochs(0), two_epochs(1), strict=True))


@pytest.mark.parametrize("context_length", [534, 5000])
def test_text_too_short_for_a_window(context_length: int, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"validation.*\b534\b.*\b533\b") as refusal:
        text_data(VERDICT, tmp_path, context_length)
    assert refusal.value.option == "model.context_length"
    assert len(text_data(VERDICT, tmp_path, 533).validation_windows) == 1
    assert len(text_data(VERDICT, tmp_path, 532).validation_windows) == 2
    with pytest.raises(SettingError, match="test part"):
        text_data(VERDICT, tmp_path, 32, test_share=0.001)


@pytest.mark.parametrize(
    ("text", "prompt"),
    [
        ("ween two lines\n\nThe next one, which is whole.\n", "The next one, which is whole."),
        ("of one. 'Here is another,' he said. And on", "'Here is another,' he said."),
        ("d no end " + "of words without " * 9, "no end of words without of words"),
        ("unbroken" * 20, ("unbroken" * 5)),
    ],
)
def test_a_sample_continues_a_line_of_the_text(text: str, prompt: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("x" * 9 * len(text) + text)
    data = text_data(tmp_path / "text.txt", tmp_path, 4, encoding="characters")
    assert data.vocabulary.decode(data.prompt) == prompt
