"""Contract of a task: settings, symbols, and a generator of examples.

    tokens       what the model reads, symbol by symbol
    targets      the symbol to predict at each position from the tokens up to it; IGNORED where there is none
    positions    where the tokens stand, for tasks that know better than 0, 1, 2, ...

B batch, T tokens. A length is the number that a task calls so (symbols to copy, digits, tokens); T follows from it.
All examples of a batch have one length, so there is no padding that a model could learn from or be disturbed by.
"""

from __future__ import annotations

import hashlib
import re
import string
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from poslab.checked import CONFIG, with_numbers_as_they_are
from poslab.errors import SettingError, require_at_least
from poslab.metric import IGNORED as IGNORED
from poslab.metric import SHARES, Metric

VALIDATION_LENGTHS = 8  # at most, spread over those of training
VALIDATION_EXAMPLES = 64  # at each
MOST = 2**20  # of anything that a setting counts: more symbols, for one, fill the memory with their names
TEST_EXAMPLES = 512  # at each length: the standard error of a share is at most 2.2 points


class Examples(NamedTuple):
    """Examples of one length."""

    tokens: Tensor  # (B, T) int64, ids of the task's symbols
    targets: Tensor  # (B, T) int64, IGNORED where there is none
    positions: Tensor | None = None  # (B, T) int64

    def rows(self, rows: slice) -> Examples:
        positions = None if self.positions is None else self.positions[rows]
        return Examples(self.tokens[rows], self.targets[rows], positions)


