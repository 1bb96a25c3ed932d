"""Model under study: a trained one, or one at its initialisation, and all that is measured of it."""

import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from poslab.config.schemes import classes
from poslab.data.tokenizer import AnyVocabulary, tokens_of
from poslab.errors import SettingError, blamed_on
from poslab.evaluation.pictures import sample_pairs
from poslab.evaluation.probes import Probes, probe
from poslab.evaluation.task_metrics import MetricsByLength, measure
from poslab.explanation import measures
from poslab.explanation.probe_data import ProbeData
from poslab.explanation.retrieved import Retrieved, retrieved, retrieves
from poslab.model.decoder import GPT
from poslab.positions import Explanation, OnText, Picture


@dataclass(frozen=True, eq=False)
class ModelUnderStudy:
    """Model in eval mode, and the data to measure it on.

    label: its scheme's name, or a longer one that no other model here has. probe_data: None where its text is gone.
    validation_loss: what its run had on the whole validation part, if known. notes: on what the page lacks, and why.
    """

    label: str
    model: GPT
    vocabulary: AnyVocabulary
    facts: Mapping[str, str]
    probe_data: ProbeData | None
    trained: bool = True
    validation_loss: float | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Findings:
    """Results of a model; without probe data nothing is measured, without training there are no ablations."""

    study: ModelUnderStudy
    pictures: dict[str, Picture]
    explanations: dict[str, Explanation]
    descriptions: dict[str, str]  # of the scheme's classes, by their name
    measured: measures.AttentionMeasures | None
    probes: Probes | None
    by_length: MetricsByLength  # of a task
    ablations: dict[str, measures.Ablation]
    retrieved: Retrieved | None
    notes: list[str]


@torch.no_grad()
def examine(study: ModelUnderStudy) -> Findings:
    """Draw the pictures of a model's scheme, and measure what the model does."""
    model, probe_data, notes = study.model, study.probe_data, [*study.notes]
    pictures = model.position.pictures()
    any_tokens = torch.zeros(min(2, model.shape.context_length), dtype=torch.int64)
    sample = sample_pairs(model, any_tokens if probe_data is None else probe_data.sample)
    with blamed_on("pos", model.pos, "explain"):
        explanations = model.position.explanations(sample)
    if probe_data is None:
        explanations = {name: each for name, each in explanations.items() if not isinstance(each, OnText)}
    if not pictures and not explanations:
        notes.append(f"{study.label}: pictures of the scheme itself, as it has none")
    measured, probes, by_length, ablations, retrieved_tokens = None, None, {}, {}, None
    if probe_data is not None:
        measured, probes = measures.attention(model, probe_data.windows), probe(model, probe_data.texts)
        by_length = {} if probe_data.task is None else measure(model, probe_data.task)
        ablations = _ablations(model, probe_data) if study.trained else {}
        if probe_data.passage is not None:
            retrieved_tokens = retrieved(model, probe_data.passage)
        elif retrieves(model):
            problem = f"the text has no more than a context of {model.shape.context_length} tokens"
            notes.append(f"{study.label}: what it retrieves: {problem}")
    if not study.trained:
        notes.append(f"{study.label}: what it loses with less context, as it hasn't learned to use any")
    scheme = (study, pictures, explanations, _descriptions(model))
    return Findings(*scheme, measured, probes, by_length, ablations, retrieved_tokens, notes)


def _ablations(model: GPT, probe_data: ProbeData) -> dict[str, measures.Ablation]:
    questions, exact = probe_data.questions, probe_data.task is not None
    longest = max(batch.tokens.shape[-1] for batch in questions)
    moved = []
    for batch in questions:
        if not exact:  # half as long, so that there are positions to move to where they end with the context
            batch = measures.truncated(batch, max(1, longest // 2))
        drawn = model.position.evaluation_positions(batch.tokens.shape[-1]) if batch.positions is None else None
        moved.append(batch if drawn is None else batch._replace(positions=drawn.expand(batch.tokens.shape)))
    ends = [batch.tokens.shape[-1] if batch.positions is None else int(batch.positions.max()) + 1 for batch in moved]
    offsets = measures.offsets(model, max(ends), 4 * model.shape.context_length)
    return {
        "truncate": measures.ablation(model, questions, exact, measures.truncated, measures.powers(2, longest)),
        "shuffle": measures.ablation(model, questions, exact, measures.shuffled, measures.powers(4, longest)),
        "shift": measures.ablation(model, moved, exact, measures.shifted, offsets),
    }


def _descriptions(model: GPT) -> dict[str, str]:
    """Return the docstring of each scheme class's file, which has formula and paper, or that of the class."""
    descriptions: dict[str, str] = {}
    for kind in classes(model.pos):
        text = inspect.getdoc(sys.modules.get(kind.__module__)) or inspect.getdoc(kind)
        if text and text not in descriptions.values():
            descriptions[kind.__name__] = text
    return descriptions


def require_comparable(first: ModelUnderStudy, second: ModelUnderStudy) -> None:
    """Raise SettingError where the losses of two models can't be compared in one picture."""
    names = [study.probe_data.name for study in (first, second) if study.probe_data is not None]
    if tokens_of(first.vocabulary) != tokens_of(second.vocabulary):
        raise SettingError("ckpt", second.label, f"reads another vocabulary than {first.label}: make a page of each")
    if len(set(names)) > 1:
        raise SettingError("ckpt", second.label, f"was trained on {names[1]}, and {first.label} on {names[0]}")
