"""Grids by factor: effects of settings whose truth is known, and what is said of them."""

import itertools
import math
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs_to_compare import (
    change_config,
    change_summary,
    compare_folders,
    page_in,
    plan_of,
    report_of,
    set_scheme,
    write_run,
)

from poslab.comparison import factors as module
from poslab.comparison.compare import Comparison
from poslab.comparison.factors import Effect, confounded, factors, in_words, two_way_tables
from seedstats.statistics.paired import paired

Losses = dict[tuple[tuple[str, Any], ...], dict[int, float]]


def effects(of: Comparison) -> list[Effect]:
    """Return the effects before they are corrected for a page."""
    return module.effects(of.groups, of.baseline, of.planned, of.tested, of.untrained)


def write_grid(
    root: Path, pos: str, settings: Mapping[str, list[Any]], effect: Callable[..., float | None], seeds: int = 3
) -> Losses:
    """Runs of all combinations for which `effect` gives a number, which is added to what a seed does to all."""
    generator = np.random.default_rng(1)
    of_seed = generator.normal(4, 0.1, seeds)
    losses: Losses = {}
    for values in itertools.product(*settings.values()):
        chosen = dict(zip(settings, values, strict=True))
        if (added := effect(**chosen)) is None:
            continue
        of_group = losses.setdefault(tuple(chosen.items()), {})
        for seed in range(1, seeds + 1):
            of_group[seed] = float(of_seed[seed - 1] + added + generator.normal(0, 0.003))
            folder = root / "_".join(map(str, values))
            set_scheme(write_run(folder, pos, seed, of_group[seed], last_val_loss=of_group[seed]), **chosen)
    return losses


def keys_or_values(max_distance: int, keys: bool, values: bool) -> float | None:
    """Keys are worth 0.04, values 0.01; neither can't be left out together."""
    return (0.05 if max_distance == 1 else 0.0) - 0.04 * keys - 0.01 * values if keys or values else None


CLIP = {"max_distance": [1, 4, 16], "keys": [True, False], "values": [True, False]}


def test_effects_are_paired_over_seeds_and_the_other_settings(tmp_path: Path) -> None:
    losses = write_grid(tmp_path, "shaw", CLIP, keys_or_values)

    def mean(level: dict[str, Any], cells: list[dict[str, Any]]) -> list[float]:
        """For each seed over these cells, their values of what `level` names replaced by its own."""
        groups = [losses[tuple({name: (cell | level)[name] for name in CLIP}.items())] for cell in cells]
        return [float(np.mean([of_seeds[seed] for of_seeds in groups])) for seed in (1, 2, 3)]

    both = [{"keys": True, "values": True}, {"keys": True, "values": False}, {"keys": False, "values": True}]
    distances = [{"max_distance": d} for d in CLIP["max_distance"]]
    asked = {
        "max_distance=1 max_distance=16": (mean({"max_distance": 1}, both), mean({"max_distance": 16}, both)),
        "max_distance=4 max_distance=16": (mean({"max_distance": 4}, both), mean({"max_distance": 16}, both)),
        "keys=false keys=true": tuple(mean({"keys": k, "values": True}, distances) for k in (False, True)),
        "values=false values=true": tuple(mean({"keys": True, "values": v}, distances) for v in (False, True)),
        "keys without values values without keys": tuple(
            mean({"keys": k, "values": not k}, distances) for k in (True, False)
        ),
    }
    expected = paired({name: tuple(dict(enumerate(of)) for of in pair) for name, pair in asked.items()})
    comparison = compare_folders(tmp_path)
    alone, found = (
        {f"{effect.level} {effect.baseline}": effect for effect in of}
        for of in (effects(comparison), comparison.setting_effects)
    )
    assert found.keys() == asked.keys()
    for name, (level, reference) in asked.items():
        assert found[name].difference.mean == pytest.approx(np.mean(level) - np.mean(reference))
        assert alone[name].difference.p_value == pytest.approx(expected[name].p_value)
        assert found[name].difference.comparisons == len(comparison.groups) - 1 + len(asked)
        assert (found[name].difference.n, len(found[name].cells)) == (3, 3)
    said = in_words(list(found.values()))
    (keys_or_values_,) = (text for text in said if "without" in text)
    assert keys_or_values_.startswith("shaw: keys without values is better than values without keys by 0.0")
    assert keys_or_values_.endswith("; a mean over 3 settings of max_distance")
    assert any(text.startswith("shaw: max_distance=1 is worse than max_distance=16 by 0.0") for text in said)
    assert said[-1].startswith("shaw: no effect can be shown of max_distance=4 instead of max_distance=16, ")


def test_a_mean_of_two_directions_says_so(tmp_path: Path) -> None:
    def effect(num_buckets: int, max_distance: int) -> float:
        return 0.0 if num_buckets == 32 else (0.3 if max_distance == 128 else -0.05)

    write_grid(tmp_path, "t5", {"num_buckets": [8, 32], "max_distance": [32, 128]}, effect)
    (said,) = (text for text in in_words(compare_folders(tmp_path).setting_effects) if "num_buckets=8 is worse" in text)
    assert said.endswith("; a mean over 2 settings of max_distance; the other way round with max_distance=32")


def test_settings_that_change_together_are_one_factor(tmp_path: Path) -> None:
    for buckets, distance in ((8, 32), (32, 128)):
        for scale in (1.0, 4.0):
            folder = write_run(tmp_path / f"{buckets}{scale}", "t5", 1)
            set_scheme(folder, num_buckets=buckets, max_distance=distance, scale=scale)
    comparison = compare_folders(tmp_path)
    assert [str(factor) for factor in factors(comparison.groups)] == ["num_buckets and max_distance", "scale"]
    assert [(effect.level, effect.baseline) for effect in effects(comparison)] == [
        ("num_buckets=8 max_distance=32", "num_buckets=32 max_distance=128"),
        ("scale=4.0", "scale=1.0"),
    ]
    assert confounded(comparison.groups) == []


