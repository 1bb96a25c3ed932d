"""Console output of a run: a head, a line per validation, the results; between them a progress bar where there is a
terminal, and a line every ten seconds elsewhere."""

import math
import re
import shlex
import shutil
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import TQDMProgressBar

from poslab.config.command_line import command_line
from poslab.config.nodes import briefly
from poslab.config.trust import needs_allow_code
from poslab.errors import as_typed
from poslab.metric import LOSS, perplexity
from poslab.processes import rank
from poslab.progress import Interval
from poslab.runs.folder import COLOURS, RunFolder, disk_words
from poslab.runs.summary import Summary
from poslab.training.length import actual_end, planned_end, time_left
from poslab.training.module import LanguageModel, language_model_of
from seedstats.page.terminal import clock, table_line

_BEFORE = {"epoch": 6, "step": 7, "train loss": 10, "val loss": 10}  # columns and their widths
_FIGURE = 10
_AFTER = {"tokens/s": 8, "time": 6}


def introduce(module: LanguageModel, folder: RunFolder, warnings: list[str], begins: str) -> None:
    """Print what is about to be trained, and where the run begins if not at its beginning; on stderr, the warnings."""
    config, counts = module.config, module.model.parameter_counts()
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    settings = ", ".join(f"{k}={as_typed(v)}" for k, v in briefly(config.pos_settings).items())
    print(f"scheme   {config.pos_name}{f' ({settings})' if settings else ''}, seed {config.settings.seed}")
    print(f"model    {counts['total']:,} parameters, {counts['scheme']:,} of them for position")
    print(f"data     {module.data.description}")
    shares = [measure for measure in module.data.measures if measure.is_proportion and measure.chance is not None]
    if shares:
        print(f"chance   {', '.join(f'{share.name} {share.chance:.3f} {share.unit}' for share in shares)}")
    print(f"run      {folder}{begins}")


def conclude(summary: Summary, module: LanguageModel, folder: RunFolder, further: Mapping[str, str]) -> None:
    """Print the results, and what to type next. further: commands of loggers, by what they do."""
    if summary.best_val_loss is not None:  # then there are lines above
        print()
    for line in _results(summary, module):
        print(line)
    # In double quotes, which are easier to read and to change than what shlex makes of an apostrophe.
    prompt = re.sub(r'(["\\$`])', r"\\\1", module.data.vocabulary.decode(module.data.prompt))
    named = f"./{folder}" if str(folder).startswith("-") else str(folder)  # or it would be a flag
    allowed = ["allow_code=true"] if needs_allow_code(module.config.plain) else []
    commands = {
        "curves": shlex.join(["tensorboard", "--logdir", str(folder.path.parent)]),
        "colours": COLOURS,
        **further,
        "explain": command_line("explain", named, *allowed),
        "generate": f'{command_line("generate", named, *allowed)} prompt="{prompt}"',
    }
    if disk := disk_words([folder]):
        print(f"disk     {disk}")
    print(f"run      {folder}")
    for name, command in commands.items():
        print(f"{name:<8} {command}")
    if summary.worse_than_guessing:
        print(f"warning: {summary.worse_than_guessing}", file=sys.stderr)


def _results(summary: Summary, module: LanguageModel) -> Iterator[str]:
    state, settings = module.state, module.config.settings
    if end := actual_end(module.steps_by_limit, module.config, module.trainer, state):
        yield f"ended    after {summary.steps:,} steps, by {end}"
    target, best, steps = settings.target_loss, summary.best_val_loss, summary.steps
    if target is not None:
        verdict = "below" if state.batch_loss < target else "not below"
        yield f"learned  training loss {state.batch_loss:.4g} after {steps} steps, {verdict} {target:g}"
    if best is not None:
        last = summary.last_val_loss
        at = f"at step {summary.best_step} of {steps}" + ("" if last in (None, best) else f"; {last:.4f} at the end")
        meaning = "" if summary.metrics else f" perplexity {perplexity(best):,.1f},"
        chosen = f"{settings.monitor} {abs(state.best_monitored):,.3f}, " if settings.monitor != LOSS else ""
        yield f"best     {chosen}validation loss {best:.4f},{meaning} {at}"
    elif target is None:
        yield "best     none: nothing was validated"
    if summary.test_loss is not None:
        yield f"test     loss {summary.test_loss:.4f} on {summary.test_tokens:,} tokens that decided nothing"
    widest = max(map(len, summary.metrics), default=0)
    for name, curve in summary.metrics.items():
        yield f"{name:<{widest}} " + ", ".join(f"{share:.3f} at {length}" for length, share in curve.items())
    duration, speed = clock(summary.wall_time_s), summary.tokens_per_s
    yield f"speed    {speed:,.0f} tokens/s without validations; {summary.tokens:,} tokens in {duration} with them"
    if state.sample:
        yield textwrap.fill(state.sample, width(), initial_indent="sample   ", subsequent_indent=" " * 9)


