"""Settings: effects of each whose truth is known, and each name at its best one."""

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
from refusals import refused
from tables import SHARE, compared, rows

from seedstats.answers import caveats
from seedstats.comparison import Comparison
from seedstats.effects import effects_in_words, factors
from seedstats.page.blocks import Table
from seedstats.section import Section
from seedstats.setting_figures import geometric, setting_figures, setting_maps
from seedstats.statistics.paired import paired

Losses = dict[tuple[Any, ...], dict[int, float]]


def grid(
    settings: Mapping[str, Any], effect: Callable[..., float | None], name: str = "shaw", seeds: int = 3
) -> tuple[list[pd.DataFrame], Losses]:
    """Runs of all combinations for which `effect` gives a number, which is added to what a seed does to all."""
    generator = np.random.default_rng(1)
    of_seed = generator.normal(4, 0.1, seeds)
    drawn: Losses = {}
    for values in itertools.product(*settings.values()):
        if (added := effect(*values)) is not None:
            drawn[values] = dict(enumerate(map(float, of_seed + added + generator.normal(0, 0.003, seeds)), start=1))
    return [_rows(name, dict(zip(settings, values, strict=True)), of) for values, of in drawn.items()], drawn


def _rows(name: str, settings: Mapping[str, Any], values: Mapping[int, float]) -> pd.DataFrame:
    typed = {key: str(value).lower() for key, value in settings.items()}
    return rows({name: values}).assign(**typed)


def effects(one: Comparison) -> list[tuple[str, str]]:
    return [(effect.level, effect.baseline) for effect in one.setting_effects]


def tables(one: Comparison) -> dict[str, Table]:
    """The tables of settings on a page, by their titles."""
    return {table.title: table for table in Section("text", one)._tables}


def keys_or_values(max_distance: int, keys: bool, values: bool) -> float | None:
    """Keys are worth 0.04, values 0.01; neither can't be left out together."""
    return (0.05 if max_distance == 1 else 0.0) - 0.04 * keys - 0.01 * values if keys or values else None


CLIP = {"max_distance": [16, 1, 4], "keys": [True, False], "values": [True, False]}


def test_effects_are_paired_over_seeds_and_the_other_settings() -> None:
    parts, drawn = grid(CLIP, keys_or_values)

    def mean(cells: list[tuple[Any, ...]]) -> dict[int, float]:
        return {seed: float(np.mean([drawn[cell][seed] for cell in cells])) for seed in (1, 2, 3)}

    kinds, distances = [(True, True), (True, False), (False, True)], CLIP["max_distance"]
    asked = {
        **{
            f"max_distance={d} max_distance=16": (mean([(d, *of) for of in kinds]), mean([(16, *of) for of in kinds]))
            for d in (1, 4)
        },
        **{
            words: tuple(mean([(d, *of) for d in distances]) for of in both)
            for words, both in {
                "keys=false keys=true": ((False, True), (True, True)),
                "values=false values=true": ((True, False), (True, True)),
            }.items()
        },
    }
    alone = paired(asked)
    one = compared(*parts, baseline="shaw max_distance=16 keys=true values=true")
    found = {f"{effect.level} {effect.baseline}": effect for effect in one.setting_effects}
    assert found.keys() == asked.keys()
    for name, (level, reference) in asked.items():
        d = found[name].difference
        assert d.mean == pytest.approx(np.mean([*level.values()]) - np.mean([*reference.values()]))
        assert d.p_value >= alone[name].p_value
        assert (d.n, d.comparisons, len(found[name].cells)) == (3, len(one.groups) - 1 + len(asked), 3)
    words = effects_in_words(one.setting_effects)
    worse = next(text for text in words if "max_distance=1 " in text)
    assert worse.startswith("shaw with max_distance=1 is worse than shaw with max_distance=16: 0.0")
    assert worse.endswith(" This is the mean over 3 settings of keys and values.")
    assert words[-1] == "shaw: no effect is shown of max_distance=4 instead of max_distance=16."
    row = tables(one)["Settings by themselves"].rows[0]
    assert row[:2] + row[-2:] == ["shaw", "max_distance=1 instead of max_distance=16", "3", "3"]


