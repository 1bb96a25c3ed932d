"""Every task against an oracle written from its definition, which reads one example after the other, by name."""

import dataclasses
from collections import Counter as Count

import pytest
import torch
from common import REPOSITORY, TASKS, make_task
from omegaconf import OmegaConf
from refusals import refused

from poslab.config.files import CONFIGS
from poslab.errors import SettingError
from poslab.tasks.addition import Addition
from poslab.tasks.base import IGNORED, Examples, Task
from poslab.tasks.bits import Majority
from poslab.tasks.fixed_distance import Back, Indirect
from poslab.tasks.needle import Needle
from poslab.tasks.recall import DistantRecall, Recall
from poslab.tasks.state_tracking import Counter, FlipFlop
from poslab.tasks.transcription import Copy, Transcription

LENGTHS = {"min_length": 4, "max_length": 8, "test_lengths": [8, 12]}


# The oracles: (what is read, settings) -> {place: answer}. Of a line that is written, `reads` holds the answer, too,
# one token after its question: they compute it from what stands before SEP only.


def _written(reads: list[str], answer: list[str], sep: str = "SEP") -> dict[int, str]:
    first = reads.index(sep)
    assert reads[first + 1 :] == answer
    return {first + i: symbol for i, symbol in enumerate([*answer, "EOS"])}


def _line(reads: list[str], task: Transcription) -> list[str]:
    begin, *line = reads[: reads.index("SEP")]
    assert begin == "BOS"
    assert len({*line}) == len(line) or not task.unique
    return line


def _back(reads: list[str], task: Back) -> dict[int, str]:
    if task.match:
        return {i: "=" if reads[i] == reads[i - task.steps] else "!=" for i in range(task.steps, len(reads))}
    return {i: reads[i - task.steps] for i in range(task.steps, len(reads))}


def _indirect(reads: list[str], task: Indirect) -> dict[int, str]:
    line, questions = reads[: -2 * task.questions], reads[-2 * task.questions :]
    assert len({*line}) == len(line)
    assert len({*questions[::2]}) == task.questions
    answers = {}
    for i in range(0, 2 * task.questions, 2):
        place = line.index(questions[i]) + int(questions[i + 1])
        assert abs(int(questions[i + 1])) <= task.shift
        assert place >= 0
        answers[len(line) + i + 1] = line[place]
    return answers


def _majority(reads: list[str], task: Task) -> dict[int, str]:
    *bits, sep = reads
    assert sep == "SEP"
    return {len(bits): "1" if bits.count("1") > bits.count("0") else "0"}


def _parity(reads: list[str], task: Task) -> dict[int, str]:
    return {len(reads) - 1: str(reads.count("1") % 2)}


def _recall(reads: list[str], task: Recall) -> dict[int, str]:
    pairs = dict(zip(reads[: 2 * task.pairs : 2], reads[1 : 2 * task.pairs : 2], strict=True))  # the last of each key
    assert len(pairs) == task.pairs - task.repeated
    asked = {i: pairs[word] for i, word in enumerate(reads) if i >= 2 * task.pairs and word in pairs}
    assert len(asked) == len(pairs)
    return asked


def _distant_recall(reads: list[str], task: DistantRecall) -> dict[int, str]:
    facts = {word.partition("=")[0]: i for i, word in enumerate(reads) if "=" in word}
    asked = {i: reads[facts[word[:-1]]] for i, word in enumerate(reads) if word[-1] == "?"}
    assert len(facts) == len(asked) == task.facts
    assert all(i - facts[reads[i][:-1]] == len(reads) - task.lead - task.facts for i in asked)  # the gap
    return asked


def _needle(reads: list[str], task: Needle) -> dict[int, str]:
    text, questions = reads[: -task.needles], reads[-task.needles :]
    assert len({*questions}) == task.needles
    assert sorted(questions) == sorted(word for word in text if word[0] == "k")
    assert sum(word[0] == "v" for word in text) == task.needles
    return {len(text) + i: text[text.index(key) + 1] for i, key in enumerate(questions)}