@dataclass(frozen=True, kw_only=True)
class Task:
    """Source of examples.

    A task is a frozen dataclass, as schemes are: its fields are its settings, the same names stand in its yaml, and
    they are checked before a run writes anything. It keeps no state: what it gives is a function of the generator.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = CONFIG

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        return with_numbers_as_they_are(handler(source))

    min_length: int  # of training, both included
    max_length: int
    test_lengths: list[int]
    batch_size: int = 64
    validate_every: int = 250  # batches; they are one epoch

    def __post_init__(self) -> None:
        for setting in fields(self):
            value = getattr(self, setting.name)
            if any(isinstance(n, int) and n > MOST for n in (value if isinstance(value, list) else [value])):
                raise SettingError(setting.name, value, f"must be at most {MOST}")
        require_at_least(self.shortest, min_length=self.min_length)
        require_at_least(1, batch_size=self.batch_size, validate_every=self.validate_every)
        if self.max_length < self.min_length:
            raise SettingError("max_length", self.max_length, f"must be at least min_length={self.min_length}")
        if not self.lengths:
            raise SettingError("max_length", self.max_length, f"leaves no length to train on; {self.rule}")
        if not self.test_lengths:
            raise SettingError("test_lengths", self.test_lengths, "needs at least one")
        for length in self.test_lengths:
            if length < self.shortest or length % self.multiple != self.remainder:
                raise SettingError("test_lengths", self.test_lengths, f"{length}: {self.rule}")

    # What a task defines. Lengths are those from `shortest` on that leave `remainder` when divided by `multiple`.

    shortest: ClassVar[int] = 1
    multiple: ClassVar[int] = 1
    remainder: ClassVar[int] = 0
    # Whether a model without memory, too, reads an example as a text of several segments of its context.
    in_segments: ClassVar[bool] = False
    # What its figures mean, those of `derived` that have other units included; runs are compared by the first.
    metrics: ClassVar[tuple[Metric, ...]] = SHARES

    @property
    def symbols(self) -> tuple[str, ...]:
        """Return the name of each symbol, in the order of their ids."""
        raise NotImplementedError

    def tokens(self, length: int) -> int:
        """Return T, the number of tokens in examples of that length."""
        return length

    def reach(self, length: int) -> int:
        """Return how many positions examples of that length need."""
        return self.tokens(length)

    def batch(self, generator: torch.Generator, count: int, length: int) -> Examples:
        """Draw `count` examples of that length, a function of the generator alone."""
        raise NotImplementedError

    def parts(self, examples: Examples) -> dict[str, Tensor]:
        """Return parts of the targets that are also scored by themselves: for each a mask (B, T)."""
        return {}

    def derived(self, shares: dict[str, float]) -> dict[str, float]:
        """Return further figures of a test, from those measured: {"exact": ..., "accuracy_<part>": ...}."""
        return {}

    def shifts(self) -> dict[str, Task]:
        """Return variants of the task, by name, on which a model that was trained on this one is tested as well."""
        return {}

    # What follows from it.

    figures: ClassVar[tuple[str, ...]] = tuple(metric.name for metric in SHARES)  # of a validation, beside the loss

    @property
    def one_length(self) -> bool:
        """Whether the examples of all training batches have one length."""
        return len(self.lengths) == 1

    @property
    def title(self) -> str:
        """Name in summaries."""
        return self.name

    @property
    def node(self) -> dict[str, Any]:
        """The class and its settings in plain values."""
        return {"_target_": f"{type(self).__module__}.{type(self).__qualname__}"} | asdict(self)

    def module(self, remembers: bool) -> str:
        """Return the data module of training, by name."""
        in_segments = self.in_segments or remembers
        return f"poslab.training.data.{'stream.SegmentedTask' if in_segments else 'task.TaskDataModule'}"

    @property
    def longest_text(self) -> int:
        """The positions that the longest examples of training need."""
        return self.reach(self.lengths[-1])

    @property
    def name(self) -> str:
        """Return the class's name as in yaml: MissingDuplicate -> missing_duplicate."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()

    @property
    def rule(self) -> str:
        """Return the rule for lengths in words."""
        kinds = {(1, 0): "", (2, 0): " and even", (2, 1): " and odd"}
        kind = kinds.get((self.multiple, self.remainder), f" and leave {self.remainder} if divided by {self.multiple}")
        return f"lengths must be at least {self.shortest}{kind}"

    @property
    def lengths(self) -> range:
        """Return the lengths of training."""
        first = self.min_length + (self.remainder - self.min_length) % self.multiple
        return range(first, self.max_length + 1, self.multiple)

    @property
    def longest(self) -> int:
        """Return the longest length, of training and tests."""
        return max(self.max_length, *self.test_lengths)

    def check(self, context_length: int, positions: int | None, remembers: bool = False) -> None:
        """Raise SettingError for lengths that the model can't read. positions: that its scheme knows; None: any.
        remembers: whether it carries memory from segment to segment, of which an example may have many."""
        if remembers or self.in_segments:
            return
        if (reach := self.reach(self.max_length)) > context_length:
            problem = f"needs {reach} positions, more than model.context_length={context_length}"
            raise SettingError("max_length", self.max_length, problem)
        for length in self.test_lengths:
            if positions is not None and (reach := self.reach(length)) > positions:
                problem = f"{length} needs {reach} positions, and this scheme knows {positions}, no more"
                raise SettingError("test_lengths", self.test_lengths, problem)

    def training(self, seed: int, step: int) -> Examples:
        """Return the batch of a training step, of a length that is drawn as well: a function of seed and step alone."""
        generator = _generator("training", seed, step)
        length = self.lengths[int(torch.randint(len(self.lengths), (), generator=generator))]
        return self.batch(generator, self.batch_size, length)

    def validation(self) -> list[Examples]:
        """Return batches in the range of training, the same in all runs."""
        step = max(1, -(-len(self.lengths) // VALIDATION_LENGTHS))
        lengths = self.lengths[::-1][::step][::-1]  # the longest is always among them
        return [self.batch(_generator("validation", n), VALIDATION_EXAMPLES, n) for n in lengths]

    def test(self, length: int, seed: int | None = None) -> Examples:
        """Return examples to test a model on at that length, the same for all runs of a seed.

        With one set for all seeds, an interval over seeds would not know what other examples change. seed: None for
        examples that are to be shown, the same for all runs.
        """
        names = ("test", length) if seed is None else ("test", length, seed)
        return self.batch(_generator(*names), TEST_EXAMPLES, length)

    def example(self) -> str:
        """Format one example, of the shortest length of training from 4: its tokens above its targets."""
        length = next((n for n in self.lengths if n >= 4), self.lengths[-1])
        tokens, targets, positions = self.batch(_generator("example"), 1, length)
        rows = {"reads": self.words(tokens[0]), "says": self.words(targets[0])}
        if positions is not None:
            rows["position"] = [str(i) for i in positions[0].tolist()]
        return f"{self.name}, length {length}\n{in_columns(rows)}"

    def words(self, ids: Tensor) -> list[str]:
        """Return the names of symbols (T,), and a dot where there is no target."""
        return ["." if i == IGNORED else self.symbols[i] for i in ids.tolist()]


def _generator(*names: str | int) -> torch.Generator:
    """Return a generator whose numbers are a function of these names alone."""
    digest = hashlib.sha256(" ".join(map(str, names)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:4]))  # torch's generator uses 32 bits of a seed


def in_columns(rows: dict[str, list[str]]) -> str:
    """Format rows below each other in columns, in blocks of lines of 100 at most; "..." begins further ones."""
    columns = list(zip(*rows.values(), strict=True))
    cell = max(len(text) for column in columns for text in column) + 1
    a_line, head = max(1, 91 // cell), max(map(len, rows))
    head += 4 * (len(columns) > a_line)
    blocks = []
    for start in range(0, len(columns), a_line):
        names = [f"... {name}" if start else name for name in rows]
        lines = zip(names, zip(*columns[start : start + a_line], strict=True), strict=True)
        blocks.append("\n".join(f"{name:<{head}}" + "".join(f"{t:>{cell}}" for t in texts) for name, texts in lines))
    return "\n\n".join(blocks)


def alphabet(size: int) -> tuple[str, ...]:
    """Return names of that many symbols: letters and digits, or numbers where there are not enough of them."""
    letters = string.ascii_letters + string.digits + "+-"
    return tuple(letters[:size]) if size <= len(letters) else tuple(f"s{i}" for i in range(size))


def numbers(highest: int, generator: torch.Generator, *shape: int) -> Tensor:
    """Draw whole numbers below `highest`, each as likely as any other, int64."""
    return torch.randint(highest, shape, generator=generator)


def different(highest: int, generator: torch.Generator, rows: int, count: int) -> Tensor:
    """Draw for each row different whole numbers below `highest`, in any order: (rows, count) int64."""
    return torch.rand(rows, highest, generator=generator).argsort(1)[:, :count]


def one_answer(question: Tensor, answer: Tensor) -> Examples:
    """Return examples of a question (B, T) with one target, the answer (B,) at its end."""
    targets = torch.full_like(question, IGNORED)
    targets[:, -1] = answer
    return Examples(question, targets)
