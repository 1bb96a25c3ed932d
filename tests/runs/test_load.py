"""Folders that hold something else than runs: each is named and left out, and the rest is compared."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from runs_to_compare import SUMMARY, change_config, change_summary, compare_folders, write_run

from poslab.comparison.compare import Comparison
from poslab.errors import SettingError, UserError
from poslab.runs.load import read_runs


def reasons(comparison: Comparison) -> dict[str, str]:
    return {left.folder.name: left.reason for left in comparison.left_out}


def replace_text(folder: Path, file: str, text: str) -> None:
    (folder / file).write_text(text)


def into_folder(folder: Path, file: str) -> None:
    (folder / file).unlink()
    (folder / file).mkdir()


def summary_without(*keys: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        summary = json.loads((folder / "summary.json").read_text())
        replace_text(folder, "summary.json", json.dumps({k: v for k, v in summary.items() if k not in keys}))

    return spoil


def summary_is(text: str) -> Callable[[Path], None]:
    return lambda folder: replace_text(folder, "summary.json", text)


def summary_has(**values: Any) -> Callable[[Path], None]:
    return lambda folder: change_summary(folder, **values)


def config_is(text: str) -> Callable[[Path], None]:
    return lambda folder: replace_text(folder, "config.yaml", text)


def config_has(setting: str, value: Any) -> Callable[[Path], None]:
    return lambda folder: change_config(folder, setting, value)


SPOILT: list[tuple[str, Callable[[Path], None], str]] = [
    ("unfinished", lambda folder: (folder / "summary.json").unlink(), "unfinished: it has no summary.json"),
    ("truncated", lambda f: replace_text(f, "summary.json", json.dumps(SUMMARY)[:200]), "summary.json can't be read"),
    ("endless", summary_is("[" * 100_000), "summary.json can't be read"),
    ("binary", lambda folder: (folder / "summary.json").write_bytes(b"\xff\xfe\x00"), "summary.json can't be read"),
    ("folder", lambda folder: into_folder(folder, "summary.json"), "summary.json can't be read"),
    ("list", summary_is("[1, 2]"), "summary.json is not a run's"),
    (
        "foreign",
        summary_is('{"accuracy": 1}'),
        "says nothing of pos, pos_settings, pos_target, seed, best_val_loss, ...: not",
    ),
    ("less", summary_without("pos_settings"), "says nothing of pos_settings: not a run's, or another version's"),
    ("seed of text", summary_has(seed="x"), "seed='x', which must be a whole number"),
    ("true seed", summary_has(seed=True), "seed=True, which must be a whole number"),
    ("loss of text", summary_has(best_val_loss="4.0"), "best_val_loss='4.0', which must be a number or null"),
    ("huge loss", summary_has(best_val_loss=10**400), "best_val_loss=1000"),
    ("null", summary_has(best_val_loss=None), "its validation loss was never a finite number"),
    ("nearly infinite", summary_has(best_val_loss=1e308), "its validation loss was never a finite number"),
    ("no scheme", summary_has(pos=None), "pos=None, which must be text"),
    ("nameless", summary_has(pos=" "), "pos=' ', which is no name"),
    ("two lines", summary_has(pos="a\nb"), r"pos='a\nb', which is no name"),
    ("half a character", summary_has(pos="\ud800"), r"pos='\ud800', which is no name"),
    ("measures of text", summary_has(measures=["loss"]), "summary.json is not a run's"),
    ("measure of nothing", summary_has(measures=[{"name": "exact"}]), "summary.json says nothing of unit"),
    ("metrics in words", summary_has(exact={"96": "all"}), "metrics={'exact': {'96': 'all'}}, which must be"),
    ("clean by word", summary_has(git_clean="yes"), "git_clean='yes', which must be true or false or null"),
    ("no config", lambda folder: (folder / "config.yaml").unlink(), "unfinished: it has no config.yaml"),
    ("broken config", config_is("a: [1"), "config.yaml can't be read"),
    (
        "binary config",
        lambda folder: (folder / "config.yaml").write_bytes(b"\xff\xfe\x00"),
        "config.yaml can't be read",
    ),
    ("foreign config", config_is("pos: shaw"), "config.yaml is not a run's"),
    ("no data", config_has("data", None), "config.yaml is not a run's"),
    ("odd class", config_has("pos._target_", "a b=c"), "pos._target_='a b=c', which is no class"),
]


@pytest.mark.parametrize(("spoil", "reason"), [case[1:] for case in SPOILT], ids=[case[0] for case in SPOILT])
def test_a_spoilt_run_is_named_and_left_out(spoil: Callable[[Path], None], reason: str, tmp_path: Path) -> None:
    write_run(tmp_path, "absolute", 1)
    write_run(tmp_path, "t5", 1)
    spoil(write_run(tmp_path, "t5", 2, 1.0))
    comparison = compare_folders(tmp_path)
    assert [run.folder.name for run in comparison.runs] == ["absolute-seed1", "t5-seed1"]
    assert list(reasons(comparison)) == ["t5-seed2"]
    assert reason in reasons(comparison)["t5-seed2"]
    assert len(reasons(comparison)["t5-seed2"]) < 300
    assert "\n" not in reasons(comparison)["t5-seed2"]


def test_a_later_summary_may_say_more(tmp_path: Path) -> None:
    change_summary(write_run(tmp_path), energy_kwh=3)
    assert len(compare_folders(tmp_path).runs) == 1


def test_a_last_loss_that_is_no_number_is_an_outcome(tmp_path: Path) -> None:
    write_run(tmp_path, seed=1)
    write_run(tmp_path, seed=2, last_val_loss=None)
    comparison = compare_folders(tmp_path)
    assert [run.seed for run in comparison.runs] == [1]
    assert reasons(comparison) == {"absolute-seed2": "it diverged, by step 6"}
    assert comparison.groups[0].count == "1 (1 diverged)"


def test_nothing_left_to_compare(tmp_path: Path) -> None:
    for seed in (1, 2):
        (write_run(tmp_path, seed=seed) / "summary.json").unlink()
    with pytest.raises(UserError, match=r"no finished run to compare"):
        compare_folders(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"no finished run to compare$"):
        compare_folders(tmp_path / "empty")


@pytest.mark.parametrize("missing", ["nowhere", "file", ""])
def test_folders_that_are_none(missing: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(SettingError, match="no such folder"):
        read_runs([str(tmp_path / missing) if missing else ""])


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    write_run(tmp_path)
    for name in ("photos", ".hidden", "report"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.jpg").write_text("")
    (tmp_path / "report" / "report.html").write_text("an earlier one")
    assert reasons(compare_folders(tmp_path)) == {"photos": "no run in it"}


def test_runs_at_any_depth(tmp_path: Path) -> None:
    write_run(tmp_path / "a" / "b" / "c", "t5", 1)
    write_run(tmp_path / "a", "t5", 2)
    write_run(tmp_path, "t5", 3)
    comparison = compare_folders(tmp_path)
    assert sorted(run.seed for run in comparison.runs) == [1, 2, 3]
    assert not comparison.left_out


def test_a_stray_file_hides_no_runs(tmp_path: Path) -> None:
    write_run(tmp_path)
    (tmp_path / "config.yaml").write_text("mine: true")
    comparison = compare_folders(tmp_path)
    assert [run.folder.name for run in comparison.runs] == ["absolute-seed1"]
    assert list(reasons(comparison)) == [tmp_path.name]


def test_a_folder_named_twice_counts_once(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    comparison = compare_folders(tmp_path, folder, tmp_path)
    assert len(comparison.runs) == 1
    assert not comparison.left_out


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    write_run(tmp_path)
    (tmp_path / "again").symlink_to(tmp_path)
    comparison = compare_folders(tmp_path)
    assert len(comparison.runs) == 1
    assert reasons(comparison) == {"again": "no run in it"}


def test_a_folder_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path)
    (tmp_path / "locked").mkdir()
    plain = {name: getattr(Path, name) for name in ("iterdir", "exists", "read_text")}

    def refusing(name: str) -> Callable[..., Any]:
        def checked(self: Path, *arguments: Any, **named: Any) -> Any:
            if "locked" in self.parts:
                raise PermissionError(13, "Permission denied", str(self))
            return plain[name](self, *arguments, **named)

        return checked

    for name in plain:
        monkeypatch.setattr(Path, name, refusing(name))
    assert "Permission denied" in reasons(compare_folders(tmp_path))["locked"]


def test_jobs_that_failed_before_they_had_a_folder(tmp_path: Path) -> None:
    write_run(tmp_path)
    (tmp_path / ".sweep").mkdir()
    logs = {
        "t5-seed1": "scheme   t5\nerror: killed by SIGKILL\n",
        "absolute-seed1": "error: an earlier attempt\n",
        "shaw-seed1": "scheme   shaw\n",
        "empty": "",
    }
    for name, text in logs.items():
        (tmp_path / ".sweep" / f"{name}.log").write_text(text)
    assert reasons(compare_folders(tmp_path)) == {"t5-seed1": "failed: killed by SIGKILL"}
