"""Page that explains a model, or two side by side: what stands where, and the captions of its charts."""

import base64
import textwrap
from collections.abc import Sequence
from typing import Any

import torch
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from poslab.data.tokenizer import AnyVocabulary
from poslab.evaluation.pictures import attention_maps
from poslab.evaluation.probes import Probes
from poslab.explanation import charts
from poslab.explanation.charts import Cells, Chart, Chips
from poslab.explanation.measures import MASS
from poslab.explanation.model_under_study import Findings
from poslab.explanation.retrieved import Retrieved
from poslab.explanation.sentences import sentences
from poslab.metric import EXACT
from poslab.positions import Curves, Matrix, OnText, Strip

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

# Titles and captions of the probes.
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


def write(findings: Sequence[Findings], command: str) -> str:
    """Return the page, as HTML that needs no other file."""
    environment = Environment(
        loader=PackageLoader("poslab.explanation"),
        autoescape=select_autoescape(["html.j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    probe_data = next((one.study.probe_data for one in findings if one.study.probe_data is not None), None)
    return environment.get_template("page.html.j2").render(
        mark=MARK,
        parts=[_part(one, f"s{number}") for number, one in enumerate(findings)],
        ablations=_ablations(findings),
        probe_data=None if probe_data is None else probe_data.name,
        exact=probe_data is not None and probe_data.task is not None,
        notes=[note for one in findings for note in one.notes],
        mass=f"{MASS:.0%}",
        command=command,
    )


def _part(findings: Findings, name: str) -> dict[str, Any]:
    """Return the part of the page about one model alone, by the names of the template."""
    study, measured = findings.study, findings.measured
    model, probe_data = study.model, study.probe_data
    sample = [] if probe_data is None else probe_data.sample.tolist()
    words = [visible(study.vocabulary.decode([i])).strip() or "␣" for i in sample]
    figures: list[Chart | Cells | Chips] = []
    for number, picture in enumerate({**findings.explanations, **findings.pictures}.values()):
        if isinstance(picture, Curves | Matrix):
            figures.append(charts.of_picture(picture, f"{name}p{number}"))
        else:
            figures.append(charts.chips(picture) if isinstance(picture, Strip) else charts.cells(picture, words))
    probes = [] if findings.probes is None else _of_probes(findings.probes, name)
    shares = findings.by_length.items()
    exact = {name.removeprefix(f"{EXACT.name}_"): share for name, share in shares if name.startswith(EXACT.name)}
    if exact:
        probes.append(charts.shares(*_EXACT, exact))
    part: dict[str, Any] = {
        "label": study.label,
        "sentences": sentences(findings),
        "facts": study.facts,
        "descriptions": {kind: _paragraphs(text) for kind, text in findings.descriptions.items()},
        "figures": figures,  # of the scheme
        "probes": probes,
        "last": None,
        "maps": None,  # for the page's script, as `retrieved`
        "retrieved": None if findings.retrieved is None else _retrieved(findings.retrieved, study.vocabulary),
    }
    if probe_data is None or measured is None:
        return part
    layers = range(model.shape.num_layers)
    sink = (
        f"{float(measured.first.mean()):.0%} of it lies on the first token of the text, and "
        f"{float(measured.by_distance[..., 0].mean()):.0%} on the query itself"
    )
    weights = attention_maps(model, probe_data.sample)  # (L, H, T, T)
    packed = base64.b64encode((weights.sqrt() * 255).round().byte().numpy().tobytes()).decode()
    return part | {
        "attention": [charts.of_attention(f"Layer {n}", measured, n, f"{name}a{n}") for n in layers],
        "reach": measured.reach.tolist(),  # of each layer, within how many tokens each head's attention lies
        "sink": sink,
        "last": charts.cells(OnText("Where the last token looks", weights[:, :, -1]), words),
        "maps": {"words": words, "shape": list(weights.shape), "weights": packed},
    }


def _of_probes(probes: Probes, name: str) -> list[Chart | Cells]:
    scores = torch.stack(list(probes.heads.values()), -1)  # (L, H, kinds)
    heads = charts.cells(OnText(_HEADS[0], scores, 1.0, _HEADS[1]), ["previous", "duplicate", "induction"])
    errors = {"linear probe": probes.errors, "guess": torch.full_like(probes.errors, probes.middle)}
    layers = list(range(len(probes.errors)))
    curves = Curves(_POSITION[0], "layer", "tokens off", layers, errors, _POSITION[1])
    return [heads, charts.of_picture(curves, f"{name}e")]


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
    weights = [[[round(w, 4) for w in of_query] for of_query in of_head] for of_head in retrieved.weights.tolist()]
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


def _ablations(findings: Sequence[Findings]) -> list[Chart]:
    by_label = {one.study.label: one.ablations for one in findings if one.ablations}
    if not by_label:
        return []
    drawn = []
    for name, (title, x_label, caption) in _ABLATIONS.items():
        ablations = {label: one[name] for label, one in by_label.items()}
        on_one_scale = _OF_TEXT if name in _OF_TEXT else _ABLATIONS
        limits = charts.limits_of([one[other] for one in by_label.values() for other in on_one_scale])
        drawn.append(charts.of_ablations(title, caption, x_label, ablations, limits, f"t{name}"))
    return drawn


def _paragraphs(text: str) -> list[tuple[bool, str]]:
    """Return the paragraphs of a docstring; the lines of formulas stay."""
    parts = [part for part in text.split("\n\n") if part.strip()]
    return [(part[0] == " ", textwrap.dedent(part) if part[0] == " " else " ".join(part.split())) for part in parts]


def visible(text: str) -> str:
    """Return a text in one line, with visible signs for line ends; spaces remain."""
    return "".join("↵" if c == "\n" else c if c.isprintable() else "�" for c in text)