def _flip_flop(reads: list[str], task: FlipFlop) -> dict[int, str]:
    assert reads[0] == "w"
    assert reads[-2] == "r"
    answers = {}
    for i in range(0, len(reads), 2):
        if reads[i] == "w":
            memory = reads[i + 1]
        if reads[i] == "r":
            answers[i] = memory
            assert reads[i + 1] == memory
    return answers


def _counter(reads: list[str], task: Counter) -> dict[int, str]:
    values = Count[str]()
    for word in reads[:-1]:
        if word.endswith("=0"):
            values[word[0]] = 0
        if word.endswith("++"):
            values[word[0]] = min(task.highest, values[word[0]] + 1)
    assert reads[-1].endswith("?")
    return {len(reads) - 1: str(values[reads[-1][0]])}


def _missing_duplicate(reads: list[str], task: Task) -> dict[int, str]:
    half = (len(reads) - 1) // 2
    first, second = reads[:half], reads[half:-1]
    assert Count(reads)["?"] == 1
    (answer,) = ({a, b} - {"?"} for a, b in zip(first, second, strict=True) if "?" in (a, b))
    assert all(a == b for a, b in zip(first, second, strict=True) if "?" not in (a, b))
    return {len(reads) - 1: answer.pop()}


def _addition(reads: list[str], task: Addition) -> dict[int, str]:
    first, second = "".join(reads[1 : reads.index("=")]).split("+")
    assert len(first) == len(second)
    total = int(first[::-1]) + int(second[::-1])
    return _written(reads, list(str(total).zfill(len(first) + 1)[::-1]), "=")


ORACLES = {
    "addition": _addition,
    "back": _back,
    "distant_recall": _distant_recall,
    "copy": lambda reads, task: _written(reads, _line(reads, task)),
    "copy_repeats": lambda reads, task: _written(reads, _line(reads, task)),
    "counter": _counter,
    "flip_flop": _flip_flop,
    "indirect": _indirect,
    "majority": _majority,
    "missing_duplicate": _missing_duplicate,
    "parity": _parity,
    "needle": _needle,
    "recall": _recall,
    "reverse": lambda reads, task: _written(reads, _line(reads, task)[::-1]),
    "sort": lambda reads, task: _written(reads, list(map(str, sorted(map(int, _line(reads, task)))))),
}


def _rows(task: Task, examples: Examples) -> list[tuple[list[str], dict[int, str]]]:
    rows = zip(examples.tokens.tolist(), examples.targets.tolist(), strict=True)
    names = task.symbols
    return [
        ([names[i] for i in tokens], {i: names[t] for i, t in enumerate(targets) if t != IGNORED})
        for tokens, targets in rows
    ]


def test_majority_has_any_number_of_ones_as_often() -> None:
    of_length = {"min_length": 1, "max_length": 25, "test_lengths": [25]}
    for uniform_ones in (True, False):
        ones = Majority(**of_length, uniform_ones=uniform_ones).test(25).tokens[:, :-1].sum(1)
        far = (ones - 12.5).abs().mean().item()
        assert far == pytest.approx(6.5 if uniform_ones else 2.0, abs=0.4)  # of all numbers, and of 25 coins
        assert (ones.bincount(minlength=26) > 5).all() == uniform_ones


OTHER_SETTINGS = [
    ("back", {"match": True, "steps": 5, "vocabulary": 3}),
    ("copy", {"vocabulary": 60}),  # as many as the longest line has
    ("indirect", {"vocabulary": 52, "shift": 15, "questions": 1, "max_length": 40, "test_lengths": [52]}),
    ("recall", {"repeated": 2}),
]


