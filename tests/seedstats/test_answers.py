"""The answers that a page begins with: the headline, at most five findings, and what weakens them."""

import math
import re

import numpy as np
import pandas as pd
import pytest
from tables import BASE, SHARE, SHAW, compared, losses, rows

from seedstats import findings, headline
from seedstats.answers import all_findings, caveats, fine_print
from seedstats.figures import MOST_DRAWN, scores_figure

NUMBERS = r"better than {} by 0\.\d+ nats \[0\.\d+, 0\.\d+\], 5 seeds"


def changed(name: str, seeds: dict[int, float | None], **effects: float) -> list[pd.DataFrame]:
    """A table of losses in which these seeds of a name have other values; None: all of them are so."""
    values = losses(**effects)
    return [rows({**values, name: values[name] | seeds})]


def grid(**effects: float) -> list[pd.DataFrame]:
    """Each name with two rates, of which the second is a little better."""
    values = losses(**effects)
    better = {name: [loss - 0.05 for loss in of.values()] for name, of in values.items()}
    return [rows(values, rate=1), rows(better, rate=2)]


LOST, GONE = dict.fromkeys(range(1, 6)), dict.fromkeys(range(1, 6), math.inf)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([rows(losses(absolute=0, t5=-0.1, shaw=0.1))], f"t5 is best: {NUMBERS.format('absolute')}"),
        # The baseline is compared with the next best.
        ([rows(losses(absolute=-0.1, shaw=0.1, t5=0))], f"absolute is best: {NUMBERS.format('t5')}"),
        ([rows({"a": BASE, "b": SHAW}, SHARE)],
         r"b is best: better than a by 0.63 of the examples \[0.56, 0.70\], 8 seeds"),
        ([rows(losses(noise=0.0005, absolute=0, t5=-0.01))],
         rf"t5 is best, but by less than the 0.02 nats that matters: {NUMBERS.format('absolute')}"),
        ([rows(losses(absolute=0, t5=-0.1, shaw=-0.1))],
         "The best is t5 or shaw. absolute is not the best"),
        ([rows(losses(absolute=0, a=0, b=0, t5=-0.2, shaw=-0.2, c=0.3))],
         "The best is (shaw or t5|t5 or shaw). The 4 others are not the best"),
        ([rows(losses(noise=0.03, absolute=0, t5=0, shaw=0))],
         "No difference shown: t5, shaw or absolute may be best"),
        ([rows(losses(seeds=2, absolute=0, t5=-1))],
         "No answer yet: an answer takes 3 seeds, and t5 and absolute have 2"),
        ([rows(losses(seeds=1, absolute=0, t5=-1, shaw=0))],
         "No answer yet: an answer takes 3 seeds, and 3 of 3 groups have 1"),
        ([rows(losses(absolute=0))], r"Only absolute is here \(5 seeds\): there is nothing to compare it with"),
        (changed("t5", {4: None, 5: None}, absolute=0, t5=-0.1, shaw=0),
         r"t5 is best: better than absolute by 0\.\d+ nats \[0\.\d+, 0\.\d+\], 3 seeds. "
         r"Pairs are compared on the seeds that both have: 2 of 5 seeds of t5 are missing \(4, 5\)"),
        (changed("t5", LOST, absolute=0, t5=0, shaw=-0.1),
         rf"shaw is best: {NUMBERS.format('absolute')}\. Left out, because there is no finished run: t5"),
        (changed("t5", GONE, absolute=0, t5=0), "No answer yet: t5 has no finished run: 5 of 5 seeds diverged"),
        (changed("t5", {2: math.inf}, absolute=0, t5=0),
         "No answer yet: runs diverged, and fewer than two groups are left"),
        (changed("shaw", {2: math.inf}, absolute=0, t5=-0.1, shaw=-0.5),
         rf"t5 is best: {NUMBERS.format('absolute')}\. Left out, because seeds diverged: shaw"),
        # Survivors of the baseline are not quoted.
        (changed("absolute", {2: math.inf}, absolute=0, t5=-0.1, shaw=0.5),
         r"t5 is best\. Left out, because seeds diverged: absolute"),
        (grid(absolute=0, t5=-0.1),
         rf"t5 rate=2 is best: {NUMBERS.format('absolute rate=2')}. Each name is at its best setting by loss"),
        (grid(absolute=0, t5=0),
         "No difference shown: t5 rate=2 or absolute rate=2 may be best. "
         "Each name is at its best setting by loss"),
        (grid(absolute=0, t5=0, z=0.5),
         "The best is t5 rate=2 or absolute rate=2. z rate=2 is not the best."
         " Each name is at its best setting by loss"),
        ([rows(losses(t5=0), rate=1), rows(losses(t5=0.1), rate=2), rows({"t5": [5, 5.2, 5.1, 5.3, 5]}, rate=3)],
         "The best is t5 rate=1 or t5 rate=2. t5 rate=3 is not the best"),
    ],
)  # fmt: skip
def test_the_headline(parts: list[pd.DataFrame], said: str) -> None:
    assert re.fullmatch(rf"{said}\.", headline(compared(*parts))), headline(compared(*parts))


