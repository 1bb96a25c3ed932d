"""Blocks of the page on what models do, as far as it is measured: their captions, words and figures."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from poslab.explanation import charts
from poslab.explanation.charts import Chart, Chips, Heat
from poslab.explanation.model_under_study import Findings
from poslab.explanation.sentences import Sentences
from poslab.metric import EXACT
from seedstats.page.looks import COLOURS

# Title, label of the x axis, caption, by the name of the ablation.
_ABLATIONS = {
    "truncate": (
        "Cut to the last n tokens",
        "n",
        "The same questions with ever more of the text before them. Where the curve is flat, more context is of no "
        "use. Surprising: a curve that rises again to the right, for a model that is worse the more it sees.",
    ),
    "shuffle": (
        "Shuffled beyond the last n tokens",
        "n",
        "All tokens are there, but those farther back than n in a random order. Where the curve is flat, the model "
        "knows at most which words came up there, not in which order. Surprising: shuffled words do more harm than "
        "missing ones.",
    ),
    "shift": (
        "All positions moved by an offset",
        "offset",
        "The same text as if it began at a later position. Schemes that know distances only give one flat line; one "
        "that knows places suffers where these were rare or never trained, and its curve ends where the last token has "
        "the last position. "
        "Surprising: a rise within the context trained on.",
    ),
}
_OF_TEXT = ("truncate", "shuffle")

# Titles and captions of what else is measured.
_REACH = (
    "Attention by distance",
    "How much weight each head gives to what stands so far back. The dashed line is the same head where the text is "
    "one token again and again: keys differ in nothing but position, so this is what position alone decides. Solid on "
    "dashed is nothing but position, solid away from dashed is content. Surprising: a solid line that falls more "
    "steeply than its dashed one, or a later layer that sees less than the first one.",
)
_HEADS = (
    "Heads that find copies",
    "In texts of random tokens that come again and again: how much of its attention each head has on the token before "
    "(previous), on earlier copies of the token (duplicate), and on what followed those (induction). "
    "Surprising: an induction head with no head in an earlier layer that looks at the token before.",
)
_POSITION = (
    "Position in hidden states",
    "The error of a linear probe that reads a token's position in the text from the hidden states (Haviv et al. 2022, "
    "closed form), on other texts than it was fitted to: before the first layer (0), and after each. A position that "
    "can be read need not be used. Surprising: a low curve for a scheme of distances, or none; causal attention may "
    "count what came before.",
)
_EXACT = (
    "Which of its answers are right",
    "Share of examples with every answer right, by length (columns, as the task counts it): of the model, of guessing, "
    "and for parts of the answers. Surprising: a part that is paler than those above and below.",
)


@dataclass(frozen=True)
class Part:
    """One model: its name on the page, and the property of CSS with its colour."""

    label: str
    hue: str
    findings: Findings
    sentences: Sentences
    words: list[str]  # of the sample, visible

    @property
    def colour(self) -> str:
        """Return the colour of the model's lines, as matplotlib has it."""
        return COLOURS[int(re.sub(r"\D", "", self.hue))][0]


@dataclass(frozen=True)
class Block:
    """Block of the page: what was measured, what it says of each model, and the figures that show it."""

    title: str
    caption: str
    says: list[tuple[Part, str]] = field(default_factory=list)
    figures: list[tuple[Part | None, Chart | Heat | Chips]] = field(default_factory=list)
    alone: bool = False  # whether there is no other block to stand beside it

    @property
    def wide(self) -> bool:
        """Return whether the figures need the whole width; others stand beside each other."""
        figures = [figure for _, figure in self.figures]
        panels = any(len(figure.panels) > 1 for figure in figures if isinstance(figure, Chart))
        long = any(not figure.numbers for figure in figures if isinstance(figure, Heat))
        several = len(figures) > 1 and not all(isinstance(figure, Heat) for figure in figures)
        return self.alone or panels or long or several or any(isinstance(figure, Chips) for figure in figures)

    @property
    def tall(self) -> bool:
        """Return whether the figures stand below the text, for all the room that there is."""
        return any(figure.tall for _, figure in self.figures if isinstance(figure, Chart))

    @property
    def pointed(self) -> bool:
        """Return whether its reader can point at a distance in the figures."""
        panels = [panel for _, figure in self.figures if isinstance(figure, Chart) for panel in figure.panels]
        return any(panel.data for panel in panels) or any(isinstance(figure, Chips) for _, figure in self.figures)


