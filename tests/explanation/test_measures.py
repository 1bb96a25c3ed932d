"""What a page about one model is made of: its measures against what is known of them, and the pictures of schemes."""

import pytest
import torch
from common import BOUNDED, REPOSITORY, SCHEMES, UNBOUNDED, compose_config, make_scheme
from foreign_schemes import FastDecay
from runs_to_evaluate import CONTEXT, VOCAB, lively_model, random_text

from poslab import GPT
from poslab.data.tokenizer import Symbols
from poslab.evaluation.pictures import sample_pairs
from poslab.evaluation.probes import Probes
from poslab.explanation import charts, measures
from poslab.explanation.model_under_study import Findings, ModelUnderStudy
from poslab.explanation.probe_data import Questions, of_task, of_text
from poslab.explanation.retrieved import QUERIES, retrieved
from poslab.explanation.sentences import sentences
from poslab.model.memory import MemoryGPT, Retrieval
from poslab.model.memory.retrieval import unit
from poslab.positions import OnText, Strip

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
    probe_data = of_text("text", text, lively_model(UNBOUNDED[0]))
    (some,) = probe_data.questions
    windows = text.unfold(0, CONTEXT + 1, 1)
    found = torch.cat([some.tokens, some.wanted[:, None]], 1)
    assert torch.equal(found[0], windows[0])
    assert torch.equal(found[-1], windows[-1])
    assert all((windows == row).all(1).any() for row in found)
    assert of_text("short", text[:2], lively_model(UNBOUNDED[0])).windows.shape == (2, 1)


@pytest.mark.parametrize("name", ["recall", "addition"])
def test_questions_of_a_task_are_its_own(name: str) -> None:
    task = compose_config(f"data={name}").data
    tokens, targets, positions = task.test(task.lengths[-1])
    for some in of_task(task, GPT(vocab_size=2, embed_dim=4)).questions:
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
        pictures = model.pictures() | model.explanations(sample_pairs(model, random_text(5).long()))
        for picture in pictures.values():
            assert "urprising" in picture.caption or isinstance(picture, Strip), picture.title


def test_strips_and_tables() -> None:
    chips = charts.chips(Strip("", "row", [0, 1, 2, 3, 4], [0, 1, 1, 2, 2]))
    assert chips.chips == [(0, 0, 0), (1, 1, 2), (2, 3, 4)]
    values = torch.tensor([[[0.0, 1.0], [2.0, 4.0]]])  # (1, 2, 2)
    table = charts.cells(OnText("", values), ["a", "b"])
    assert table.rows == [("a", [("0", "0.00"), ("2", "0.50")]), ("b", [("1", "0.25"), ("4", "1.00")])]
    assert (table.layers, table.heads, table.highest) == ([("layer 0", 2)], ["0", "1"], "4")
    many = charts.cells(OnText("", values.expand(20, 2, 2)), ["a", "b"])
    assert many.heads == ["mean"] * 20
    assert many.rows[0][1][0] == ("1", "0.40")
    shares = charts.shares("", "", {"depth_1": {"48": 1.0, "96": 0.256}})
    assert shares.rows == [("depth 1", [("100%", "1.00"), ("26%", "0.26")])]
    assert (shares.layers, shares.heads) == ([("length", 2)], ["48", "96"])


def test_what_is_retrieved() -> None:
    """Memories of the longest document, found by the last tokens of a segment."""
    model = MemoryGPT(retrieval=Retrieval(layer=0, size=2 * CONTEXT + 1, k=3), **SIZES).eval()
    text, ends = random_text(9 * CONTEXT).long(), torch.tensor([CONTEXT, 3 * CONTEXT])
    tokens = of_text("text", text, model, ends).passage
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
    assert of_text("text", text[:CONTEXT], model).passage is None


def test_a_sentence_of_ones_own_retrieves_from_the_text() -> None:
    model = MemoryGPT(retrieval=Retrieval(layer=0), **SIZES)
    text = random_text(5 * CONTEXT + 3).long()
    vocabulary = Symbols(tuple(f"s{n}" for n in range(VOCAB)))
    probe_data = of_text("text", text, model).with_sentence(vocabulary, "s1 s2 s3", CONTEXT)
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
            ["Head 1 of layer 0 cont", "A linear probe reads the", "It uses tokens", "It uses the"],
        ),
        (
            0.05,
            39.0,
            -0.5,
            ["No head continues", "A linear probe cannot read", "Tokens from far back do h", "The"],
        ),
        (0.05, 28.0, 0.0, ["No head continues", "A linear probe reads only roughly", "It makes no use of tokens"]),
    ],
)
def test_findings_are_worded_by_their_sign(share: float, error: float, difference: float, said: list[str]) -> None:
    probes = Probes({"induction": torch.tensor([[0.01, share]])}, {"induction": 0.04}, torch.tensor([40, error]), 33.2)
    moved = torch.tensor([difference, 0.0])
    changed = measures.Ablation(False, [1, 4], moved, moved, torch.full((2,), 0.01))
    ablations = dict.fromkeys(("truncate", "shuffle", "shift"), changed)
    study = ModelUnderStudy("x", GPT(make_scheme(UNBOUNDED[0]), **SIZES), Symbols(("a",)), {}, None)
    _, *found = sentences(Findings(study, {}, {}, {}, None, probes, {}, ablations, None, []))
    for sentence, beginning in zip(found, said, strict=False):
        assert sentence.startswith(beginning)
    assert f"its error is {error:.1f} tokens at best (layer 1), guessing the middle gives 33.2." in found[1]
    ablations["shift"] = measures.Ablation(False, [0], moved[:1] * 0, moved[:1] * 0, torch.zeros(1))
    texts = sentences(Findings(study, {}, {}, {}, None, probes, {}, ablations, None, []))
    assert not any("positions are moved" in text for text in texts)  # there are none to move to
