"""What a run folder tells of a run that goes on."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytorch_lightning.callbacks import Timer

from poslab.config.files import initial_sha256
from poslab.config.roles import Role
from poslab.config.train import TrainConfig, flat, role_of
from poslab.errors import SettingError, as_typed
from poslab.positions import PositionScheme
from poslab.runs.checkpoint_files import newest_intact
from poslab.runs.code import changed, edited
from poslab.runs.folder import RunFolder
from poslab.runs.resume import check_same
from poslab.runs.state import RunState, rewind_events


@dataclass(frozen=True)
class ResumedRun:
    """The place from which a run goes on; `checkpoint` None: its beginning."""

    folder: RunFolder
    checkpoint: Path | None
    state: RunState
    text_sha256: str | None
    notes: list[str]
    facts: dict[str, Any] = field(default_factory=dict)  # FACTS of its configuration

    @classmethod
    def of(cls, folder: RunFolder, config: TrainConfig, world_size: int = 1) -> "ResumedRun":
        """Raises SettingError where the run is finished and `config` doesn't ask for more, or can't be taken up."""
        checkpoint, content, notes = newest_intact(folder)
        if checkpoint is None:
            if folder.summary.exists():
                problem = (
                    f"it is finished, but has no {folder.last.name} to go on from; starting over would overwrite it"
                )
                raise SettingError("resume", folder, problem)
            return cls(folder, None, RunState(), None, notes)
        try:
            state = RunState.of(content)
        except ValueError as error:
            raise SettingError("resume", checkpoint, str(error)) from error
        check_same(folder.path, flat(config), flat(content["poslab"]["config"], without={Role.COMMAND}))
        own = content["poslab"]["config"]
        facts = {"extended": _extended(own, config, state.step), "init_sha256": own.get("init_sha256")}
        run = cls(folder, checkpoint, state, str(content["poslab"]["data_sha256"]), notes, facts)
        if (given := config.settings.init_from) != own.get("init_from"):
            run._check_initial(given)
        run._check_unfinished(config, content)
        run._check_code(config.pos, content["poslab"])
        run._check_processes(world_size)
        return run

    @property
    def step(self) -> int:
        return self.state.step

    @property
    def threads(self) -> int | None:
        """Those of the run before it was interrupted."""
        return None if self.checkpoint is None else self.state.threads

    def check_text(self, sha256: str) -> None:
        """Raises SettingError where the text, or the task, is another one than before."""
        if self.text_sha256 not in (None, sha256):
            problem = "the text at data.path, or the code of the task, is not the one that it was trained on"
            raise SettingError("resume", self.folder, problem)

    def _check_initial(self, folder: str | None) -> None:
        """Raises SettingError for other weights than those that the run began with."""
        if folder is None or initial_sha256(folder) != self.facts["init_sha256"]:
            raise SettingError("init_from", folder, "the run began with other weights")

    def rewind(self) -> None:
        """Takes back what was written after the checkpoint; the figures of a finished run that goes on are kept, under
        names that say at which step they were taken."""
        rewind_events(self.folder, self.state.events)
        for file in (self.folder.summary, self.folder.evaluation, self.folder.answers):
            if file.exists():
                os.replace(file, file.with_name(f"{file.stem}-step{self.step}{file.suffix}"))

    def _check_code(self, scheme: PositionScheme, before: dict[str, Any]) -> None:
        """Raises SettingError where the source of the scheme has changed; of a change of the rest a note tells."""
        if whose := edited(before, scheme):
            problem = f"the code of {whose} has changed since step {self.step}; a new run trains the new code"
            raise SettingError("resume", self.folder, f"{problem}, the old code goes on with this one")
        if changed(before, scheme):
            self.notes.append(f"poslab's code has changed since step {self.step}: a new run may give another result")

    def _check_processes(self, world_size: int) -> None:
        """A note where other ones share the batches from now on. Raises SettingError where they didn't share them."""
        before = len(self.state.random)
        if before > 1 and not self.state.shared_batches:
            problem = f"made by a version that gave each of its {before} processes a batch of its own; train it anew"
            raise SettingError("resume", self.folder, problem)
        if before != world_size:
            same = "the same examples in the same order, sums rounded otherwise, other dropout masks"
            self.notes.append(f"goes on with {world_size} process{'es' * (world_size > 1)} instead of {before}: {same}")

    def _check_unfinished(self, config: TrainConfig, content: dict[str, Any]) -> None:
        epochs, steps = config.trainer.max_epochs, config.trainer.max_steps
        own = flat(content["poslab"]["config"])
        over = self._epochs_over(content)
        if (epochs or 1e9) < (planned := own["trainer.max_epochs"] or 0):
            problem = f"the run was to have {planned}; it can go on for more, not for fewer"
            raise SettingError("trainer.max_epochs", epochs, problem)
        for option, most, done in (("max_epochs", epochs, over), ("max_steps", steps, self.step)):
            if most is not None and -1 < most < done:
                raise SettingError(f"trainer.{option}", most, f"the run has trained for {done} already")
        if not self.folder.finished:
            return
        longer = self._what_trains_on(config, content, over)
        if longer is None and all(own.get(k) == v for k, v in flat(config).items() if role_of(k) is Role.LENGTH):
            longer = f"a {'longer trainer.max_time' if config.settings.target_loss is None else 'lower target_loss'}"
        if longer is not None:
            problem = f"it is finished, after {self.step} steps; {longer} trains on"
            raise SettingError("resume", self.folder, problem)

    def _what_trains_on(self, config: TrainConfig, content: dict[str, Any], epochs_over: int) -> str | None:
        """What the command line must give where the run would end before its first step; None where it wouldn't."""
        longer = []
        if self.step == config.trainer.max_steps:
            longer.append(f"trainer.max_steps={2 * self.step}")
        if epochs_over == config.trainer.max_epochs:
            longer.append(f"trainer.max_epochs={epochs_over + 1}")
        for name, saved in content.get("callbacks", {}).items():
            if name.startswith("EarlyStopping") and saved["wait_count"] >= saved["patience"]:
                return "it has stopped early, and only a new run"
            if name.startswith("Timer") and config.trainer.max_time is not None:
                timer = Timer(config.trainer.max_time)
                timer.load_state_dict(saved)
                longer += ["a longer trainer.max_time"] if (timer.time_remaining() or 0) <= 0 else []
        return " with ".join(longer) or None

    def _epochs_over(self, content: dict[str, Any]) -> int:
        """Epochs of which every batch has been trained on; the last one is still counted as under way after its
        validation."""
        whole = self.state.batches > 0 and content["loops"]["fit_loop"]["epoch_loop.batch_progress"]["is_last_batch"]
        return self.state.epoch + int(whole)


def _extended(before: dict[str, Any], config: TrainConfig, step: int) -> list[str]:
    """What a run was to train before `config`, which goes on at that step: by the settings that its learning rate
    follows."""
    was, now = flat(before), flat(config)
    changed = [name for name in ("trainer.max_epochs", "trainer.max_steps") if was[name] != now[name]]
    settings = " ".join(f"{name}={as_typed(was[name])}" for name in changed)
    return [*before.get("extended", []), *([f"{settings} to step {step}"] if changed else [])]
