"""What a page about one model is made of: its measures against what is known of them, and the pictures of schemes."""

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from common import BOUNDED, REPOSITORY, SCHEMES, UNBOUNDED, compose_config, make_scheme
from foreign_schemes import FastDecay
from runs_to_evaluate import CONTEXT, VOCAB, lively_model, random_text

from poslab import GPT
from poslab.data.tokenizer import Symbols
from poslab.evaluation.pictures import needs_rows, sample_pairs
from poslab.evaluation.probes import Probes
from poslab.explanation import charts, measures
from poslab.explanation.model_under_study import Findings, ModelUnderStudy
from poslab.explanation.probe_data import Questions, task_probes, text_probes
from poslab.explanation.retrieved import QUERIES, retrieved
from poslab.explanation.sentences import sentences, uses_position
from poslab.model.memory import MemoryGPT, Retrieval
from poslab.model.memory.retrieval import unit
from poslab.positions import Curves, OnText, Strip

SIZES = {"vocab_size": VOCAB, "context_length": CONTEXT, "embed_dim": 16, "num_layers": 2, "num_heads": 2}
SHIFTED = [name for name in UNBOUNDED if make_scheme(name).shift_invariant]


def questions(count: int = 6, length: int = CONTEXT) -> list[Questions]:
    texts = random_text(count * (length + 1)).long().view(count, length + 1)
    return [Questions(texts[:, :-1], texts[:, -1])]


