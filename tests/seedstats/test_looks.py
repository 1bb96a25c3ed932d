"""Looks of names in figures and pages."""

import re
from itertools import combinations

import pytest
from matplotlib.figure import Figure

from seedstats.page.looks import COLOURS, INK, LINE, SOFT, dark_rules, looks_of, name_of, numbers_of, styled, wrapped
from seedstats.page.style import style
from seedstats.page.svg import inline, svg

COMPARED = ["absolute", "rope", "t5", "alibi", "shaw", "nope", "kerple", "fire", "sinusoidal", "cope", "path"]


def test_a_name_has_one_colour_whatever_stands_beside_it() -> None:
    colours = {name: look["color"] for name, look in looks_of(COMPARED).items()}
    assert len(set(colours.values())) == len(COLOURS)
    for pair in combinations(COMPARED, 2):
        assert {name: look["color"] for name, look in looks_of(pair).items()} == {name: colours[name] for name in pair}


def test_names_that_want_one_colour_get_two() -> None:
    names = [f"name {number}" for number in range(len(COLOURS))]
    assert len({look["color"] for look in looks_of(names).values()}) == len(COLOURS)
    assert sorted(numbers_of(names).values()) == list(range(len(COLOURS)))


def test_settings_of_a_name_differ_in_their_marks() -> None:
    labels = ["rope", "rope base=100", "rope base=500 scaling=yarn", "t5"]
    looks = looks_of(labels)
    assert len({looks[label]["color"] for label in labels[:3]}) == 1
    assert len({looks[label]["marker"] for label in labels[:3]}) == 3
    assert looks["t5"]["color"] != looks["rope"]["color"]
    assert len({look["color"] for look in looks_of(labels[:3]).values()}) == 3  # where there is no other name


@pytest.mark.parametrize(("label", "name"), [("rope base=500", "rope"), ("a method", "a method"), ("x=y", "x=y")])
def test_a_label_is_a_name_with_settings(label: str, name: str) -> None:
    assert name_of(label) == name


def test_figures_have_other_colours_on_a_dark_screen() -> None:
    """Every colour that a figure is drawn in, text included; and numbers are what they were."""
    with styled():
        figure = Figure()
        axes = figure.subplots()
        axes.plot([1, 2], [0.001234, 0.002], label="t5", color=looks_of(["t5"])["t5"]["color"])
        axes.text(1, 0.001234, "0.001234")
        axes.legend()
        axes.grid()
    text = svg(figure)
    figure_alone = text.partition("</style></defs>")[2]
    drawn = set(re.findall(r"(?:fill|stroke): (#\w{6})", figure_alone))
    assert len(drawn) > 3
    assert drawn <= {light for light, _ in (*COLOURS, INK, SOFT, LINE)}
    assert dark_rules() in text
    assert ">0.001234<" in text
    element = inline(text, "<title>")
    assert element.startswith('<svg role="img" aria-label="&lt;title&gt;"')
    assert "<style" not in element
    assert dark_rules() in style()


def test_a_legend_has_names_that_begin_with_an_underscore() -> None:
    figure = Figure()
    axes = figure.subplots()
    for name in ("_own", "other"):
        axes.plot([0, 1], label=wrapped(name))
    assert [text.get_text().strip("\u200b") for text in axes.legend().get_texts()] == ["_own", "other"]
