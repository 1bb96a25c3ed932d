"""Page that explains a model, or two side by side: what stands where, and the captions of its charts."""

import base64
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape
from torch import Tensor

from poslab.data.tokenizer import AnyVocabulary
from poslab.evaluation.pictures import attention_maps, needs_rows
from poslab.explanation import charts
from poslab.explanation.charts import Chart, Chips, Heat
from poslab.explanation.model_under_study import Findings
from poslab.explanation.retrieved import Retrieved
from poslab.explanation.sentences import Sentences, sentences
from poslab.metric import EXACT
from poslab.positions import Curves, Explanation, Matrix, Strip
from seedstats.page.looks import COLOURS, numbers_of
from seedstats.page.style import style

MARK = '<meta name="generator" content="poslab explain">'  # which marks a page as written by this module
_AROUND = 16  # tokens on either side of one that was retrieved

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
        "The same text as if it began at a later position; of texts only half a context of it, so that there are "
        "positions to move to. Schemes that know distances only give one flat line; one that knows places suffers "
        "where these were rare or never trained, and its curve ends where the last token has the last position. "
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
    "How far off a linear probe of the hidden states is that reads a token's position in the text (Haviv et al. 2022, "
    "closed form), on other texts than it was fitted to: before each layer, and to the right after the last. "
    "Surprising: a low curve for a scheme of distances, or none; causal attention may count what came before.",
)
_EXACT = (
    "Which of its answers are right",
    "Share of examples without an error, by length (columns, as the task counts it), for all answers and for parts of "
    "them (rows). Surprising: a part that is paler than those above and below.",
)
_OWN_WORDS = "A picture that the scheme gives of itself, without words."


@dataclass(frozen=True)
class Part:
    """One model: its name on the page, and the property of CSS with its colour."""

    label: str
    hue: str
    findings: Findings
    sentences: Sentences
    words: list[str]  # of the sample, visible


@dataclass(frozen=True)
class Finding:
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


