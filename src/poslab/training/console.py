"""What a run says on the screen: a line per validation, and a progress bar where there is a terminal."""

import shutil
import time
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import TQDMProgressBar
from pytorch_lightning.callbacks.progress.tqdm_progress import Tqdm

from poslab.training.module import LanguageModel, perplexity
from poslab.training.throughput import Throughput

_COLUMNS = "{:>6} {:>8} {:>11} {:>11} {:>11} {:>9} {:>7}"


class ValidationLines(Callback):
    """One line of figures at each validation, under a heading."""

    def __init__(self, throughput: Throughput) -> None:
        self.throughput = throughput
        self._losses: list[Any] = []
        self._started = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._started = time.perf_counter()
        pl_module.print(_COLUMNS.format("epoch", "step", "train loss", "val loss", "perplexity", "tokens/s", "time"))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._losses.append(outputs["loss"].detach())  # a tensor: reading it here would wait for the device

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, LanguageModel)
        train_loss = sum(map(float, self._losses)) / max(1, len(self._losses))
        self._losses.clear()
        val_loss = pl_module.last_val_loss
        pl_module.print(
            _COLUMNS.format(
                trainer.current_epoch + 1,
                trainer.global_step,
                f"{train_loss:.4f}",
                f"{val_loss:.4f}",
                f"{perplexity(val_loss):,.1f}",
                f"{self.throughput.tokens_per_s:,.0f}",
                clock(time.perf_counter() - self._started),
            )
        )


class ProgressBar(TQDMProgressBar):
    """One bar for the epoch in progress, with the loss and tokens/s; gone when the epoch is over."""

    def __init__(self, throughput: Throughput) -> None:
        super().__init__()
        self.throughput = throughput

    def init_train_tqdm(self) -> Tqdm:
        bar = super().init_train_tqdm()
        bar.leave = False
        return bar

    def init_validation_tqdm(self) -> Tqdm:
        return Tqdm(disable=True)

    def get_metrics(
        self, trainer: Trainer, pl_module: LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        loss = trainer.callback_metrics.get("train/loss")
        shown: dict[str, int | str | float | dict[str, float]] = {"tok/s": f"{self.throughput.tokens_per_s:,.0f}"}
        return shown if loss is None else {"loss": f"{float(loss):.3f}"} | shown


def clock(seconds: float) -> str:
    """75 -> "1:15"."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def one_line(text: str, indent: int) -> str:
    """The text on one line of the terminal."""
    text = " ".join(text.split())
    width = max(40, shutil.get_terminal_size().columns - indent)
    return text if len(text) <= width else f"{text[: width - 3]}..."
