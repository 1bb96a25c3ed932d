"""Where figures come from: repeated runs with other results, and facts that differ."""

from pathlib import Path

import pytest
from runs_to_compare import SUMMARY, change_summary, compare_folders, sentences, table_in, write_run

VERSIONS = SUMMARY["versions"]


def twice(root: Path, **other: object) -> Path:
    """Three seeds of two schemes, and seed 1 of t5 once more, with another loss; its folder."""
    for seed, luck in ((1, 0.0), (2, 0.01), (3, -0.01)):
        write_run(root, "absolute", seed, 4.0 + luck)
        write_run(root, "t5", seed, 3.0 + luck * 1.1)
    return write_run(root / "z_again", "t5", 1, 3.5, **other)


@pytest.mark.parametrize("other", [{}, {"code_fingerprint": "f" * 16, "device": "cuda:0"}])
def test_one_seed_with_two_losses_is_said(other: dict[str, object], tmp_path: Path) -> None:
    again = twice(tmp_path, **other)
    comparison = compare_folders(tmp_path)
    folders = f"({tmp_path / 't5-seed1'}, {again})"
    said = f"seed 1 of t5 has two results, 3 and 3.5, with the same settings {folders}; the first is compared"
    assert comparison.caveats[0] == said
    (sentence,) = sentences(comparison)
    assert sentence.startswith("t5 is better than absolute: 1.0")
    (left,) = table_in(tmp_path).left_out
    assert left.folder == again
    assert left.reason.endswith("but other results: seed 1 of t5 has two results, 3 and 3.5")


def test_a_copy_is_no_caveat(tmp_path: Path) -> None:
    again = twice(tmp_path)
    change_summary(again, best_val_loss=3.0, last_val_loss=3.0 + 1e-6)  # on other threads sums round otherwise
    assert compare_folders(tmp_path).caveats == []
    (left,) = table_in(tmp_path).left_out
    assert left.reason == f"repeats seed 1 of {tmp_path / 't5-seed1'}, with the same settings"


@pytest.mark.parametrize(
    ("changes", "caveat"),
    [
        ({"versions": VERSIONS | {"python": "3.12.1"}}, "several versions of python: 3.11.7, 3.12.1; losses may"),
        ({"versions": VERSIONS | {"poslab": "0.0.9"}}, "several versions of poslab: 0.0.9, 0.1.0; they may compute"),
        ({"versions": VERSIONS | {"torch": None}}, "several versions of torch: 2.13.0, unknown; times can't be"),
        ({"device": "cuda:0"}, "several devices: cpu (x86_64), cuda:0; times can't be compared"),
        ({"threads": 1}, "several numbers of threads: 1, 2; "),
        ({"code_fingerprint": "f" * 16}, f"several versions of poslab's code: 0123456789abcdef, {'f' * 16}; they may"),
        ({"code_fingerprint": None}, "several versions of poslab's code: 0123456789abcdef, unknown; they may"),
        ({"scheme_fingerprint": "b" * 16}, f"several versions of the code of poslab.positions.t5.T5: {'b' * 16}, fed"),
        ({"attention_backend": "sdpa"}, "several attention backends of poslab.positions.t5.T5: reference, sdpa; "),
    ],
)
def test_facts_that_differ_stand_beside_the_answers(changes: dict[str, object], caveat: str, tmp_path: Path) -> None:
    write_run(tmp_path, "t5", 1)
    write_run(tmp_path, "t5", 2, **changes)
    # Schemes have code and backends of their own.
    write_run(tmp_path, "absolute", 1, attention_backend="blockwise", scheme_fingerprint="a" * 16)
    (found,) = compare_folders(tmp_path).caveats
    assert found.startswith(caveat)


def test_numbers_of_tokens_are_compared_within_a_seed(tmp_path: Path) -> None:
    for seed, tokens in ((1, 384), (2, 399)):  # a seed draws how long the examples of a task are
        for scheme in ("absolute", "t5"):
            write_run(tmp_path, scheme, seed, tokens=tokens)
    assert compare_folders(tmp_path).caveats == []
    change_summary(tmp_path / "t5-seed2", tokens=999)
    (caveat,) = compare_folders(tmp_path).caveats
    assert caveat == "several numbers of tokens trained on at one seed: 399, 999; more tokens, more training"