def test_a_mean_of_two_directions_says_so() -> None:
    def effect(buckets: int, distance: int) -> float:
        return 0.0 if buckets == 32 else (0.3 if distance == 128 else -0.05)

    parts, _ = grid({"buckets": [32, 8], "distance": [32, 128]}, effect)
    (text,) = (text for text in effects_in_words(compared(*parts).setting_effects) if "buckets=8 is worse" in text)
    assert text.endswith(". It is the other way round with distance=32.")


def test_settings_that_change_together_are_one_factor() -> None:
    parts = [
        rows({"t5": [4.0]}, buckets=buckets, distance=distance, scale=scale)
        for (buckets, distance), scale in itertools.product(((8, 32), (32, 128)), ("1.0", "4.0"))
    ]
    one = compared(*parts)
    assert [str(factor) for factor in factors(one.groups, {})] == ["buckets and distance", "scale"]
    assert effects(one) == [("buckets=32 distance=128", "buckets=8 distance=32"), ("scale=4.0", "scale=1.0")]
    assert caveats(one) == []


def test_defaults_are_what_others_are_compared_with() -> None:
    parts = [rows({"t5": [4.0]}, scale=scale, width=width) for scale in (1, 4) for width in (8, 16)]
    one = compared(*parts, defaults={"t5": {"scale": "4", "width": "8"}})
    assert effects(one) == [("scale=1", "scale=4"), ("width=16", "width=8")]


def test_what_never_changed_alone_is_not_known() -> None:
    parts = [rows({"t5": [4.0]}, buckets=b, distance=d) for b, d in ((8, 32), (8, 128), (16, 64))]
    one = compared(*parts, baseline="t5 buckets=16", defaults={"t5": {"distance": "32"}})
    assert caveats(one) == ["t5: no two groups differ in buckets alone, so its effect is not known."]
    (known,) = effects_in_words(one.setting_effects)
    assert known.startswith("t5 with distance=128 and t5 with distance=32 were equal in one run each")
    assert known.endswith(" This is with buckets=8.")


def test_no_question_is_asked_twice() -> None:
    """One setting of one name: the sentences on groups have said all."""
    scales = [rows({"t5": [4.0]}, scale=scale) for scale in (1, 4)]
    assert effects(compared(*scales)) == []
    others = [rows({"absolute": [4.0]}), *scales]
    assert effects(compared(*others)) == [("scale=4", "scale=1")]
    assert effects(compared(*others, pairs="all")) == []


def test_only_seeds_that_all_settings_have_count() -> None:
    parts, drawn = grid({"max_distance": [1, 4], "keys": [True, False]}, lambda *_: 0.0)
    del drawn[1, True][2]
    less = [_rows("shaw", {"max_distance": d, "keys": k}, of) for (d, k), of in drawn.items()]
    assert {effect.difference.n for effect in compared(*parts).setting_effects} == {3}
    assert {effect.difference.n for effect in compared(*less).setting_effects} == {2}


@pytest.mark.parametrize(
    ("lost", "words"),
    [
        ({}, "shaw with max_distance=4 is better than shaw with max_distance=1: 0.1"),
        ({3: math.inf}, "is shown: 1 of 4 seeds of shaw with max_distance=1 diverged; in the others -0.1"),
        ({3: None}, "3 seeds. This is more than the 0.02 nats that matters. 1 of 4 planned seeds is missing (3)."),
        (dict.fromkeys(range(1, 5)), "is shown: there is no finished run of shaw max_distance=1 keys=true; so far"),
    ],
)
def test_an_effect_is_not_claimed_of_lost_groups_and_diverged_seeds(lost: dict[int, float | None], words: str) -> None:
    settings = {"max_distance": [1, 4], "keys": [True, False]}
    _, drawn = grid(settings, lambda distance, keys: 0.1 * (distance == 1) - 0.04 * keys, seeds=4)
    drawn[1, True] |= lost
    parts = [_rows("shaw", dict(zip(settings, values, strict=True)), of) for values, of in drawn.items()]
    one = compared(*parts, baseline="shaw max_distance=4 keys=true", defaults={"shaw": {"max_distance": "1"}})
    (text,) = [effect.sentence() for effect in one.setting_effects if "max_distance=4 " in effect.sentence()]
    assert words in text