def test_what_never_changed_alone_is_not_known(tmp_path: Path) -> None:
    for buckets, distance in ((8, 32), (8, 128), (16, 64)):
        set_scheme(write_run(tmp_path / f"{buckets}{distance}", "t5", 1), num_buckets=buckets, max_distance=distance)
    comparison = compare_folders(tmp_path, baseline="t5 num_buckets=16")
    assert confounded(comparison.groups) == [
        "t5: no two groups differ in num_buckets alone, so its effect is not known"
    ]
    (known,) = effects(comparison)
    assert known.sentence.startswith("t5: max_distance=32 and max_distance=128 were equal in one run each")
    assert known.sentence.endswith("; with num_buckets=8")
    (table,) = two_way_tables(comparison.groups)
    assert table.rows == [
        ["num_buckets=8", "4.0000", "4.0000", ""],
        ["num_buckets=16", "", "", "4.0000"],
    ]


def test_no_question_is_asked_twice(tmp_path: Path) -> None:
    """One setting of one scheme: the baseline is the usual value, and the groups' sentences have said all."""
    for scale in (1.0, 4.0):
        set_scheme(write_run(tmp_path / str(scale), "t5", 1), scale=scale)
    assert effects(compare_folders(tmp_path)) == []
    write_run(tmp_path, "absolute")
    (effect,) = effects(compare_folders(tmp_path))
    assert (effect.level, effect.baseline) == ("scale=4.0", "scale=1.0")
    assert effects(compare_folders(tmp_path, pairs="all")) == []


def test_settings_outside_the_scheme_are_factors_too(tmp_path: Path) -> None:
    for dropout, factor, seed in itertools.product((0.0, 0.2), (1.0, 8.0), (1, 2)):
        folder = write_run(tmp_path / f"{dropout}{factor}", "t5", seed, last_val_loss=4 + dropout + factor / 100 + seed)
        change_config(folder, "model.dropout", dropout)
        change_config(folder, "optim.position_learning_rate_factor", factor)
    comparison = compare_folders(tmp_path, allow_differences=True)
    means = {effect.level: effect.difference.mean for effect in effects(comparison)}
    expected = {"position_learning_rate_factor=8.0": 0.07, "model.dropout=0.2": 0.2}
    assert means == {name: pytest.approx(mean) for name, mean in expected.items()}
    (table,) = two_way_tables(comparison.groups)
    assert table.columns == ["t5", "model.dropout=0.0", "model.dropout=0.2"]
    assert table.rows[1] == ["position_learning_rate_factor=8.0", "5.5800", "5.7800"]


def test_only_seeds_that_all_settings_have_count(tmp_path: Path) -> None:
    write_grid(tmp_path, "shaw", {"max_distance": [1, 4], "keys": [True, False]}, lambda **_: 0.0)
    (tmp_path / "1_True" / "shaw-seed2" / "summary.json").unlink()
    assert {effect.difference.n for effect in effects(compare_folders(tmp_path))} == {2}


@pytest.mark.usefixtures("no_figures", "blank_pictures")
def test_the_page_answers_in_factors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_grid(tmp_path, "shaw", CLIP | {"max_distance": [1, 16]}, keys_or_values, seeds=2)
    folder = report_of(tmp_path)
    comparison = compare_folders(tmp_path)
    said = in_words(effects(comparison))
    page, screen = page_in(folder), capsys.readouterr().out
    assert page.lists[0][: len(said)] == said
    assert all(f"- {text}\n" in screen for text in said)
    rows = [effect.row for effect in effects(comparison)]
    rows += [row for table in two_way_tables(comparison.groups) for row in table.rows]
    assert all(row in page.rows for row in rows)


def test_an_effect_of_which_groups_or_seeds_are_lost_is_not_claimed(tmp_path: Path) -> None:
    """Where a seed of one cell diverged, where it is gone, and where the cell is."""
    grid = {"max_distance": [1, 4], "keys": [True, False]}
    write_grid(tmp_path, "shaw", grid, lambda max_distance, keys: 0.1 * (max_distance == 1) - 0.04 * keys, seeds=4)
    plan = plan_of(tmp_path, range(1, 5))

    def said() -> str:
        (text,) = [
            effect.sentence
            for effect in effects(compare_folders(tmp_path, plan=plan))
            if "max_distance=4 " in effect.sentence
        ]
        return text

    assert "max_distance=4 is better than max_distance=1 by 0.1" in said()
    change_summary(tmp_path / "1_True" / "shaw-seed3", best_val_loss=math.inf)
    assert "can be shown: of max_distance=1, 1 of 4 seeds diverged; in the others -0.1" in said()
    shutil.rmtree(tmp_path / "1_True" / "shaw-seed3")
    assert "can be shown: 1 of 4 seeds is missing (3); so far -0.1" in said()
    shutil.rmtree(tmp_path / "1_True")
    assert "there is no finished run of shaw max_distance=1 keys=true; so far" in said()


def test_what_changes_with_the_setting_it_is_a_part_of_is_not_named(tmp_path: Path) -> None:
    for number, retrieval in enumerate((None, {"layer": 1, "size": 256, "k": 8, "position_bias": False})):
        change_config(write_run(tmp_path / str(number), "t5"), "model.retrieval", retrieval)
    (factor,) = factors(compare_folders(tmp_path).groups)
    assert [factor.told(level) for level in factor.levels] == ["retrieval=null", "retrieval=true"]