@pytest.mark.parametrize(("name", "settings"), [*((name, {}) for name in TASKS), *OTHER_SETTINGS])
def test_every_answer_is_the_oracles(name: str, settings: dict[str, object]) -> None:
    task = make_task(name, **settings)
    generator = torch.Generator().manual_seed(7)
    for length in {task.lengths[0], task.lengths[-1], *task.test_lengths}:
        for variant in (task, *task.shifts().values()):
            examples = variant.batch(generator, 20, length)
            assert examples.tokens.shape == examples.targets.shape == (20, task.tokens(length))
            assert examples.tokens.dtype == examples.targets.dtype == torch.int64
            for reads, says in _rows(task, examples):
                assert says == ORACLES[name](reads, variant)


@pytest.mark.parametrize("name", TASKS)
def test_examples_are_a_function_of_seed_and_step(name: str) -> None:
    task = make_task(name)
    again, other = task.training(1, 5), task.training(1, 6)
    torch.rand(3)  # torch's own generator has no part in it
    assert torch.equal(task.training(1, 5).tokens, again.tokens)
    assert torch.equal(task.training(1, 5).targets, again.targets)
    assert not torch.equal(task.training(2, 5).tokens, again.tokens)
    assert not torch.equal(other.tokens, again.tokens)
    assert len(again.tokens) == task.batch_size
    test = task.test(task.test_lengths[0])
    assert len(test.tokens) == 512
    assert torch.equal(test.tokens, task.test(task.test_lengths[0]).tokens)
    of_seeds = [task.test(task.test_lengths[0], seed).tokens for seed in (1, 1, 2)]
    assert torch.equal(*of_seeds[:2])
    assert not torch.equal(*of_seeds[1:])
    assert not torch.equal(of_seeds[0], test.tokens)


def test_tests_are_not_of_training() -> None:
    """Lines of eight of 64 symbols: none of a test is among thousands that are read in training."""
    task = make_task("copy", min_length=8, max_length=8, test_lengths=[8])
    tested = set(map(tuple, torch.cat([task.test(8).tokens, *(e.tokens for e in task.validation())]).tolist()))
    for seed in range(20):
        for step in range(20):
            assert not tested & set(map(tuple, task.training(seed, step).tokens.tolist()))


@pytest.mark.parametrize("name", TASKS)
def test_training_draws_all_lengths_of_the_range_and_no_others(name: str) -> None:
    task = dataclasses.replace(make_task(name), batch_size=1)
    drawn = {task.training(1, step).tokens.shape[1] for step in range(20 * len(task.lengths))}
    assert drawn == {task.tokens(length) for length in task.lengths}
    assert task.lengths[0] >= task.min_length
    assert task.lengths[-1] <= task.max_length
    in_range = [examples.tokens.shape[1] for examples in task.validation()]
    assert set(in_range) <= drawn
    assert max(in_range) == max(drawn)
    assert len(in_range) <= 8


# Of the answers in the range, by the best that doesn't look: known where symbols are equally likely.
CHANCE = {
    "back": 1 / 16,
    "majority": 1 / 2,
    "parity": 1 / 2,
    "indirect": 1 / 12,
    "recall": 1 / 30,
    "distant_recall": 1 / 120,
    "needle": 1 / 16,
    "flip_flop": 1 / 2,
}
CHANCE |= {"missing_duplicate": 1 / 2, "copy": 1 / 31, "sort": 1 / 31}  # of a line of 30, EOS


@pytest.mark.parametrize("name", CHANCE)
def test_chance_is_what_counting_symbols_gives(name: str) -> None:
    task = make_task(name)
    targets = task.test(task.max_length - (name == "majority") * (task.max_length + 1) % 2).targets
    asked = targets[targets != IGNORED]
    share = float(asked.bincount().max() / len(asked))
    assert share == pytest.approx(CHANCE[name], abs=3 * (CHANCE[name] / len(asked)) ** 0.5 + 0.01)


def test_a_segment_may_end_anywhere_between_a_pair_and_its_question() -> None:
    task = DistantRecall(min_length=8, max_length=8, test_lengths=[8, 40])
    asked = task.test(8).targets != IGNORED
    assert {int(row.nonzero()[0]) - 8 for row in asked} == set(range(task.lead + 1))  # facts of the 512 examples


