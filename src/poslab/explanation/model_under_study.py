"""What a page is about: a trained model, or one at its initialisation, and all that is measured of it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from poslab.config.schemes import classes
from poslab.data.vocabulary import AnyVocabulary
from poslab.errors import SettingError
from poslab.evaluation.attention_maps import sample_pairs
from poslab.explanation.measures import Ablation, Attention, ablation, attention, shift, shuffle, truncate
from poslab.explanation.probe_data import ProbeData, Questions
from poslab.explanation.retrieved import Retrieved, retrieved
from poslab.model.decoder import GPT
from poslab.positions import Explanation, OnText, Picture


@dataclass(frozen=True, eq=False)
class ModelUnderStudy:
    """A model in eval mode.

    label: its scheme's name, or what tells it from another of that name. material: None where its text is gone.
    start: its tables before training, as far as known. trained: whether there was any.
    """

    label: str
    model: GPT
    vocabulary: AnyVocabulary
    facts: Mapping[str, str]
    probe_data: ProbeData | None
    start: Mapping[str, Tensor] = field(default_factory=dict)
    trained: bool = True
    notes: list[str] = field(default_factory=list)  # what the page lacks, and why


@dataclass(frozen=True, eq=False)
class Findings:
    """What is known of a subject; `measured` and `ablations` are empty where there is no material, or no training."""

    model_under_study: ModelUnderStudy
    pictures: dict[str, Picture]
    starts: dict[str, Picture]
    explanations: dict[str, Explanation]
    descriptions: dict[str, str]  # of the scheme's classes, by their name
    measured: Attention | None
    ablations: dict[str, Ablation]
    retrieved: Retrieved | None
    notes: list[str]


@torch.no_grad()
def examine(model_under_study: ModelUnderStudy) -> Findings:
    """Asks the scheme for its pictures, and measures what the model does."""
    model, probe_data, notes = model_under_study.model, model_under_study.probe_data, [*model_under_study.notes]
    pictures = model.pictures()
    starts = model.pos.pictures(model_under_study.start, model.shape) if model_under_study.start else {}
    if pictures and model_under_study.trained and not starts:
        notes.append(
            f"{model_under_study.label}: how its tables were before training, of which its run has kept nothing"
        )
    explanations = _explanations(model_under_study, notes)
    if not pictures and not explanations:
        notes.append(
            f"{model_under_study.label}: the scheme gives no pictures of itself (its hooks pictures and explain)"
        )
    measured, ablations, found = None, {}, None
    if probe_data is not None:
        measured = attention(model, probe_data.windows)
        ablations = _trials(model, probe_data) if model_under_study.trained else {}
        found = None if probe_data.passage is None else retrieved(model, probe_data.passage)
    if model.retrieval is not None and probe_data is not None and found is None:
        problem = f"the text has no more than a context of {model.shape.context_length} tokens"
        notes.append(f"{model_under_study.label}: what it retrieves: {problem}")
    if not model_under_study.trained:
        notes.append(f"{model_under_study.label}: what it loses with less context, as it hasn't learned to use any")
    return Findings(
        model_under_study, pictures, starts, explanations, _descriptions(model), measured, ablations, found, notes
    )


def _explanations(model_under_study: ModelUnderStudy, notes: list[str]) -> dict[str, Explanation]:
    """What the scheme explains; without a text at hand, all but what it says of one. A hook that fails, as a stranger's
    may, costs its pictures and not the page."""
    model, probe_data = model_under_study.model, model_under_study.probe_data
    any_tokens = torch.zeros(min(2, model.shape.context_length), dtype=torch.int64)
    try:
        given = model.explanations(sample_pairs(model, any_tokens if probe_data is None else probe_data.sample))
    except Exception as error:
        problem = " ".join(f"{type(error).__name__}: {error}".split())
        notes.append(f"{model_under_study.label}: what its hook explain would show: {problem}")
        return {}
    return {name: one for name, one in given.items() if probe_data is not None or not isinstance(one, OnText)}


def _trials(model: GPT, probe_data: ProbeData) -> dict[str, Ablation]:
    longest = max(some.tokens.shape[-1] for some in probe_data.questions)
    measure = partial(ablation, model, exact=probe_data.exact)
    ablations = {
        "cut": measure(probe_data.questions, changes=truncate(longest)),
        "shuffled": measure(probe_data.questions, changes=shuffle(longest)),
    }
    shifted = probe_data.questions
    if not probe_data.exact:  # half as long, so that there are positions to move to where they end with the context
        halve = truncate(max(1, longest // 2))[max(1, longest // 2)]
        shifted = [halve(some) for some in probe_data.questions]
    shifted = [_at_drawn_positions(model, some) for some in shifted]
    reach = max(some.tokens.shape[-1] if some.positions is None else int(some.positions.max()) + 1 for some in shifted)
    ablations["shifted"] = measure(shifted, changes=shift(model, reach, 4 * model.shape.context_length))
    return ablations


def _at_drawn_positions(model: GPT, some: Questions) -> Questions:
    """The questions where the model reads them, if it draws positions in evaluation."""
    drawn = model.evaluation_positions(some.tokens.shape[-1]) if some.positions is None else None
    return some if drawn is None else some._replace(positions=drawn.expand(some.tokens.shape))


def _descriptions(model: GPT) -> dict[str, str]:
    """The head of the file of each class of the scheme, which has its formula and paper, or that of the class."""
    found: dict[str, str] = {}
    for kind in classes(model.pos):
        text = inspect.getdoc(sys.modules.get(kind.__module__)) or inspect.getdoc(kind)
        if text and text not in found.values():
            found[kind.__name__] = text
    return found


def require_comparable(subjects: Sequence[ModelUnderStudy], option: str) -> None:
    """Raises SettingError where what two models lose can't stand in one picture."""
    first, second = subjects
    names = [
        model_under_study.probe_data.name
        for model_under_study in (first, second)
        if model_under_study.probe_data is not None
    ]
    if _tokens(first.vocabulary) != _tokens(second.vocabulary):
        raise SettingError(option, second.label, f"reads another vocabulary than {first.label}: make a page of each")
    if len(set(names)) > 1:
        raise SettingError(option, second.label, f"was trained on {names[1]}, and {first.label} on {names[0]}")


def _tokens(vocabulary: AnyVocabulary) -> tuple[Any, ...]:
    observed = vocabulary.observed
    names = getattr(vocabulary, "symbols", None) or getattr(getattr(vocabulary, "encoding", None), "name", None)
    return (names, vocabulary.size, None if observed is None else observed.tolist())