def test_the_headline_claims_no_more_than_the_findings() -> None:
    """Of nine settings of a name the best one seems better by chance alone."""
    noise = np.random.default_rng(0).normal(0, 0.05, (9, 5))
    for shift in np.arange(0.0, 0.12, 0.01):
        parts = [rows({"new": list(of - shift)}, rate=rate) for rate, of in enumerate(noise[1:])]
        one = compared(rows({"plain": list(noise[0])}), *parts)
        found = next(of for of in findings(one) if one.judged[0].label in of and "plain" in of)
        assert ("may be best" in headline(one)) == found.startswith("No difference")


def test_what_matters_may_be_given() -> None:
    parts = rows(losses(absolute=0, t5=-0.1))
    small = headline(compared(parts, effect=0.5))
    assert small.startswith(
        "t5 is best, but by less than the 0.5 nats that matters: better than absolute by 0.104 nats"
    )


def test_findings_are_at_most_five_and_all_of_them_stand_below() -> None:
    few = compared(rows(losses(absolute=0, t5=0, shaw=-0.1)))
    assert [text.partition(":")[0].partition(" are ")[0] for text in findings(few)] == [
        "shaw is better than absolute", "t5 and absolute",
    ]  # fmt: skip
    assert all_findings(few) == []
    effects = {f"n{number}": 0.1 * number for number in range(7)}
    many = compared(rows(losses(**effects)), pairs="all")
    assert findings(many) == [
        "Worse than n0 (6 of 6): n1, n2, n3, n4, n5, n6.",
        "Of all 21 pairs, 21 are shown to differ.",
    ]
    assert len(all_findings(many)) == 21
    alone = compared(rows(losses(t5=0)))
    assert (findings(alone), all_findings(alone)) == ([], [])


def test_settings_of_a_single_name_come_first() -> None:
    generator = np.random.default_rng(3)
    parts = [
        rows({"t5": 4 + effect + generator.normal(0, 0.003, 5)}, rate=rate, width=width)
        for rate, effect in ((1, 0.0), (2, 0.1), (3, 0.2))
        for width in (8, 16)
    ]
    one = compared(*parts)
    assert len(findings(one)) <= 5
    assert [text[:8] for text in findings(one)][:3] == ["t5 with "] * 3
    assert "Worse than t5 rate=1 width=8" in findings(one)[3]


def test_what_is_gone_or_may_fail_is_said() -> None:
    lost = compared(*changed("shaw", GONE, absolute=0, t5=-0.1, shaw=0))
    assert caveats(lost) == ["shaw has no finished run: 5 of 5 seeds diverged."]
    assert fine_print(lost) == ""
    assert findings(lost)[0].startswith("t5 is better than absolute")
    said = "No run of 5 seeds diverged. Even so, up to 45 % of further seeds may (95 % limit)."
    assert fine_print(compared(rows(losses(absolute=0, t5=-0.1)))) == said


def test_of_many_names_sentences_list_a_few_and_the_figure_draws_the_best() -> None:
    one = compared(rows(losses(noise=0.03, **{f"n{number}": 0.0 for number in range(60)})))
    assert headline(one).count(",") == 4
    assert " one of 55 others may be best" in headline(one)
    assert all(text.count(",") < 30 for text in findings(one))
    by_run = scores_figure(one).panels[-1].axes[0]
    assert len(by_run.get_yticks()) in (MOST_DRAWN, MOST_DRAWN + 1)  # with the baseline