def test_attention_that_only_knows_distance() -> None:
    """Shares are the softmax of the bias, with text as without."""
    model = GPT(FastDecay(1.0), **SIZES).eval()
    with torch.no_grad():
        for block in model.blocks:
            block.attention.query_key_value.weight.zero_()
    found = measures.attention(model, random_text(3 * CONTEXT).long().view(3, CONTEXT))
    queries = range(CONTEXT // 2, CONTEXT)
    expected = [
        sum(torch.arange(i, -1, -1).neg().float().softmax(0)[i - d] for i in queries if i >= d)
        / sum(i >= d for i in queries)
        for d in range(CONTEXT)
    ]
    for measured in (found.by_distance, found.alone):
        assert torch.allclose(measured, torch.stack(expected).expand(2, 2, -1), atol=1e-6)
    assert found.reach.tolist() == [[3, 3], [3, 3]]  # 1 - exp(-3) > 0.9
    assert found.even_reach > 3


def test_a_cut_is_a_shorter_text() -> None:
    model = lively_model(UNBOUNDED[0])
    (some,) = questions()
    found = measures.ablation(model, [some], False, measures.truncated, measures.powers(2, CONTEXT))
    assert found.sizes == [1, 2, 4, 8, CONTEXT]
    for size, value in zip(found.sizes, found.values, strict=True):
        with torch.no_grad():
            logits = model(some.tokens[:, -size:])[:, -1]
        assert torch.allclose(value, torch.nn.functional.cross_entropy(logits, some.wanted), atol=1e-5)
    assert found.differences[-1] == found.errors[-1] == 0
    assert found.errors[0] > 0


def test_a_shuffle_keeps_the_last_tokens_and_all_others() -> None:
    (some,) = questions()
    for n in measures.powers(4, CONTEXT):
        changed = measures.shuffled(some, n)
        assert torch.equal(changed.tokens[:, -n:], some.tokens[:, -n:])
        assert torch.equal(changed.tokens.sort().values, some.tokens.sort().values)
        assert torch.equal(changed.tokens, measures.shuffled(some, n).tokens)
        assert n == CONTEXT or not torch.equal(changed.tokens, some.tokens)


@pytest.mark.parametrize("name", SHIFTED)
def test_a_shift_changes_nothing_where_only_distances_count(name: str) -> None:
    model = lively_model(name)
    sizes = measures.offsets(model, CONTEXT, 4 * CONTEXT)
    found = measures.ablation(model, questions(), False, measures.shifted, sizes)
    assert found.sizes == [0, 1, 4, 16, 4 * CONTEXT]
    assert found.differences.abs().max() < 1e-3


@pytest.mark.parametrize("name", BOUNDED)
def test_shifts_end_where_positions_do(name: str) -> None:
    model = lively_model(name)
    known = model.pos.max_length(model.shape)
    sizes = measures.offsets(model, CONTEXT // 2, 9 * known)
    assert max(sizes) + CONTEXT // 2 == known
    measures.ablation(model, questions(length=CONTEXT // 2), False, measures.shifted, sizes)


def test_shares_of_right_answers() -> None:
    model = lively_model(UNBOUNDED[0])
    (some,) = questions()
    with torch.no_grad():
        right = some._replace(wanted=model(some.tokens)[:, -1].argmax(-1))
    wrong = right._replace(wanted=(right.wanted + 1) % VOCAB)
    for share, answered in ((1, right), (0, wrong)):
        assert measures.ablation(model, [answered], True, measures.truncated, [CONTEXT]).values == share


def test_questions_of_a_text_have_a_full_context() -> None:
    text = random_text(5 * CONTEXT).long()
    probe_data = text_probes("text", text, lively_model(UNBOUNDED[0]))
    (some,) = probe_data.questions
    windows = text.unfold(0, CONTEXT + 1, 1)
    found = torch.cat([some.tokens, some.wanted[:, None]], 1)
    assert torch.equal(found[0], windows[0])
    assert torch.equal(found[-1], windows[-1])
    assert all((windows == row).all(1).any() for row in found)
    assert text_probes("short", text[:2], lively_model(UNBOUNDED[0])).windows.shape == (2, 1)


@pytest.mark.parametrize("name", ["recall", "addition"])
def test_questions_of_a_task_are_its_own(name: str) -> None:
    task = compose_config(f"data={name}").data
    tokens, targets, positions = task.test(task.lengths[-1])
    for some in task_probes(task, GPT(vocab_size=2, embed_dim=4)).questions:
        place = some.tokens.shape[1] - 1
        for row, wanted in zip(some.tokens, some.wanted, strict=True):
            rows = (tokens[:, : place + 1] == row).all(1)
            assert wanted in targets[rows, place]
        assert (some.positions is None) == (positions is None)


@pytest.mark.parametrize("name", SCHEMES)
def test_every_picture_has_a_caption(name: str) -> None:
    """Schemes that the README lists have captions; a stranger's may do without."""
    model = lively_model(name)
    if f"\n| `{name}` |" in (REPOSITORY / "src/poslab/positions/README.md").read_text(encoding="utf-8"):
        pictures = model.position.pictures() | model.position.explanations(sample_pairs(model, random_text(5).long()))
        for picture in pictures.values():
            assert "urprising" in picture.caption or isinstance(picture, Strip), picture.title


def test_strips_and_tables() -> None:
    chips = charts.chips(Strip("", "row", [0, 1, 2, 3, 4], [0, 1, 1, 2, 2]))
    assert chips.chips == [(0, 0, 0), (1, 1, 2), (2, 3, 4)]
    values = torch.tensor([[[0.0, 1.0], [2.0, 4.0]]])  # (1, 2, 2)
    table = charts.on_text(OnText("", values), ["a", "b"])
    first, second = table.rows
    assert first == ("layer 0, head 0", [("0", "0.00"), ("1", "0.25")])
    assert second == ("layer 0, head 1", [("2", "0.50"), ("4", "1.00")])
    assert (table.columns, table.highest) == (["a", "b"], "4")
    many = charts.on_text(OnText("", values.expand(20, 2, 2)), ["a", "b"])
    assert [name for name, _ in many.rows] == [f"layer {n}, mean" for n in range(20)]
    assert many.rows[0][1] == [("1", "0.40"), ("2.5", "1.00")]
    shares = charts.heat("", "", [("length", 2)], ["48", "96"], {"depth 1": [1.0, 0.256]}, 1.0, share=True)
    assert shares.rows == [("depth 1", [("100%", "1.00"), ("26%", "0.26")])]


def test_a_table_of_many_heads_has_a_row_for_each_layer() -> None:
    shares = {"previous_token": torch.tensor([[0.1, 0.6], [0.2, 0.3]]).repeat(1, 13)}
    table = charts.head_table("", "", shares)
    assert [name for name, _ in table.rows] == ["layer 0, highest", "layer 1, highest"]
    assert [cells[0][0] for _, cells in table.rows] == ["60%", "30%"]


@pytest.mark.parametrize(("lines", "panels"), [(1, 1), (3, 1), (4, 4), (12, 12)])
def test_many_curves_have_a_panel_each(lines: int, panels: int) -> None:
    values = torch.randn(lines, 40)
    curves = Curves("Bias", "distance", "bias", [*range(40)], {f"head {n}": line for n, line in enumerate(values)})
    chart = charts.picture_chart(curves, "#0072b2")
    assert len(chart.panels) == panels
    named = [name for panel in chart.panels for name, _ in panel.data["lines"]]
    assert [panel.title for panel in chart.panels if panel.title] == ([*curves.lines] if panels > 1 else [])
    assert named == ([*curves.lines] if lines == 3 else [""] * panels)
    assert not needs_rows([curves])
    assert needs_rows([curves] * 25)
    assert len(charts.picture_chart(curves, "#0072b2", as_rows=True).panels) == 1


@pytest.mark.parametrize(("layers", "heads", "panels"), [(2, 3, 6), (3, 12, 3)])
def test_attention_by_distance_has_its_value_at_each_distance(layers: int, heads: int, panels: int) -> None:
    """In a panel for each head or, of many, for each layer."""
    by_distance = torch.rand(layers, heads, 40)
    even, reach = torch.full((40,), 0.025), torch.full((layers, heads), 7)
    measured = measures.AttentionMeasures(by_distance, by_distance / 2, even, reach, 30, torch.zeros(layers, heads))
    chart = charts.attention_chart("Attention", measured, "#0072b2", charts.limits_of_weights([measured]))
    assert len(chart.panels) == panels
    last = chart.panels[-1]
    name, values = last.data["lines"][0 if panels == layers * heads else heads - 1]
    assert name == ("text" if panels == layers * heads else f"head {heads - 1}")
    assert values == pytest.approx(by_distance[-1, -1, last.data["at"]].tolist(), rel=0.01)
    assert last.data["x"] == sorted(last.data["x"])
    assert measured.sharpest.weight == float(by_distance[..., :20].max())


def test_what_is_retrieved() -> None:
    """Memories of the longest document, found by the last tokens of a segment."""
    model = MemoryGPT(retrieval=Retrieval(layer=0, size=2 * CONTEXT + 1, k=3), **SIZES).eval()
    text, ends = random_text(9 * CONTEXT).long(), torch.tensor([CONTEXT, 3 * CONTEXT])
    tokens = text_probes("text", text, model, ends).passage
    assert torch.equal(tokens, text[3 * CONTEXT : 7 * CONTEXT])
    found = retrieved(model, tokens)
    assert found.gates.tolist() == [0.5, 0.5]
    assert found.queries == list(range(3 * CONTEXT, 4 * CONTEXT))[-QUERIES:]
    block = model.blocks[0]
    with torch.no_grad():
        q, k, _ = block.attention.queries_keys_values(block.attention_norm(model.token_embedding(tokens[None])))
    first = CONTEXT - 1  # of those that are remembered
    scores = (unit(q) @ unit(k).mT)[0, :, found.queries, first : 3 * CONTEXT]  # (H, T, N)
    assert torch.allclose(scores.topk(3).values, scores.gather(-1, found.indices - first), atol=1e-6)
    assert torch.allclose(found.weights.sum(-1), torch.ones(()), atol=1e-6)
    assert found.weights.diff().max() <= 0
    assert min(found.queries) - 3 * CONTEXT < found.median_distance <= 3 * CONTEXT
    assert text_probes("text", text[:CONTEXT], model).passage is None


def test_a_sentence_of_ones_own_retrieves_from_the_text() -> None:
    model = MemoryGPT(retrieval=Retrieval(layer=0), **SIZES)
    text = random_text(5 * CONTEXT + 3).long()
    vocabulary = Symbols(tuple(f"s{n}" for n in range(VOCAB)))
    probe_data = text_probes("text", text, model).with_sentence(vocabulary, "s1 s2 s3", CONTEXT)
    assert torch.equal(probe_data.passage, torch.cat([text[: 5 * CONTEXT], torch.tensor([1, 2, 3])]))


def test_answers_beyond_the_context_are_read_in_segments() -> None:
    model = MemoryGPT(memory_length=4, **SIZES).eval()
    (some,) = questions(3, 2 * CONTEXT + 1)
    found = measures.ablation(model, [some], False, measures.truncated, [2 * CONTEXT + 1])
    logits = model.hidden_in_segments(some.tokens)[0][:, -1] @ model.token_embedding.weight.T
    assert torch.allclose(found.values[-1], torch.nn.functional.cross_entropy(logits, some.wanted), atol=1e-5)


@pytest.mark.parametrize(
    ("share", "error", "difference", "said"),
    [
        (
            0.30,
            4.0,
            0.5,
            ["Head 1 of layer 0 cont", "A linear probe reads the", "It needs", "It needs"],
        ),
        (
            0.05,
            39.0,
            -0.5,
            ["No head continues", "A linear probe cannot read", "Tokens farther back do h", "The order"],
        ),
        (0.05, 28.0, 0.0, ["No head continues", "A linear probe reads only roughly", "It makes no use of tokens"]),
    ],
)
def test_findings_are_worded_by_their_sign(share: float, error: float, difference: float, said: list[str]) -> None:
    probes = Probes({"induction": torch.tensor([[0.01, share]])}, {"induction": 0.04}, torch.tensor([40, error]), 33.2)
    moved = torch.tensor([difference, 0.0, 0.0])
    changed = measures.Ablation(False, [1, 4, 16], moved, moved, torch.full((3,), 0.01))
    ablations = dict.fromkeys(("truncate", "shuffle", "shift"), changed)
    study = ModelUnderStudy("x", GPT(make_scheme(UNBOUNDED[0]), **SIZES), Symbols(("a",)), {}, None)
    found = sentences(Findings(study, {}, {}, {}, None, probes, {}, ablations, None, [])).others
    for name, beginning in zip(("heads", "position", "truncate", "shuffle"), said, strict=False):
        assert found[name].startswith(beginning)
    assert f"{error:.1f} tokens at best (after 1 layer), guessing the middle gives 33.2" in found["position"]
    ablations["shift"] = measures.Ablation(False, [0], moved[:1] * 0, moved[:1] * 0, torch.zeros(1))
    without = sentences(Findings(study, {}, {}, {}, None, probes, {}, ablations, None, [])).others
    assert "shift" not in without  # because there are none to move to


@pytest.mark.parametrize(
    ("exact", "difference", "error", "moved", "uses"),
    [
        (False, 0.01, 0.005, 0.0, False),
        (False, 0.5, 0.005, 0.0, True),
        (False, 0.01, 0.1, 0.0, True),  # too few questions to say that it makes no use of position
        (False, 0.0, 0.005, 0.5, True),  # places count, although the order doesn't
        (True, -0.02, 0.02, 0.0, False),
        (True, -0.8, 0.02, 0.0, True),
    ],
)
def test_no_use_of_position_is_said_where_it_is_shown(
    exact: bool, difference: float, error: float, moved: float, uses: bool
) -> None:
    def ablation(value: float, of: float) -> measures.Ablation:
        values = torch.tensor([value, 0.0])
        return measures.Ablation(exact, [1, 4], values + 0.5, values, torch.tensor([of, 0.0]))

    ablations = {"truncate": ablation(0.9, 0.01), "shuffle": ablation(difference, error), "shift": ablation(moved, 0.0)}
    assert uses_position(ablations) is uses
    study = ModelUnderStudy("x", GPT(make_scheme(UNBOUNDED[0]), **SIZES), Symbols(("a",)), {}, None)
    said = sentences(Findings(study, {}, {}, {}, None, None, {}, ablations, None, []))
    assert bool(said.warning) is not uses


@pytest.mark.parametrize(
    ("exact", "differences", "claim", "last"),
    [
        (False, [0.5, 0.2, 0.0, 0.0, 0.0], "It needs no more than the last 4", 4),
        (True, [-0.9, -0.9, -0.9, 0.0, 0.0], "It needs no more than the last 8", 8),
        (False, [0.5, 0.4, 0.3, 0.2, 0.0], "It uses tokens from far back", 16),
        (True, [-0.1, 0.1, 0.0, 0.0, 0.0], "Tokens farther back do harm", 4),
        (False, [0.0, 0.0, 0.0, 0.0, 0.0], "It makes no use", 1),
    ],
)
def test_how_far_back_a_model_looks_is_said_by_where_differences_end(
    exact: bool, differences: list[float], claim: str, last: int
) -> None:
    changes = torch.tensor(differences)
    cut = measures.Ablation(exact, [1, 2, 4, 8, 16], changes + 1, changes, torch.full((5,), 0.01))
    model = GPT(make_scheme(UNBOUNDED[0]), **SIZES)
    said = sentences(findings_of(model, dict.fromkeys(("truncate", "shuffle", "shift"), cut)))
    assert said.others["truncate"].startswith(claim)
    assert f"n = {last}" in said.others["truncate"]
    assert "order" in said.others["shuffle"].partition(":")[0]
    assert f"n = {last}" in said.others["shuffle"]


def findings_of(model: GPT, ablations: dict[str, measures.Ablation], **parts: Any) -> Findings:
    study = ModelUnderStudy("x", model, Symbols(("a",)), {}, None, **parts)
    return Findings(study, {}, {}, {}, None, None, {}, ablations, None, [])


@pytest.mark.parametrize(("name", "layers", "blind"), [("nope", 1, True), ("nope", 2, False), ("absolute", 1, False)])
def test_a_layer_that_cannot_know_order_is_said_to(name: str, layers: int, blind: bool) -> None:
    """By what it is: with the last token in its place, shuffling those before changes nothing, to rounding."""
    model = GPT(make_scheme(name), **SIZES | {"num_layers": layers}).eval().double()
    tokens = random_text(CONTEXT).long()[None]
    order = [*torch.randperm(CONTEXT - 1, generator=torch.Generator().manual_seed(0)), CONTEXT - 1]
    with torch.no_grad():
        change = (model(tokens) - model(tokens[:, order]))[0, -1].abs().max()
    assert bool(sentences(findings_of(model, {})).reason) is blind is bool(change < 1e-9)


def test_a_peak_names_its_distance_and_the_heads_that_share_it() -> None:
    by_distance = torch.full((1, 4, 20), 0.02)
    by_distance[0, :3, 3] = torch.tensor([0.5, 0.6, 0.4])
    by_distance[0, 3, 1] = 0.3
    even, reach = torch.full((20,), 0.05), torch.tensor([[15, 16, 17, 18]])
    measured = measures.AttentionMeasures(by_distance, by_distance, even, reach, 18, torch.zeros(1, 4))
    findings = findings_of(GPT(make_scheme(UNBOUNDED[0]), **SIZES), {})
    said = sentences(replace(findings, measured=measured))
    assert re.search(r"Head 1 of layer 0 has 60%.* 3 back; 3 of 4 heads", said.answer)
    assert re.search(r"^Attention peaks .* 3 back \(60%", said.others["reach"])


def test_shares_and_losses_of_few_questions_stand_beside_what_they_are_to_be_compared_with() -> None:
    """A share of right answers beside that of guessing, a loss beside that of the whole validation part."""
    model, zeros = GPT(make_scheme(UNBOUNDED[0]), **SIZES), torch.zeros(2)
    for exact, said in ((True, "21% of its answers are right (guessing: 7%)"), (False, "2.03 on the whole validation")):
        same = measures.Ablation(exact, [1, 2], torch.full((2,), 0.21), zeros, zeros)
        findings = findings_of(model, dict.fromkeys(("truncate", "shuffle", "shift"), same), validation_loss=2.034)
        study = replace(findings.study, probe_data=text_probes("text", random_text(5 * CONTEXT), model))
        by_length = {"accuracy_chance": {str(CONTEXT): 0.07, "96": 0.01}} if exact else {}
        assert said in sentences(replace(findings, study=study, by_length=by_length)).answer