def write(findings: Sequence[Findings], command: str, better: str) -> str:
    """Return the page, as HTML that needs no other file. better: the command that trains a model which needs position,
    for one that makes no use of it."""
    environment = Environment(
        loader=PackageLoader("poslab.explanation"),
        autoescape=select_autoescape(["html.j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["prose"] = prose
    numbers = numbers_of(each.study.label for each in findings)
    parts = []
    for each in findings:
        hue = f"var(--c{numbers[each.study.label] % len(COLOURS)})"
        parts.append(Part(each.study.label, hue, each, sentences(each), _words(each)))
    probe_data = next((each.study.probe_data for each in findings if each.study.probe_data is not None), None)
    maps = [_map(part) for part in parts]
    retrieved = [_retrieved(each.retrieved, each.study.vocabulary) if each.retrieved else None for each in findings]
    return environment.get_template("page.html.j2").render(
        mark=MARK,
        style=Markup(style()),
        parts=parts,
        maps=maps,
        retrieved=retrieved,
        schemes=[_scheme(part) for part in parts],
        descriptions=[_descriptions(part) for part in parts],
        measured=_measured(parts),
        better=better if all(part.sentences.warning for part in parts) else "",
        probe_data=None if probe_data is None else probe_data.name,
        exact=probe_data is not None and probe_data.task is not None,
        notes=[note for each in findings for note in each.notes],
        command=command,
    )


def _words(findings: Findings) -> list[str]:
    if findings.study.probe_data is None:
        return []
    sample = findings.study.probe_data.sample.tolist()
    return [visible(findings.study.vocabulary.decode([token])).strip() or "␣" for token in sample]


# The scheme


def _scheme(part: Part) -> list[Finding]:
    """Return the pictures of a scheme; those that follow each other with one caption are one block."""
    pictures = [*part.findings.explanations.values(), *part.findings.pictures.values()]
    as_rows = needs_rows(picture for picture in pictures if isinstance(picture, Curves))
    blocks = []
    for caption, same_caption in groupby(pictures, key=lambda picture: picture.caption):
        figures = [_picture(picture, part, as_rows) for picture in same_caption]
        title = figures[0].title if len(figures) == 1 else ""
        blocks.append(Finding(title, caption or _OWN_WORDS, [], [(None, figure) for figure in figures]))
    narrow = [False, *(not block.wide for block in blocks), False]
    return [replace(block, alone=not narrow[n] and not narrow[n + 2]) for n, block in enumerate(blocks)]


def _picture(picture: Explanation, part: Part, as_rows: bool) -> Chart | Heat | Chips:
    if isinstance(picture, Curves | Matrix):
        return charts.picture_chart(picture, _colour(part), as_rows)
    return charts.chips(picture) if isinstance(picture, Strip) else charts.on_text(picture, part.words)


def _colour(part: Part) -> str:
    """Return the colour of a model's lines, as matplotlib has it."""
    return COLOURS[int(re.sub(r"\D", "", part.hue))][0]


def _descriptions(part: Part) -> dict[str, list[tuple[bool, str]]]:
    return {kind: _paragraphs(text) for kind, text in part.findings.descriptions.items()}


def _paragraphs(text: str) -> list[tuple[bool, str]]:
    """Return the paragraphs of a docstring; the lines of formulas stay."""
    paragraphs = [paragraph for paragraph in text.split("\n\n") if paragraph.strip()]
    return [
        (paragraph[0] == " ", textwrap.dedent(paragraph) if paragraph[0] == " " else " ".join(paragraph.split()))
        for paragraph in paragraphs
    ]


# What is measured


def _measured(parts: Sequence[Part]) -> list[list[Finding]]:
    """Return the blocks on what the models do, as far as it is measured: lists of those that stand side by side."""
    rows = [_ablations(parts), _by_distance(parts), [*_probes(parts), *_exact(parts)]]
    return [row for row in rows if row]


def _says(parts: Sequence[Part], name: str) -> list[tuple[Part, str]]:
    return [(part, part.sentences.others[name]) for part in parts if name in part.sentences.others]


def _ablations(parts: Sequence[Part]) -> list[Finding]:
    by_label = {part.label: part.findings.ablations for part in parts if part.findings.ablations}
    if not by_label:
        return []
    blocks = []
    for name, (title, x_label, caption) in _ABLATIONS.items():
        ablations = {label: by_name[name] for label, by_name in by_label.items()}
        on_one_scale = _OF_TEXT if name in _OF_TEXT else _ABLATIONS
        limits = charts.limits_of([by_name[other] for by_name in by_label.values() for other in on_one_scale])
        chart = charts.ablation_chart(title, "", x_label, ablations, limits)
        blocks.append(Finding(title, caption, _says(parts, name), [(None, chart)]))
    return blocks


def _by_distance(parts: Sequence[Part]) -> list[Finding]:
    measured = [(part, part.findings.measured) for part in parts if part.findings.measured is not None]
    if not measured:
        return []
    limits = charts.limits_of_weights([attention for _, attention in measured])
    says: list[tuple[Part, str]] = []
    figures: list[tuple[Part | None, Chart | Heat | Chips]] = []
    for part, attention in measured:
        sink = (
            f"{float(attention.first.mean()):.0%} of all attention lies on the first token of the text, and "
            f"{float(attention.by_distance[..., 0].mean()):.0%} on the query itself."
        )
        says.append((part, f"{part.sentences.others['reach']} {sink}"))
        chart = charts.attention_chart(_REACH[0], attention, _colour(part), limits)
        figures.append((part if len(parts) > 1 else None, chart))
    return [Finding(*_REACH, says, figures)]


def _probes(parts: Sequence[Part]) -> list[Finding]:
    probed = {part.label: part.findings.probes for part in parts if part.findings.probes is not None}
    if not probed:
        return []
    tables: list[tuple[Part | None, Chart | Heat | Chips]] = []
    for part in parts:
        if part.label in probed:
            table = charts.head_table(_HEADS[0], "", probed[part.label].heads)
            tables.append((part if len(parts) > 1 else None, table))
    errors = {label: probes.errors for label, probes in probed.items()}
    middle = next(iter(probed.values())).middle
    chart = charts.position_chart(_POSITION[0], "", errors, middle)
    return [
        Finding(*_POSITION, _says(parts, "position"), [(None, chart)]),
        Finding(*_HEADS, _says(parts, "heads"), tables),
    ]


def _exact(parts: Sequence[Part]) -> list[Finding]:
    tables: list[tuple[Part | None, Chart | Heat | Chips]] = []
    for part in parts:
        shares = part.findings.by_length
        rows = {name: by_length for name, by_length in shares.items() if name.startswith(EXACT.name)}
        if rows:
            lengths = list(next(iter(rows.values())))
            named = {
                name.removeprefix(f"{EXACT.name}_").replace("_", " "): list(of.values()) for name, of in rows.items()
            }
            table = charts.heat(_EXACT[0], "", [("length", len(lengths))], lengths, named, 1.0, share=True)
            tables.append((part if len(parts) > 1 else None, table))
    return [Finding(*_EXACT, _says(parts, "exact"), tables)] if tables else []


def _map(part: Part) -> dict[str, Any] | None:
    """Return the attention of all heads on the sample, and the head that the page begins with; None without a text."""
    findings = part.findings
    if findings.study.probe_data is None or findings.measured is None:
        return None
    weights = attention_maps(findings.study.model, findings.study.probe_data.sample)  # (L, H, T, T)
    sharpest = findings.measured.sharpest
    return {
        "words": part.words,
        "shape": list(weights.shape),
        "weights": base64.b64encode((weights.sqrt() * 255).round().byte().numpy().tobytes()).decode(),
        "letters": max(map(len, part.words)) < 3,
        "layer": sharpest.layer,
        "head": sharpest.head,
        "shades": _shades(weights[sharpest.layer, sharpest.head]),
    }


def _shades(weights: Tensor) -> list[list[str]]:
    """Return the shade of each key that a query sees, a row for each query, as the page's script makes them, too."""
    return [[f"{shade:.2f}" for shade in row[: n + 1]] for n, row in enumerate(weights.sqrt().tolist())]


def _retrieved(retrieved: Retrieved, vocabulary: AnyVocabulary) -> dict[str, Any]:
    """Return what each head retrieves, and the pieces of the text; best: of the last token, with the text around it."""
    ids = retrieved.tokens.tolist()
    pieces = [visible(vocabulary.decode([i])) for i in ids]
    apart = " " if vocabulary.decode(ids[:2]) != "".join(vocabulary.decode([i]) for i in ids[:2]) else ""
    best = []
    for head, gate in enumerate(retrieved.gates.tolist()):
        index, weight = int(retrieved.indices[head, -1, 0]), float(retrieved.weights[head, -1, 0])
        before, after = pieces[max(0, index - _AROUND) : index], pieces[index + 1 : index + 1 + _AROUND]
        around = (apart.join([*before, ""]), pieces[index], apart.join(["", *after]))
        best.append((head, f"{gate:.0%}", f"{weight:.0%}", f"{retrieved.queries[-1] - index:,}", *around))
    weights = [
        [[round(w, 4) for w in query_weights] for query_weights in head_weights]
        for head_weights in retrieved.weights.tolist()
    ]
    return {
        "layer": retrieved.layer,
        "last": pieces[-1],
        "best": best,
        "script": {
            "pieces": pieces,
            "apart": apart,
            "around": _AROUND,
            "gates": [f"{gate:.0%}" for gate in retrieved.gates.tolist()],
            "queries": retrieved.queries,
            "found": retrieved.indices.tolist(),
            "weights": weights,
        },
    }


def prose(text: str) -> Markup:
    """Return a text with what stands between backticks as code."""
    return Markup(re.sub(r"(`+)(.+?)\1", r"<code>\2</code>", str(escape(text))))


def visible(text: str) -> str:
    """Return a text in one line, with visible signs for line ends; spaces remain."""
    return "".join("↵" if c == "\n" else c if c.isprintable() else "�" for c in text)
