"""Heat maps of metrics with numbered parts."""

from pathlib import Path

import pandas as pd
import pytest
from common import REPOSITORY

from seedstats import compare, read_table
from seedstats.__main__ import main
from seedstats.heat_maps import heat_maps
from seedstats.page.blocks import Figure

STUDY = REPOSITORY / "data/studies/context_extension_needle.csv.gz"


def found(file: Path, depths: int, lengths: list[int], data: str = "needle") -> Path:
    """The share of answers found by two names at each depth and length: depth / 10 at 16, less at longer ones."""
    rows = [
        {"name": name, "seed": seed, "data": data, "metric": metric, "length": length, "value": value}
        for name, lead in (("rope", 0.0), ("alibi", 0.05))
        for seed in (1, 2, 3)
        for length in lengths
        for depth in range(depths + 1)
        for metric in [f"found_depth_{depth}" if depth else "found"]
        for value in [depth / 10 * 16 / length + lead + seed / 100]
    ]
    pd.DataFrame(rows).assign(better="higher").to_csv(file, index=False)
    return file


def maps(*files: Path) -> list[Figure]:
    return heat_maps(compare(read_table(*files)))


def test_a_heat_map_has_means_over_seeds_by_part_and_length(tmp_path: Path) -> None:
    (of_depth,) = maps(found(tmp_path / "r.csv", 4, [64, 16]))
    assert (of_depth.name, of_depth.title) == ("found_depth_by_length", "Found_depth by length")
    alibi, rope, _ = (panel.axes[0] for panel in of_depth.panels)
    assert [axes.get_title("left") for axes in (alibi, rope)] == ["alibi", "rope"]
    assert [text.get_text() for text in rope.get_xticklabels()] == ["16", "64"]
    assert [text.get_text() for text in rope.get_yticklabels()] == ["1", "2", "3", "4"]
    means = rope.images[0].get_array()
    assert means[:, 0].tolist() == pytest.approx([0.12, 0.22, 0.32, 0.42])
    assert means[:, 1].tolist() == pytest.approx([0.045, 0.07, 0.095, 0.12])
    assert alibi.images[0].get_clim() == rope.images[0].get_clim() == pytest.approx((0.045, 0.47))


def test_there_is_none_of_one_length_or_two_parts(tmp_path: Path) -> None:
    assert maps(found(tmp_path / "r.csv", 4, [16])) == []
    assert maps(found(tmp_path / "r.csv", 2, [16, 64])) == []


def test_each_kind_of_data_has_its_own(tmp_path: Path) -> None:
    files = [found(tmp_path / f"{data}.csv", 3, [16, 64], data) for data in ("needle", "recall")]
    assert [one.title for one in maps(*files)] == ["Found_depth by length, needle", "Found_depth by length, recall"]
    assert main([*map(str, files), f"out={tmp_path / 'report'}"]) == 0
    figures = {file.name for file in (tmp_path / "report/figures").iterdir()}
    assert {"found_depth_by_length_1.svg", "found_depth_by_length__1.svg"} <= figures


def test_the_needle_study_shows_its_table() -> None:
    """Plain rope misses early needles in long texts; at the shortest length no needle can stand in the last eighth."""
    (shown,) = maps(STUDY)
    panels = {
        axes.get_title("left"): axes.images[0].get_array() for (axes,) in (panel.axes for panel in shown.panels[:-1])
    }
    assert len(panels) == 10
    plain, yarn = (panels[f"rope steps=0 change={change}"] for change in ("none", "yarn"))
    assert plain[0, -1] == pytest.approx(0.64, abs=0.006)
    assert yarn[0, -1] > 0.95
    assert plain.mask[-1, 0] or pd.isna(plain[-1, 0])