def test_what_reads_in_segments_needs_no_context_for_its_examples() -> None:
    task = DistantRecall(min_length=8, max_length=96, test_lengths=[1000])
    task.check(context_length=4, positions=4)
    whole = Back(min_length=8, max_length=96, test_lengths=[96])
    with refused("max_length", "96", "96"):
        whole.check(context_length=4, positions=None)


def test_depths_of_recall_are_quarters_of_what_follows_the_pairs() -> None:
    task = Recall(min_length=16, max_length=48, test_lengths=[48])
    parts = task.parts(task.test(48))
    assert [int(mask[0].sum()) for mask in parts.values()] == [10, 10, 10, 10]
    assert not any(mask[:, :8].any() for mask in parts.values())
    assert parts["depth_1"][:, 8:18].all()
    assert parts["depth_4"][:, 38:].all()


def test_a_needle_is_at_any_depth_and_counts_at_the_one_where_it_begins() -> None:
    task = make_task("needle")
    examples = task.test(84)  # 80 tokens and four questions: ten tokens are a depth
    depths = torch.stack([*task.parts(examples).values()])  # (8, B, T)
    asked = examples.targets != IGNORED
    assert torch.equal(depths.sum(0), asked.long())
    assert (depths.sum((1, 2)) / asked.sum()).sub(1 / 8).abs().max() < 0.03
    for tokens, of_depths in zip(examples.tokens.tolist(), depths.transpose(0, 1), strict=True):
        for place in range(80, 84):
            assert of_depths[:, place].nonzero().item() == tokens.index(tokens[place]) // 10


def test_repeated_keys_are_a_part() -> None:
    task = make_task("recall", repeated=1)
    examples = task.test(48)
    part = task.parts(examples)["repeated"] & (examples.targets != IGNORED)
    assert (part.sum(1) == 1).all()
    for (reads, says), mask in zip(_rows(task, examples), part, strict=True):
        (place,) = (i for i in says if reads[: 2 * task.pairs].count(reads[i]) == 2)
        assert mask[place]


def test_all_shifts_are_asked_for_and_half_of_the_symbols_match() -> None:
    task = make_task("indirect", test_lengths=[40], vocabulary=52, shift=3)
    shifts = task.test(40).tokens[:, 41::2].flatten() - task.vocabulary
    shares = shifts.bincount(minlength=7) / len(shifts)
    assert shares.sub(1 / 7).abs().max() < 0.04  # fewer of the far ones, which the ends of a line don't have
    examples = make_task("back", match=True, vocabulary=5).test(64)
    matches = (examples.targets[:, 3:] == 5).float().mean()
    assert float(matches) == pytest.approx(0.5, abs=0.02)
    shares = examples.tokens.flatten().bincount(minlength=5) / examples.tokens.numel()
    assert shares.sub(1 / 5).abs().max() < 0.02


def test_shifts_change_the_density_and_nothing_else() -> None:
    ignored = {name: _share_of(task, "i") for name, task in make_task("flip_flop").shifts().items()}
    assert ignored["sparse"] > 0.9 > 0.2 > ignored["dense"]
    passed = {name: _share_of(task, "pass") for name, task in make_task("counter").shifts().items()}
    assert passed["sparse"] > 0.88 > 0.8 > passed["dense"]


def _share_of(task: Task, symbol: str) -> float:
    tokens = task.test(task.max_length).tokens
    instructions = tokens[:, ::2] if symbol == "i" else tokens
    return float((instructions == task.symbols.index(symbol)).float().mean())


