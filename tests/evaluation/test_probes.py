"""The speaker probe: which tokens are a speaker's name, how far back it stood before, and what comes of their loss."""

import re
from pathlib import Path

import pytest
import tiktoken
import torch
from common import ENDLESS, REPOSITORY
from runs_to_evaluate import CONTEXT, VOCAB, lively_model, random_text
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from poslab.comparison import figures
from poslab.data.tokenizer import Characters
from poslab.data.vocabulary import Vocabulary, observed_ids
from poslab.evaluation.files import Text, write_evaluation
from poslab.evaluation.losses import evaluate, sliding_token_losses
from poslab.evaluation.probes import NEVER, places_in, speakers
from poslab.runs.evaluation import read_evaluation

SHAKESPEARE = (REPOSITORY / "data" / "tinyshakespeare.txt").read_text()


def characters(text: str) -> list[bytes]:
    return [character.encode() for character in text]


def play(*speeches: tuple[str, int]) -> str:
    """Speeches of so many characters."""
    return "\n\n".join(f"{name}:\n{'w' * words}" for name, words in speeches)


def test_names_by_the_distance_to_the_last_one() -> None:
    text = play(("ANNA", 40), ("BEN", 300), ("ANNA", 2000), ("BEN", 5), ("ANNA", 5), *[("CY", 1)] * 6)
    bins = speakers(characters(text))
    assert list(bins) == ["< 64", "256 to 512", "≥ 1024", NEVER]
    named = {name: "".join(text[i] for i in numbers) for name, numbers in bins.items()}
    assert named == {
        NEVER: "NNA:BEN:CY:",  # nothing predicts the first token of all
        "256 to 512": "ANNA:",
        "≥ 1024": "BEN:ANNA:",
        "< 64": "CY:" * 5,
    }


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_what_a_head_is(end: str) -> None:
    no_heads = ["Not:a head", "  : ", "word: and more", "a\nname:\nin a paragraph", f"{'long ' * 9}:\nx"]
    heads = [f"N{i}:\nwords" for i in range(6)] * 2
    text = "\n\n".join([*no_heads, *heads]).replace("\n", end)
    bins = speakers(characters(text))
    assert "".join(text[i] for i in bins[NEVER]) == "".join(f"N{i}:" for i in range(6))


def test_a_text_without_speeches_has_no_such_places() -> None:
    assert speakers(characters((REPOSITORY / "data" / "the-verdict.txt").read_text())) == {}
    assert speakers([]) == {}
    classes = "\n\n".join(f"class A{i}:\n    pass\n\ntry:\n    pass" for i in range(30))
    assert speakers(characters(classes.replace("try:", "tried = 1"))) == {}  # names that never come again


def test_shakespeare_by_character_and_by_token(gpt2: tiktoken.Encoding) -> None:
    """The text's own statistics: 41 % of names that come again do so within 256 characters."""
    text = SHAKESPEARE[:100_000]
    tokens = torch.tensor(gpt2.encode_ordinary(text), dtype=torch.int32)
    by_token = places_in(tokens, Vocabulary(gpt2))["speakers"]
    pieces = [gpt2.decode_single_token_bytes(int(token)) for token in tokens]
    named = {"".join(pieces[i].decode() for i in numbers) for numbers in by_token.values()}
    assert all(re.fullmatch(r"([A-Za-z ,&]*:)+", names) for names in named)
    codes = torch.tensor(Characters().encode_ordinary(SHAKESPEARE), dtype=torch.int32)
    observed = Vocabulary(Characters(), observed_ids(codes))
    bins = {name: len(of) for name, of in places_in(observed.narrow(codes), observed)["speakers"].items()}
    again = sum(count for name, count in bins.items() if name != NEVER)
    within = sum(bins[name] for name in ("< 64", "64 to 128", "128 to 256"))
    assert within / again == pytest.approx(0.41, abs=0.01)


def test_losses_of_a_probe_are_those_of_its_tokens(tmp_path: Path) -> None:
    model, tokens = lively_model(ENDLESS), random_text(90)
    places = {"speakers": {"< 64": [1, 7, 89], NEVER: [40]}}
    found = evaluate(model, tokens, [4, CONTEXT], probes=places)
    assert found.probe_tokens == {"speakers": {"< 64": 3, NEVER: 1}}
    for result in found.lengths:
        losses = sliding_token_losses(model, tokens, result.length, result.stride)
        assert result.probes["speakers"]["< 64"] == pytest.approx(float(losses[[0, 6, 88]].mean()))
        assert result.probes["speakers"][NEVER] == pytest.approx(float(losses[39]))
    assert write_evaluation(tmp_path, Text("a play", "abc", tokens), found) == read_evaluation(tmp_path) == found
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    shown = [event.step for event in events.Scalars(f"speakers_by_length/{NEVER}")]
    assert shown == [4, CONTEXT]
    figure = figures.probe_figure("speakers", {"a": [found], "b": [found]}, figures.styles_of(["a", "b"]))
    assert [axes.get_title() for axes in figure.axes] == [f"Windows of {CONTEXT}"]
    assert figure.axes[0].lines[0].get_xydata()[:, 1].tolist() == list(found.lengths[-1].probes["speakers"].values())
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["< 64", NEVER]


def test_without_a_probe_nothing_is_new() -> None:
    found = evaluate(lively_model(ENDLESS), torch.randint(0, VOCAB, (40,)), [4])
    assert (found.probe_tokens, found.lengths[0].probes) == ({}, {})
    assert "probe_tokens" not in found.plain()