def _says(models: Sequence[Part], name: str) -> list[tuple[Part, str]]:
    return [(model, model.sentences.others[name]) for model in models if name in model.sentences.others]


def ablations(models: Sequence[Part]) -> list[Block]:
    by_label = {model.label: model.findings.ablations for model in models if model.findings.ablations}
    if not by_label:
        return []
    blocks = []
    for name, (title, x_label, caption) in _ABLATIONS.items():
        ablations = {label: by_name[name] for label, by_name in by_label.items()}
        on_one_scale = _OF_TEXT if name in _OF_TEXT else _ABLATIONS
        limits = charts.limits_of([by_name[other] for by_name in by_label.values() for other in on_one_scale])
        chart = charts.ablation_chart(title, "", x_label, ablations, limits)
        blocks.append(Block(title, caption, _says(models, name), [(None, chart)]))
    return blocks


def by_distance(models: Sequence[Part]) -> list[Block]:
    measured = [(model, model.findings.measured) for model in models if model.findings.measured is not None]
    if not measured:
        return []
    limits = charts.limits_of_weights([attention for _, attention in measured])
    says: list[tuple[Part, str]] = []
    figures: list[tuple[Part | None, Chart | Heat | Chips]] = []
    for model, attention in measured:
        sink = (
            f"{float(attention.first.mean()):.0%} of all attention lies on the first token of the text, and "
            f"{float(attention.by_distance[..., 0].mean()):.0%} on the query itself."
        )
        says.append((model, f"{model.sentences.others['reach']} {sink}"))
        chart = charts.attention_chart(_REACH[0], attention, model.colour, limits)
        figures.append((model if len(models) > 1 else None, chart))
    return [Block(*_REACH, says, figures)]


def probes(models: Sequence[Part]) -> list[Block]:
    probed = {model.label: model.findings.probes for model in models if model.findings.probes is not None}
    if not probed:
        return []
    tables: list[tuple[Part | None, Chart | Heat | Chips]] = []
    for model in models:
        if model.label in probed:
            table = charts.head_table(_HEADS[0], "", probed[model.label].heads)
            tables.append((model if len(models) > 1 else None, table))
    errors = {label: probes.errors for label, probes in probed.items()}
    middle = next(iter(probed.values())).middle
    chart = charts.position_chart(_POSITION[0], "", errors, middle)
    return [
        Block(*_POSITION, _says(models, "position"), [(None, chart)]),
        Block(*_HEADS, _says(models, "heads"), tables),
    ]


def exact(models: Sequence[Part]) -> list[Block]:
    tables: list[tuple[Part | None, Chart | Heat | Chips]] = []
    for model in models:
        shares = model.findings.by_length
        rows = {name: by_length for name, by_length in shares.items() if name.startswith(EXACT.name)}
        if rows:
            lengths = list(next(iter(rows.values())))
            named = {_row(name): list(by_length.values()) for name, by_length in rows.items()}
            table = charts.heat(_EXACT[0], "", [("length", len(lengths))], lengths, named, 1.0, share=True)
            tables.append((model if len(models) > 1 else None, table))
    return [Block(*_EXACT, _says(models, "exact"), tables)] if tables else []


def _row(metric: str) -> str:
    if metric == EXACT.name:
        return "model"
    part = metric.removeprefix(f"{EXACT.name}_")
    return "guessing" if part == "chance" else part.replace("_", " ")