def test_coupled_digits_share_a_position() -> None:
    task = Addition(coupled=True, positions=20, **LENGTHS)
    examples = task.test(8)
    assert examples.positions.shape == examples.tokens.shape
    for row in examples.positions.tolist():
        start = row[1] - 1
        assert row == [0, *range(start + 1, start + 9), *range(start, start + 9), *range(start, start + 10)]
    assert int(examples.positions[:, -1].max()) == 19
    assert int(examples.positions[:, 1].min()) == 2
    assert Addition(**LENGTHS).test(8).positions is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Copy(vocabulary=64, min_length=1, max_length=30, test_lengths=[70]), "vocabulary=64: lines of 70"),
        (lambda: Back(steps=0, match=True, **LENGTHS), "steps=0: must be at least 1"),
        (lambda: Indirect(vocabulary=11, **LENGTHS), "vocabulary=11: lines of 12 need as many different symbols"),
        (lambda: Indirect(questions=5, **LENGTHS), "questions=5: need as many different symbols, and a line has 4"),
        (lambda: Recall(repeated=3, **LENGTHS), "repeated=3: must be at most half of pairs=4"),
        (lambda: Back(steps=4, **LENGTHS), "steps=4: nothing is asked within length 4"),
        (lambda: Back(**LENGTHS | {"min_length": 9}), "max_length=8: must be at least min_length=9"),
        (lambda: Back(**LENGTHS | {"test_lengths": []}), "test_lengths=[]: needs at least one"),
        (lambda: Back(batch_size=0, **LENGTHS), "batch_size=0: must be at least 1"),
        (lambda: Majority(**LENGTHS), "test_lengths=[8,12]: 8: lengths must be at least 1 and odd"),
        (lambda: Majority(min_length=8, max_length=8, test_lengths=[9]), "max_length=8: leaves no length to train on"),
        (lambda: FlipFlop(**LENGTHS | {"test_lengths": [9]}), "[9]: 9: lengths must be at least 4 and even"),
        (lambda: FlipFlop(ignore=1.5, **LENGTHS), "ignore=1.5: must be a share"),
        (lambda: Recall(**LENGTHS), "pairs=4: they take 12 tokens, each key asked once, more than length 4"),
        (lambda: Needle(**LENGTHS), "needles=4: they take 12 tokens, each key asked once, more than length 4"),
        (lambda: Needle(needles=17, **LENGTHS), "keys=16: needles=17 need as many different keys"),
        (lambda: Recall(keys=70_000_000_000, **LENGTHS), "keys=70000000000: must be at most 1048576"),
        (lambda: Recall(pairs=1, keys=0, **LENGTHS), "keys=0: pairs=1 need 1 different keys"),
        (lambda: DistantRecall(facts=5, **LENGTHS), "facts=5: are asked 4 tokens later: must be at most as many"),
        (lambda: DistantRecall(keys=3, **LENGTHS), "keys=3: facts=4 need as many different keys"),
        (lambda: DistantRecall(facts=1, lead=-1, **LENGTHS), "lead=-1: must be at least 0"),
        (lambda: Counter(increments=-1.0, **LENGTHS), "increments=-1: must be at least 0"),
        (lambda: Counter(passes=0, sets=0, increments=0, **LENGTHS), "passes=0: is 0, as sets and increments are"),
        (lambda: Addition(coupled=True, positions=14, **LENGTHS), "positions=14: sums of 12 digits need at least 15"),
    ],
)
def test_impossible_settings_are_refused_in_one_line(make: object, message: str) -> None:
    with pytest.raises(SettingError) as error:
        make()  # type: ignore[operator]
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", TASKS)
def test_examples_are_as_the_code_prints_them(name: str) -> None:
    examples = (REPOSITORY / "src/poslab/tasks/examples.md").read_text(encoding="utf-8")
    assert f"\n{make_task(name).example()}\n" in examples


def test_every_yaml_names_every_setting_with_the_oracle_that_goes_with_it() -> None:
    assert set(TASKS) == set(ORACLES)
    for name in TASKS:
        given = OmegaConf.load(CONFIGS / "data" / f"{name}.yaml").data
        fields = {field.name for field in dataclasses.fields(make_task(name))}
        assert fields - {"batch_size", "validate_every"} <= set(given)
        assert set(given) <= fields | {"_target_"}