class ValidationLines(Callback):
    """Callback that prints how many steps there are, and under a heading a line of figures at each validation."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        module = language_model_of(pl_module)
        processes = module.data.processes
        together = f"; in each, a batch of each of {processes} processes" if processes > 1 else ""
        pl_module.print(f"steps    {planned_end(module.steps_by_limit, module.config)}{together}\n")
        self._warn_of_a_single_one(trainer, module)
        if trainer.enable_validation:
            names = (figure.name for figure in language_model_of(pl_module).data.figures)
            pl_module.print(_line(*_BEFORE, *names, *_AFTER))

    def _warn_of_a_single_one(self, trainer: Trainer, module: LanguageModel) -> None:
        """Warn on stderr where the first validation is the last one, too."""
        each, epochs = trainer.accumulate_grad_batches, trainer.check_val_every_n_epoch or 1
        steps, in_epoch = module.total_steps(), module.steps_per_epoch
        if not (rank() == 0 and trainer.enable_validation and trainer.val_check_batch) or steps < 2:
            return
        first = (epochs - 1) * in_epoch + math.ceil(trainer.val_check_batch / each)
        if module.state.validations or first < steps:
            return
        if epochs > (trainer.max_epochs or -1) > 0:
            problem = f"nothing is validated, because the run has {trainer.max_epochs} epochs"
            print(f"warning: {problem}; trainer.check_val_every_n_epoch=1 validates each", file=sys.stderr)
            return
        patience = module.config.settings.early_stopping_patience
        stops = "" if patience is None else f" and early_stopping_patience={patience} stops nothing"
        often = f"trainer.val_check_interval={max(1, min(steps, in_epoch) * each // 4)}"
        often = "trainer.check_val_every_n_epoch=1" if epochs > 1 else often
        problem = f"the only validation is after the last step, so no weights are chosen{stops}"
        print(f"warning: {problem}; {often} validates more often", file=sys.stderr)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        module = language_model_of(pl_module)
        state = module.state
        train_loss = sum(map(float, state.batch_losses)) / max(1, len(state.batch_losses))
        state.batch_losses = []
        cells = [str(trainer.current_epoch + 1), str(trainer.global_step)]
        cells += [f"{train_loss:.4f}", f"{state.last_val_loss:.4f}"]
        cells += [f"{f:,.1f}" if name == "perplexity" else f"{f:.3f}" for name, f in module.figures.items()]
        pl_module.print(_line(*cells, f"{state.tokens_per_s:,.0f}", clock(state.clock.seconds)))


class ProgressLines(Callback):
    """Callback that prints how far the training is where nothing else was printed for ten seconds, for output that is
    no terminal: a file, a notebook, the log of a job."""

    def __init__(self) -> None:
        self.interval = Interval()
        self._first_step, self._begun = 0, 0.0  # of this process, which may resume a run

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._first_step, self._begun = trainer.global_step, time.monotonic()
        self.interval.begin()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:  # which has a line
        self.interval.begin()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if self.interval.is_over():
            module = language_model_of(pl_module)
            loss = math.nan if module.loss is None else float(module.loss)
            about = "" if module.steps_by_limit else "about "
            line = f"step {trainer.global_step:,} of {about}{module.total_steps():,}, loss {loss:.4f}"
            line += f", {module.state.tokens_per_s:,.0f} tokens/s"
            if trainer.global_step > self._first_step:
                line += f", {clock(self._seconds_left(trainer, module))} left"
            pl_module.print(line)

    def _seconds_left(self, trainer: Trainer, module: LanguageModel) -> float:
        """Estimate the time that the remaining steps take at the mean pace so far, validations included."""
        pace = (time.monotonic() - self._begun) / (trainer.global_step - self._first_step)
        seconds = pace * max(0, module.total_steps() - trainer.global_step)
        return min(seconds, time_left(trainer))

    def on_validation_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int, *_: Any
    ) -> None:
        if self.interval.is_over():
            pl_module.print(f"validation: batch {batch_idx + 1:,} of {trainer.num_val_batches[0]:,}")


def _line(*cells: str) -> str:
    figures = len(cells) - len(_BEFORE) - len(_AFTER)
    return table_line(cells, [*_BEFORE.values(), *[_FIGURE] * figures, *_AFTER.values()], align=">")


class ProgressBar(TQDMProgressBar):
    """Progress bar of the epoch, with tokens/s and the loss: reading it waits for a GPU, and so is not done at every
    step."""

    def on_train_epoch_start(self, trainer: Trainer, *_: Any) -> None:
        super().on_train_epoch_start(trainer)
        self.train_progress_bar.set_description(f"epoch {trainer.current_epoch + 1}")  # counted as in the lines

    def get_metrics(
        self, trainer: Trainer, pl_module: LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        module = language_model_of(pl_module)
        loss = math.nan if module.loss is None else float(module.loss)
        return {"loss": f"{loss:.3f}", "tok/s": f"{module.state.tokens_per_s:,.0f}"}


def width() -> int:
    """Return the columns of the terminal, kept within what reads well."""
    return min(120, max(60, shutil.get_terminal_size().columns))