def test_what_changes_with_the_setting_it_is_a_part_of_is_not_named() -> None:
    inner = {"retrieval.layer": "1", "retrieval.size": "256"}
    parts = [rows({"t5": [4.0]}, retrieval="null"), rows({"t5": [4.0]}, retrieval="true").assign(**inner)]
    one = compared(*parts)
    (factor,) = factors(one.groups, {})
    assert [factor.told(level) for level in factor.levels] == ["retrieval=null", "retrieval=true"]
    assert [group.label for group in one.groups] == ["t5 retrieval=null", "t5 retrieval=true"]


# Each name at its best setting

LOSS_OF_VALIDATION = {"metric": "validation loss", "unit": "nats per answer", "better": "lower"}


def of_rate(name: str, rate: int, shares: list[float], losses: list[float]) -> list[pd.DataFrame]:
    """Shares at lengths 20 and 30, and losses of validations."""
    half = [share / 2 for share in shares]
    return [
        rows({name: shares}, SHARE, length=20, rate=rate),
        rows({name: half}, SHARE, length=30, rate=rate),
        rows({name: losses}, LOSS_OF_VALIDATION, rate=rate),
    ]


# t5 has its best validation with 8, and is best with 32, by luck of the first seed; nope learns nothing.
SWEPT = [
    *of_rate("t5", 1, [0.2, 0.2], [0.5, 0.5]),
    *of_rate("t5", 8, [0.5, 0.7], [0.3, 0.3]),
    *of_rate("t5", 32, [1.0, 1.0], [0.1, 0.6]),
    *of_rate("nope", 1, [0.3, 0.3], [0.4, 0.4]),
]
DEFAULTS = {"t5": {"rate": "1"}, "nope": {"rate": "1"}}


def test_names_are_compared_each_at_its_best_setting() -> None:
    """By the compared metric, or by another one; the baseline is at its best, too, unless another one is named."""
    assert compared(*SWEPT).chosen == ["nope", "t5 rate=32"]
    by_loss = compared(*SWEPT, chosen_by="validation loss")
    assert by_loss.chosen == ["nope", "t5 rate=8"]
    assert [group.label for group in by_loss.judged] == ["t5 rate=8", "nope"]
    assert by_loss.baseline == "t5 rate=8"
    assert compared(*SWEPT, chosen_by="validation loss", baseline="t5 rate=1").baseline == "t5 rate=1"
    assert compared(*SWEPT, metric="validation loss", chosen_by="exact").chosen == ["nope", "t5 rate=32"]
    with refused("chosen_by", "los", "exact", "validation loss"):
        compared(*SWEPT, chosen_by="los")
    # Neither a survivor's low loss counts, nor that of one seed that others have as well.
    for shares, of_validation in (([0.5, math.nan], [0.01, math.nan]), ([0.5], [0.3])):
        parts = [*SWEPT[:3], *of_rate("t5", 8, shares, of_validation), *SWEPT[6:]]
        assert compared(*parts, chosen_by="validation loss").chosen == ["nope", "t5 rate=32"]


def test_a_baseline_that_was_chosen_counts_as_often_as_it_could_have_been() -> None:
    """As the best of two, which is compared with three others; and an effect of the other name is on the page."""
    parts = [rows({"t5": [4.0, 4.1, 4.2], "nope": [4.1, 4.1, 4.3]}, rate=rate) for rate in (1, 2)]
    assert compared(*parts).comparisons == 2 * 3 + 1
    assert compared(*parts, baseline="t5 rate=1").comparisons == 3 + 1


