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
from poslab.explanation.measures import Attention, Trial, attention, cuts, shifts, shuffles, trial
from poslab.explanation.probe_data import Material, Questions
from poslab.explanation.retrieved import Retrieved, retrieved
from poslab.model.decoder import GPT
from poslab.positions import Explanation, OnText, Picture


@dataclass(frozen=True, eq=False)
class Subject:
    """A model in eval mode.

    label: its scheme's name, or what tells it from another of that name. material: None where its text is gone.
    start: its tables before training, as far as known. trained: whether there was any.
    """

    label: str
    model: GPT
    vocabulary: AnyVocabulary
    facts: Mapping[str, str]
    material: Material | None
    start: Mapping[str, Tensor] = field(default_factory=dict)
    trained: bool = True
    notes: list[str] = field(default_factory=list)  # what the page lacks, and why


@dataclass(frozen=True, eq=False)
class Findings:
    """What is known of a subject; `measured` and `trials` are empty where there is no material, or no training."""

    subject: Subject
    pictures: dict[str, Picture]
    starts: dict[str, Picture]
    explanations: dict[str, Explanation]
    descriptions: dict[str, str]  # of the scheme's classes, by their name
    measured: Attention | None
    trials: dict[str, Trial]
    retrieved: Retrieved | None
    notes: list[str]


@torch.no_grad()
def examine(subject: Subject) -> Findings:
    """Asks the scheme for its pictures, and measures what the model does."""
    model, material, notes = subject.model, subject.material, [*subject.notes]
    pictures = model.pictures()
    starts = model.pos.pictures(subject.start, model.shape) if subject.start else {}
    if pictures and subject.trained and not starts:
        notes.append(f"{subject.label}: how its tables were before training, of which its run has kept nothing")
    explanations = _explanations(subject, notes)
    if not pictures and not explanations:
        notes.append(f"{subject.label}: the scheme gives no pictures of itself (its hooks pictures and explain)")
    measured, trials, found = None, {}, None
    if material is not None:
        measured = attention(model, material.windows)
        trials = _trials(model, material) if subject.trained else {}
        found = None if material.passage is None else retrieved(model, material.passage)
    if model.retrieval is not None and material is not None and found is None:
        problem = f"the text has no more than a context of {model.shape.context_length} tokens"
        notes.append(f"{subject.label}: what it retrieves: {problem}")
    if not subject.trained:
        notes.append(f"{subject.label}: what it loses with less context, as it hasn't learned to use any")
    return Findings(subject, pictures, starts, explanations, _descriptions(model), measured, trials, found, notes)


def _explanations(subject: Subject, notes: list[str]) -> dict[str, Explanation]:
    """What the scheme explains; without a text at hand, all but what it says of one. A hook that fails, as a stranger's
    may, costs its pictures and not the page."""
    model, material = subject.model, subject.material
    any_tokens = torch.zeros(min(2, model.shape.context_length), dtype=torch.int64)
    try:
        given = model.explanations(sample_pairs(model, any_tokens if material is None else material.sample))
    except Exception as error:
        problem = " ".join(f"{type(error).__name__}: {error}".split())
        notes.append(f"{subject.label}: what its hook explain would show: {problem}")
        return {}
    return {name: one for name, one in given.items() if material is not None or not isinstance(one, OnText)}


def _trials(model: GPT, material: Material) -> dict[str, Trial]:
    longest = max(some.tokens.shape[-1] for some in material.questions)
    measure = partial(trial, model, exact=material.exact)
    trials = {
        "cut": measure(material.questions, changes=cuts(longest)),
        "shuffled": measure(material.questions, changes=shuffles(longest)),
    }
    shifted = material.questions
    if not material.exact:  # half as long, so that there are positions to move to where they end with the context
        halve = cuts(max(1, longest // 2))[max(1, longest // 2)]
        shifted = [halve(some) for some in material.questions]
    shifted = [_at_drawn_positions(model, some) for some in shifted]
    reach = max(some.tokens.shape[-1] if some.positions is None else int(some.positions.max()) + 1 for some in shifted)
    trials["shifted"] = measure(shifted, changes=shifts(model, reach, 4 * model.shape.context_length))
    return trials


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


def require_comparable(subjects: Sequence[Subject], option: str) -> None:
    """Raises SettingError where what two models lose can't stand in one picture."""
    first, second = subjects
    names = [subject.material.name for subject in (first, second) if subject.material is not None]
    if _tokens(first.vocabulary) != _tokens(second.vocabulary):
        raise SettingError(option, second.label, f"reads another vocabulary than {first.label}: make a page of each")
    if len(set(names)) > 1:
        raise SettingError(option, second.label, f"was trained on {names[1]}, and {first.label} on {names[0]}")


def _tokens(vocabulary: AnyVocabulary) -> tuple[Any, ...]:
    observed = vocabulary.observed
    names = getattr(vocabulary, "symbols", None) or getattr(getattr(vocabulary, "encoding", None), "name", None)
    return (names, vocabulary.size, None if observed is None else observed.tolist())
