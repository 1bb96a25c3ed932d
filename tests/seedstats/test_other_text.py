"""What a comparison says of held-out text, by intervals over seeds and text at once."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tables import compared, losses, rows, said

from seedstats.comparison import Comparison
from seedstats.section import Section
from seedstats.statistics.stretches import FEWEST_BLOCKS, seeds_and_text

PASSAGES = 33
Values = dict[str, list[np.ndarray]]  # by name, the values of passages of each seed


def drawn(of_text: float, passages: int = PASSAGES, seeds: int = 5) -> Values:
    """absolute, and t5 that is better by 0.1 nats, a little more or less by seed; and by passage, with an sd of
    `of_text`."""
    generator = np.random.default_rng(1)
    by_text = generator.normal(0, of_text, passages)
    by_text -= by_text.mean()
    base = [generator.normal(4, 0.25, passages) for _ in range(seeds)]
    return {"absolute": base, "t5": [of - 0.1 + by_text + generator.normal(0, 0.005) for of in base]}


def parts(values: Values, documents: Sequence[int] = (), **metric: str) -> list[pd.DataFrame]:
    """A row for the whole and for each passage. metric: of the passages."""
    whole = rows({name: [float(of.mean()) for of in seeds] for name, seeds in values.items()})
    passages = [
        rows(
            {name: [float(of[place]) for of in seeds] for name, seeds in values.items()},
            **{"stretch": place + 1, **({"document": documents[place]} if documents else {})},
        )
        for place in range(len(values["t5"][0]))
    ]
    return [whole, pd.concat(passages).assign(**metric)]


def claim(one: Comparison) -> str:
    (text,) = said(one)
    assert text.startswith("t5 is better than absolute: 0.")
    return text


EITHER = "It holds for new seeds and for other text of this corpus."
NOT_SHOWN = "It holds for new seeds on this text; for other text it is not shown."


def test_a_claim_says_for_which_seeds_and_text_it_holds() -> None:
    even, uneven = (compared(*parts(drawn(of_text))) for of_text in (0.05, 1.0))
    assert claim(even).endswith(EITHER)
    assert claim(uneven).endswith(NOT_SHOWN)
    table = Section("text", uneven).table
    by_label = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    low, high = map(float, by_label["t5"]["interval, other text"].split(" to "))
    assert low < -0.2 < 0 < high
    assert by_label["absolute"]["interval, other text"] == ""
    assert "interval, other text" not in Section("text", compared(parts(drawn(0.05))[0])).table.columns


def test_other_text_has_a_correction_of_its_own() -> None:
    """Over the whole family, also those of which no passages are known."""
    of_pair = parts(drawn(0.1))
    alone = compared(*of_pair).over_text
    found = compared(*of_pair, rows(losses(shaw=0.0, rope=0.0))).over_text
    assert found.keys() == {"t5"}
    assert found["t5"].p_value == pytest.approx(3 * alone["t5"].p_value)
    assert found["t5"].comparisons == 3


def test_the_same_difference_everywhere_is_no_certainty() -> None:
    """Nothing that was trained differs by as much in every passage."""
    levels = [np.full(PASSAGES, 4.0 + 0.1 * seed) for seed in (1, 2, 3)]
    assert compared(*parts({"absolute": levels, "t5": [of - 0.123 for of in levels]})).over_text == {}


@pytest.mark.parametrize(
    ("values", "more", "said_of_text"),
    [
        (drawn(0.05, FEWEST_BLOCKS - 1), {}, "because too few passages of this one are independent."),
        (drawn(0.05, 12), {"documents": [1, 1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9]},
         "because its held-out documents tell less than 10 of equal length would."),
    ],
)  # fmt: skip
def test_a_short_text_says_nothing_of_other_text(values: Values, more: dict[str, Any], said_of_text: str) -> None:
    assert claim(compared(*parts(values, **more))).endswith(f". Nothing is known of other text, {said_of_text}")


def test_passages_of_another_checkpoint_say_nothing_of_other_text() -> None:
    """The compared losses are of the last weights, the passages of the best ones; equal values are of equal weights."""
    values = drawn(0.05)
    whole, passages = parts(values, metric="best loss")
    best = whole.assign(metric="best loss")
    assert claim(compared(whole, best, passages)).endswith(EITHER)
    later = best.assign(value=[str(float(value) - 0.01) for value in best["value"]])
    assert claim(compared(whole, later, passages)).endswith("measured with another checkpoint than the one compared.")


def test_documents_are_what_is_drawn_of_a_text() -> None:
    """The interval is that of seeds and documents, however much they differ within."""
    values, documents = drawn(0.05, 40), [*np.repeat(np.arange(1, 14), 3), 14]
    one = compared(*parts(values, documents))
    assert claim(one).endswith(EITHER)
    expected = seeds_and_text(np.subtract(values["t5"], values["absolute"]), documents, np.ones(40))
    assert one.over_text["t5"].interval == pytest.approx(expected.interval)


@pytest.mark.parametrize("lost", ["absolute", "t5", "shaw"])
def test_nothing_is_shown_for_other_text_because_a_run_is_gone(lost: str) -> None:
    """Of the pair nothing is said any more, of others no more than before."""
    of_pair = [*parts(drawn(0.1)), rows(losses(shaw=0.1))]
    before = compared(*of_pair).over_text
    left = [part[(part["name"] != lost) | (part["seed"] != "2")] for part in of_pair]
    found = compared(*left).over_text
    assert found.keys() == ({"t5"} if lost == "shaw" else set())
    assert all(d.p_value >= before[label].p_value for label, d in found.items())