def test_default_and_chosen_stand_side_by_side() -> None:
    """At the compared length, and beyond."""
    found = tables(compared(*SWEPT, chosen_by="validation loss", defaults=DEFAULTS))["Default and chosen settings"]
    assert found.columns == [
        "name", "settings tried", "default", "chosen",
        "exact at 20, default", "exact at 20, chosen", "exact at 30, default", "exact at 30, chosen",
    ]  # fmt: skip
    assert found.rows == [
        ["nope", "1", "", "", "0.300", "0.300", "0.150", "0.150"],
        ["t5", "3", "rate=1", "rate=8", "0.200", "0.600", "0.100", "0.300"],
    ]
    assert found.note.startswith("Chosen: the best setting by mean validation loss over seeds.")
    assert "has also chosen" not in found.note
    assert "Some names were tried with more settings than others" in found.note


def test_what_is_shown_may_have_chosen_and_defaults_may_be_unknown() -> None:
    found = tables(compared(*SWEPT))["Chosen settings"]
    assert found.columns == ["name", "settings tried", "chosen", "exact at 20, chosen", "exact at 30, chosen"]
    assert "The values shown here chose it, so they favour names" in found.note


def test_versions_of_edited_code_are_no_settings_to_choose() -> None:
    versions = [rows({"t5": [4.0, 4.1, 4.2]}, source="a1"), rows({"t5": [3.0]}, source="b2")]
    one = compared(*versions, rows({"nope": [4.0, 4.1, 4.2]}, source="a1"))
    assert set(tables(one)) == set()
    assert one.chosen == ["nope", "t5 source=a1"]
    without = compared(rows({"t5": [4.0], "shaw": [4.0]}))
    assert tables(without) == {}
    assert setting_figures({"text": without}) == []


# Figures over a setting


def test_a_figure_over_a_setting() -> None:
    """A line for each name that has several values, a panel for each kind of data."""
    one = compared(*SWEPT)
    (found,) = setting_figures({"copy": one, "sort": one})
    assert (found.name, found.title) == ("over_rate", "By rate")
    first, second = (panel.axes[0] for panel in found.panels)
    assert (first.get_title("left"), second.get_title("left"), first.get_xscale()) == ("copy", "sort", "log")
    assert [label.get_text() for label in first.get_xticklabels()] == ["1", "8", "32"]
    (line,) = first.get_lines()
    assert line.get_xdata().tolist() == [1, 8, 32]
    assert line.get_ydata().tolist() == pytest.approx([0.2, 0.6, 1.0])
    assert [text.get_text() for text in first.texts] == ["t5"]


def test_lines_of_a_figure_are_told_by_the_other_settings() -> None:
    parts, _ = grid({"max_distance": [2, 4], "keys": [True, False]}, lambda *_: 0.0)
    (found,) = setting_figures({"text": compared(*parts)})
    assert {text.get_text() for text in found.panels[0].axes[0].texts} == {"shaw keys=false", "shaw keys=true"}


def test_a_heat_map_of_a_setting_and_names() -> None:
    """A row for each name, the best of it bold, and shades by rank."""
    losses = {("rope", 1): 4.0, ("rope", 8): 3.0, ("t5", 1): 2.0, ("t5", 8): 1e9}
    parts = [rows({name: [loss, loss + 0.1]}, rate=rate) for (name, rate), loss in losses.items()]
    one = compared(*parts)
    (table,) = setting_maps(one)
    assert table.columns == ["", "1", "8"]
    cells = {row[0]: row[1:] for row in table.rows}
    assert [cell.marked for cell in cells["rope"]] == [False, True]
    assert [cell.marked for cell in cells["t5"]] == [True, False]
    assert [cell.shade for name in ("rope", "t5") for cell in cells[name]] == [3, 7, 10, 0]
    assert cells["rope"][0].text == one.metric.text(4.05)
    assert setting_maps(compared(*parts[:2])) == []  # of one name


def test_values_that_are_multiplied() -> None:
    assert all(map(geometric, ([1, 8, 32], [1, 8], [0.1, 1, 10], [8, 16, 32])))
    assert not any(map(geometric, ([1, 2, 3, 4], [0, 1, 8], [1, 2], [5])))
