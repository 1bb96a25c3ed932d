"""Windows of a text: overlapping and shuffled in training, side by side in validation."""

import multiprocessing
import re
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Sampler, SequentialSampler, Subset

from poslab.config.schema import APART, DataConfig
from poslab.config.train import TrainConfig
from poslab.data.baselines import untrained_losses
from poslab.data.corpus import corpus_of
from poslab.data.windows import CoveringWindows, Shuffled, SlidingWindowDataset
from poslab.errors import SettingError
from poslab.evaluation.files import evaluate_run, held_out
from poslab.evaluation.losses import window_losses
from poslab.evaluation.probes import spread
from poslab.evaluation.stream_losses import consecutive_token_losses
from poslab.metric import LOSS, PERPLEXITY, loss_metric, perplexity
from poslab.model.decoder import GPT
from poslab.runs.checkpoint import load_checkpoint
from poslab.training.data import DataModule, loader_generator
from poslab.training.loss import language_model_loss

_END = r"\n\s*|(?<=[.!?])[\"'”’)]*(?=\s)"  # of a line or a sentence
_LINE = 40  # characters of a prompt at most
_LOOKED_AT = 400  # tokens, in which a line begins


class TextDataModule(DataModule):
    """Windows of context_length tokens.

    The order of training windows comes from a generator of its own (`order`), so it depends on the seed and on nothing
    that the model draws. Raises SettingError for a text that can't be read, or is too short for one window in one of
    its parts, and for a prompt that the vocabulary lacks.
    """

    figures = (PERPLEXITY,)

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        self.text = cast(DataConfig, config.data)
        self.context_length = self.training_length = config.model.context_length
        self.corpus = corpus_of(self.text, config.data_on_this_machine)
        self.name, self.sha256, self.vocabulary = self.corpus.name, self.corpus.sha256, self.corpus.vocabulary
        self.tokens = {"training": len(self.corpus.train), "validation": len(self.corpus.validation)}
        if len(self.corpus.test):
            self.tokens["test"] = len(self.corpus.test)
        self._check_length()
        stride = self.text.stride or self.context_length
        self.apart = self.text.documents == APART
        ends: Any = self.corpus.ends if self.apart else {}  # of documents that don't see each other
        if self.apart and not self.corpus.documents:
            problem = f"{self.name} is one document; data.document_separator says what stands between several"
            raise SettingError("data.documents", APART, problem)
        self.train_windows = SlidingWindowDataset(self.corpus.train, self.context_length, stride, ends.get("train"))
        self.validation_windows = CoveringWindows(
            self.corpus.validation, self.context_length, self.context_length, ends.get("validation")
        )
        self.order = Shuffled(len(self.train_windows), config.settings.seed)
        self.measures = [loss_metric(self.vocabulary.size)]
        prompt = config.sample.prompt
        self.prompt = self.vocabulary.encode(prompt, "sample.prompt") if prompt else self._opening()

    def _check_length(self) -> None:
        part = min(self.tokens, key=lambda part: self.tokens[part])
        tokens = self.tokens[part]
        if self.context_length < tokens:
            return
        fits = (
            f"model.context_length={tokens - 1} or less would fit"
            if tokens > 1
            else "no context would fit, take a longer text"
        )
        unit = f"{self.corpus.vocabulary.unit}{'s' * (tokens != 1)}"
        problem = f"the {part} part of {self.name} has only {tokens} {unit}; {fits}"
        raise SettingError("model.context_length", self.context_length, problem)

    def _opening(self) -> list[int]:
        """Return the first line or sentence of the validation text that the split has left whole, cut after a word."""
        opening = self.corpus.validation[:_LOOKED_AT].tolist()
        ends = [len(self.vocabulary.decode(opening[:count])) for count in range(len(opening) + 1)]
        text = self.vocabulary.decode(opening)
        # Of a text without lines and sentences, what follows its first space.
        match = re.search(_END, text) or re.search(r"(?=\s)", text)
        begins = match.end() if match else 0
        begins += len(text[begins:]) - len(text[begins:].lstrip())
        line = re.split(_END, text[begins : begins + _LINE])[0]
        if len(line) == _LINE and " " in line:
            line = line[: line.rfind(" ")]
        first = max(count for count, end in enumerate(ends) if end <= begins)  # with the space before a word
        last = max(count for count, end in enumerate(ends) if end <= begins + len(line))
        return opening[first:last] or opening[:1]

    @property
    def rows_of_order(self) -> int:
        return self.text.batch_size

    def windows_in(self, batch_index: int) -> int:
        return self.rows_of_order if self.text.same_batch else super().windows_in(batch_index)

    @property
    def description(self) -> str:
        *counts, last = (f"{tokens:,} {part}" for part, tokens in self.tokens.items())
        documents = self.corpus.documents
        of = f"{documents:,} document{'s' * (documents != 1)}, " if documents is not None else ""
        return f"{self.name}, {of}{', '.join(counts)} and {last} {self.corpus.vocabulary.unit}s"

    @property
    def facts(self) -> dict[str, Any]:
        _, judged_by = self.corpus.held_out
        return super().facts | {
            "train_tokens": self.tokens["training"],
            "validation_tokens": self.tokens["validation"],
            "test_tokens": self.tokens.get("test"),
            "documents": self.corpus.documents,
            "untrained_losses": untrained_losses(self.corpus.train, judged_by, self.vocabulary.size),
        }

    def loss(self, model: GPT, batch: Any) -> Tensor:
        tokens, targets, *documents = batch
        return language_model_loss(model, tokens, targets, None, *documents)

    def validation_sums(self, model: GPT, batch: Any) -> Tensor:
        return torch.tensor(list(window_losses(model, *batch).values()), dtype=torch.float64).sum(0)

    def validation_figures(self, sums: Tensor) -> dict[str, float]:
        figures = super().validation_figures(sums)
        return figures | {PERPLEXITY.name: perplexity(figures[LOSS])}

    def train_dataloader(self) -> DataLoader[Any]:
        return self._loader(self.train_windows, self.shared_order())

    def _loader(self, windows: Dataset[Any], order: Sampler[int], apart: int = 1) -> DataLoader[Any]:
        """Return a loader of training batches. apart: how far the rows of a batch are apart in the windows."""
        size, count = self.text.batch_size, len(self.train_windows)
        settings: dict[str, Any] = {"num_workers": self.text.num_workers, "generator": loader_generator()}
        if self.text.num_workers and "fork" in multiprocessing.get_all_start_methods():
            # Tokens in a file can't be handed to a process of another kind, which is what jobs of a sweep would start.
            settings["multiprocessing_context"] = "fork"
        if self.text.same_batch:
            first = Subset(windows, range(0, min(size, count) * apart, apart))
            windows = ConcatDataset([first] * -(-count // size))
            order, size = SequentialSampler(windows), len(first)
        return DataLoader(windows, size, sampler=order, **settings)

    def val_dataloader(self) -> DataLoader[Any]:
        count, size = len(self.validation_windows), self.text.batch_size
        batches: Any = [range(start, min(count, start + size)) for start in range(0, count, size)]
        # No generator of its own: with each validation it draws a number from torch's, as all documented runs did.
        return DataLoader(self.validation_windows, batch_sampler=self.own(batches))

    def texts(self) -> Tensor:
        return spread(self.corpus.validation, self.context_length)

    def sample(self, model: GPT) -> tuple[str, str]:
        wanted, seed = self.config.sample, self.config.settings.seed
        sampling: dict[str, Any] = {"temperature": wanted.temperature, "top_k": wanted.top_k, "seed": seed}
        (tokens,) = model.generate([self.prompt], wanted.new_tokens, **sampling)
        text = self.vocabulary.decode(tokens)
        return text, text

    def test(self, folder: Path) -> dict[str, Any]:
        wanted = self.config.evaluation
        results: dict[str, Any] = {}
        if wanted.lengths:
            text = held_out(self.corpus)
            print(f"\nevaluating at lengths {', '.join(map(str, wanted.lengths))} ({text.name}) ...", flush=True)
            evaluation = evaluate_run(
                folder, wanted.lengths, wanted.stride, wanted.last, text=text, named=self.config.classes
            )
            results["metrics"] = evaluation.metrics
        if len(self.corpus.test):
            model = load_checkpoint(folder, named=self.config.classes).model
            ends = self.corpus.ends.get("test")
            losses = consecutive_token_losses(model, self.corpus.test, self.context_length, ends, self.apart)
            results["test_loss"] = float(losses.mean(dtype=torch.float64))
        return results
