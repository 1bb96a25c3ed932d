"""Page that explains a model, or two side by side."""

import base64
import re
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape
from torch import Tensor

from poslab.config.command_line import command_line
from poslab.data.tokenizer import AnyVocabulary
from poslab.evaluation.pictures import attention_maps, needs_rows
from poslab.explanation import charts
from poslab.explanation.blocks import Block, Part, ablations, by_distance, exact, probes
from poslab.explanation.charts import Chart, Chips, Heat
from poslab.explanation.model_under_study import Findings
from poslab.explanation.retrieved import Retrieved
from poslab.explanation.sentences import sentences
from poslab.positions import Curves, Explanation, Matrix, Strip
from seedstats.page.looks import COLOURS, numbers_of
from seedstats.page.style import style

MARK = '<meta name="generator" content="poslab explain">'  # which marks a page as written by this module
_AROUND = 16  # tokens on either side of one that was retrieved

_OWN_WORDS = "A picture that the scheme gives of itself, without words."


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
    models = []
    for each in findings:
        hue = f"var(--c{numbers[each.study.label] % len(COLOURS)})"
        models.append(Part(each.study.label, hue, each, sentences(each), _words(each)))
    probe_data = next((each.study.probe_data for each in findings if each.study.probe_data is not None), None)
    maps = [_map(model) for model in models]
    sharpest = [each.measured.sharpest for each in findings if each.measured is not None]
    retrieved = [_retrieved(each.retrieved, each.study.vocabulary) if each.retrieved else None for each in findings]
    return environment.get_template("page.html.j2").render(
        mark=MARK,
        style=Markup(style()),
        parts=models,
        maps=maps,
        retrieved=retrieved,
        schemes=[_scheme(model) for model in models],
        descriptions=[_descriptions(model) for model in models],
        # Lists of blocks that stand side by side.
        measured=[row for row in (ablations(models), by_distance(models), [*probes(models), *exact(models)]) if row],
        better=better if all(model.sentences.warning and not model.sentences.reason for model in models) else "",
        probe_data=None if probe_data is None else probe_data.name,
        exact=probe_data is not None and probe_data.task is not None,
        notes=[note for each in findings for note in each.notes],
        # That of the first headline which names one, or some distance.
        distance=next((head.distance for head in sharpest if head.is_peak), 4),
        command=command,
        side_by_side=command_line("explain", "RUN", "RUN"),
    )


def _words(findings: Findings) -> list[str]:
    if findings.study.probe_data is None:
        return []
    sample = findings.study.probe_data.sample.tolist()
    return [visible(findings.study.vocabulary.decode([token])).strip() or "␣" for token in sample]


# The scheme


def _scheme(part: Part) -> list[Block]:
    """Return the pictures of a scheme; those that follow each other with one caption are one block."""
    pictures = [*part.findings.explanations.values(), *part.findings.pictures.values()]
    as_rows = needs_rows(picture for picture in pictures if isinstance(picture, Curves))
    blocks = []
    for caption, same_caption in groupby(pictures, key=lambda picture: picture.caption):
        figures = [_picture(picture, part, as_rows) for picture in same_caption]
        title = figures[0].title if len(figures) == 1 else ""
        blocks.append(Block(title, caption or _OWN_WORDS, [], [(None, figure) for figure in figures]))
    narrow = [False, *(not block.wide for block in blocks), False]
    return [replace(block, alone=not narrow[n] and not narrow[n + 2]) for n, block in enumerate(blocks)]


def _picture(picture: Explanation, part: Part, as_rows: bool) -> Chart | Heat | Chips:
    if isinstance(picture, Curves | Matrix):
        return charts.picture_chart(picture, part.colour, as_rows)
    return charts.chips(picture) if isinstance(picture, Strip) else charts.on_text(picture, part.words)


def _descriptions(part: Part) -> dict[str, list[tuple[bool, str]]]:
    return {kind: _paragraphs(text) for kind, text in part.findings.descriptions.items()}


def _paragraphs(text: str) -> list[tuple[bool, str]]:
    """Return the paragraphs of a docstring; the lines of formulas stay."""
    paragraphs = [paragraph for paragraph in text.split("\n\n") if paragraph.strip()]
    return [
        (paragraph[0] == " ", textwrap.dedent(paragraph) if paragraph[0] == " " else " ".join(paragraph.split()))
        for paragraph in paragraphs
    ]


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
