"""Resuming a run from its folder and its last checkpoint, and checks of what must not have changed since."""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

from poslab.config.command_line import command_line
from poslab.config.fields import MAY_CHANGE, Role
from poslab.config.files import UNFINISHED
from poslab.config.groups import flat, names, role_of
from poslab.config.train import NO_LIMITS, PROVENANCE_FIELDS, TrainConfig
from poslab.config.trust import needs_allow_code
from poslab.errors import RunStopped, SettingError, UserError, as_typed
from poslab.processes import launched, rank
from poslab.runs.checkpoint_files import read_checkpoint
from poslab.runs.code import changed_fingerprints, edited, foreign_parts, parts_fingerprint
from poslab.runs.folder import RunFolder
from poslab.runs.initial import initial_fields
from poslab.runs.readers import read_config
from poslab.signals import Interrupted
from poslab.training.data import DataModule
from poslab.training.length import has_stopped
from poslab.training.state import RunState, rewind_logs

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class ResumedRun:
    """Run and checkpoint from which it resumes. `checkpoint` None: it starts over; `folder` None, too: it is a new run.

    notes: warnings for the user. provenance: the PROVENANCE_FIELDS of its TrainConfig, which are lengths before it was
    extended, and what tells its first weights.
    """

    folder: RunFolder | None
    checkpoint: Path | None
    state: RunState
    data_sha256: str | None
    notes: list[str]
    provenance: dict[str, Any]

    @property
    def words(self) -> str:
        """Say from which step the run resumes; nothing of a new run."""
        if self.folder is None:
            return ""
        return f", resumes from step {self.state.step}" if self.state.step else ", starts over"

    def rewind(self, data: DataModule) -> RunFolder:
        """Take back what was written after the checkpoint, and return the folder.

        The figures of a finished run are kept, under names that say at which step they were taken. Raises SettingError
        where the data are not those of before, or are shared by another number of processes.
        """
        assert self.folder is not None
        if self.data_sha256 not in (None, data.sha256):
            problem = "the text at data.path, or the code of the task, is not the one that it was trained on"
            raise SettingError("resume", self.folder, problem)
        if self.checkpoint is not None and self.state.processes != data.processes:
            problem = f"{self.state.processes} processes share its data, and its place in them; now there are"
            advice = f"start {self.state.processes}, as by torchrun or trainer.devices={self.state.processes}"
            raise SettingError("resume", self.folder, f"{problem} {data.processes}; {advice}")
        if rank() == 0:
            rewind_logs(self.folder, self.state)
            for file in (self.folder.summary, self.folder.evaluation, self.folder.answers):
                if file.exists():
                    os.replace(file, file.with_name(f"{file.stem}-step{self.state.step}{file.suffix}"))
        return self.folder


@contextmanager
def open_run_to_resume(config: TrainConfig) -> Iterator[ResumedRun]:
    """Read the run in config.settings.resume, if any, and hold its folder; without one, a run that the same command has
    begun in its `run_dir`.

    Raises SettingError where the run is finished and `config` doesn't ask for more, or can't resume.
    """
    resumed = config.settings.resume or _unfinished_in_run_dir(config)
    if resumed is None:
        yield ResumedRun(None, None, RunState(), None, [], _begun(config))
        return
    with _held_folder(Path(os.path.expanduser(resumed))) as folder:
        checkpoint, content, notes = _newest_intact(folder)
        if checkpoint is not None:
            yield _from_checkpoint(folder, checkpoint, content, notes, config)
        elif folder.finished:
            problem = f"it is finished, but has no {folder.last.name} to resume from; starting over would overwrite it"
            raise SettingError("resume", folder, problem)
        else:
            yield ResumedRun(folder, None, RunState(), None, notes, _begun(config))


def _unfinished_in_run_dir(config: TrainConfig) -> str | None:
    """Return `run_dir` where it holds an unfinished run of the same settings: this command began it, and was killed."""
    run_dir = config.settings.run_dir
    run = RunFolder(Path(os.path.expanduser(run_dir or "")))
    if run_dir is None or run.finished or not run.config.exists():
        return None
    try:
        own = read_config(run.config)
    except ValueError:  # which no command has begun
        return None
    written = yaml.safe_load(yaml.safe_dump(config.plain))  # tuples are lists there
    before, now = (flat(settings, without={Role.COMMAND}) for settings in (own, written))
    settings = (before | now).keys() - {"pos_name", *PROVENANCE_FIELDS}
    same = all(before.get(name) == now.get(name) for name in settings)
    return run_dir if same else None


def _begun(config: TrainConfig) -> dict[str, Any]:
    """Return what a run that begins now records beside its settings."""
    return initial_fields(config.settings.init_from) | {"parts_fingerprint": parts_fingerprint(config.parts)}


@contextmanager
def _held_folder(path: Path) -> Iterator[RunFolder]:
    """Yield the folder of a run that resumes, locked by rank zero. Raises SettingError if it is in use."""
    run = RunFolder(path)
    if rank():
        yield run
        return
    try:
        lock = run.held("resume")
        run.checkpoints.mkdir(exist_ok=True)
        for leftover in run.checkpoints.glob(f"*{UNFINISHED}"):  # of a process that was killed while it wrote
            leftover.unlink()
    except OSError as error:
        raise SettingError("resume", str(run), f"can't be written: {error.strerror}") from error
    with lock:
        yield run


def _newest_intact(run: RunFolder) -> tuple[Path | None, dict[str, Any], list[str]]:
    """Return (file, contents, a warning for each damaged file) of the checkpoint that the run resumes from; None and
    nothing if none was ever written. Raises SettingError if there are some but none can be used."""
    problems = []
    for path in (run.last, run.previous):
        if not path.exists():
            continue
        try:
            content = read_checkpoint(path)
        except ValueError as error:
            problems.append(f"{path}: {error}")
            continue
        warnings = [f"{problem}; resuming from {path.name}" for problem in problems]
        try:
            if run.best.exists():
                read_checkpoint(run.best)
        except ValueError:
            lost = "the best weights so far are lost, unless a later validation loss is lower"
            warnings.append(f"{run.best} is damaged: {lost}")
        return path, content, warnings
    if problems:
        problem = "no intact checkpoint is left; without its checkpoints folder the run starts over"
        raise SettingError("resume", run, f"{'; '.join(problems)}; {problem}")
    return None, {}, []


def _from_checkpoint(
    folder: RunFolder, checkpoint: Path, content: dict[str, Any], notes: list[str], config: TrainConfig
) -> ResumedRun:
    try:
        state, about = RunState.from_checkpoint(content), content["poslab"]
    except (KeyError, TypeError) as error:
        raise SettingError("resume", folder, f"{checkpoint}: its state is incomplete, or another version's") from error
    own = about["config"]
    _check_not_edited(folder, config, own, state.step)
    init_from = config.settings.init_from
    if init_from != own.get("init_from") and initial_fields(init_from).get("init_sha256") != own.get("init_sha256"):
        raise SettingError("init_from", init_from, "the run began with other weights")
    _check_not_shortened(state, config, own)
    _check_not_finished(folder, state, config, own)
    if folder.finished and any(has_stopped(of) for of in content.get("callbacks", {}).values() if "wait_count" in of):
        raise SettingError("resume", folder, f"early stopping has ended it after {state.step} steps")
    notes = notes + _code_notes(folder, config, about, state.step)
    provenance = {name: own[name] for name in PROVENANCE_FIELDS if name in own}
    provenance["extended"] = _extended(own, config, state.step)
    return ResumedRun(folder, checkpoint, state, str(about["data_sha256"]), notes, provenance)


def _check_not_edited(folder: RunFolder, config: TrainConfig, own: dict[str, Any], step: int) -> None:
    """Raise SettingError where settings that may not change are others than the run was trained with so far: its
    config.yaml may have been edited. own: the settings in its checkpoint."""
    before, now = flat(own), flat(config.plain)
    fixed = [name for name in before | now if name not in PROVENANCE_FIELDS and role_of(name) not in MAY_CHANGE]
    # A checkpoint of an earlier version lacks settings that have come since.
    changed = [name for name in fixed if before.get(name) != now.get(name) and (name in before or name not in names())]
    if changed:
        listed = ", ".join(
            f"{name}={as_typed(now.get(name))} (trained with {as_typed(before.get(name))})" for name in changed
        )
        problem = f"{folder.config.name} has other settings than its checkpoint of step {step}: {listed}"
        raise SettingError("resume", folder, f"{problem}; put them back, or begin a new run with init_from={folder}")


def _code_notes(folder: RunFolder, config: TrainConfig, about: dict[str, Any], step: int) -> list[str]:
    """Note a change of poslab's code. Raises SettingError where the source of the scheme, or of a part from outside
    poslab, has changed."""
    scheme, foreign = config.pos, " or ".join(foreign_parts(config.parts))
    others_edited = about["config"].get("parts_fingerprint") != parts_fingerprint(config.parts)
    if edited_part := edited(about, scheme, config.parts["model"]) or (foreign if others_edited else ""):
        problem = f"the code of {edited_part} has changed since step {step}; a new run trains the new code"
        raise SettingError("resume", folder, f"{problem}, the old code resumes this one")
    if changed_fingerprints(about, scheme):
        return [f"poslab's code has changed since step {step}: a new run may give another result"]
    return []


def _check_not_shortened(state: RunState, config: TrainConfig, own: dict[str, Any]) -> None:
    """Raise SettingError where the settings ask for less than the run was to train, or than it has trained."""
    epochs, steps = config.trainer.max_epochs, config.trainer.max_steps
    for name in ("max_epochs", "max_steps"):
        count: Any = getattr(config.trainer, name)
        planned, no_limit = own["trainer"][name], NO_LIMITS[name]
        if no_limit not in (count, planned) and count < planned:
            problem = f"the run was to have {planned}; it can be extended, not shortened"
            raise SettingError(f"trainer.{name}", count, problem)
    if epochs is not None and epochs < state.epochs:
        raise SettingError("trainer.max_epochs", epochs, f"the run has trained for {state.epochs} already")
    if steps != -1 and steps < state.step:
        raise SettingError("trainer.max_steps", steps, f"the run has trained for {state.step} already")


def _check_not_finished(folder: RunFolder, state: RunState, config: TrainConfig, own: dict[str, Any]) -> None:
    """Raise SettingError where the run is finished, and the settings ask for no more. own: its own settings."""
    before = flat(own)
    lengths = {name: value for name, value in flat(config.plain).items() if role_of(name) is Role.LENGTH}
    trained = {"trainer.max_epochs": state.epochs, "trainer.max_steps": state.step}
    reached = [name for name, count in trained.items() if lengths[name] not in (None, -1) and count >= lengths[name]]
    if not folder.finished or not (reached or all(before.get(name) == value for name, value in lengths.items())):
        return
    longer = "a greater trainer.max_epochs, max_steps or max_time, or a lower target_loss, trains on"
    if reached:
        longer = f"{' and '.join(f'{name}={lengths[name]}' for name in reached)} ends it, a greater one trains on"
    raise SettingError("resume", folder, f"it is finished, after {state.step} steps; {longer}")


def _extended(before: dict[str, Any], config: TrainConfig, step: int) -> list[str]:
    """Return the lengths that a run was to train before `config`, which its learning rate followed up to that step."""
    was, now = flat(before), flat(config.plain)
    changed = [name for name in ("trainer.max_epochs", "trainer.max_steps") if was[name] != now[name]]
    settings = " ".join(f"{name}={as_typed(was[name])}" for name in changed)
    return [*before.get("extended", []), *([f"{settings} to step {step}"] if changed else [])]


@contextmanager
def resume_hints(folder: RunFolder, config: TrainConfig) -> Iterator[None]:
    """Add the command that resumes the run to whatever ends it, but to a user's error."""
    earlier = threading.excepthook
    # The thread that writes TensorBoard's files raises a full disk, or a folder that is gone, in the main one, too.
    threading.excepthook = lambda fault: _out_of_room(fault.exc_value) or not folder.config.exists() or earlier(fault)
    try:
        yield
    except Interrupted as interrupted:
        command = _resume_command(folder, config)
        raise Interrupted(interrupted.number, f"{interrupted}; resume with: {command}") from None
    except Exception as error:
        if rank() == 0 and not folder.config.exists():
            raise RunStopped(f"{folder}: its folder, or its config.yaml, was removed while it trained") from error
        if isinstance(error, UserError):
            raise
        command = _resume_command(folder, config)
        if _out_of_room(error):
            kept = "its checkpoints are intact" if folder.has_checkpoint else "it has no checkpoint yet"
            reason = getattr(error, "strerror", error)
            raise RunStopped(f"{folder}: {reason}; {kept}. Make room and resume with: {command}") from error
        is_gloos = isinstance(error, RuntimeError) and "gloo" in str(error)  # which has no class for that
        if is_gloos or isinstance(error, torch.distributed.DistError):
            problem = "another process of the run is gone: killed, or its machine is down"
            raise RunStopped(f"{folder}: {problem}; resume with: {command}") from error
        error.add_note(f"Resume the run with: {command}")
        raise
    finally:
        threading.excepthook = earlier


def _resume_command(folder: RunFolder, config: TrainConfig) -> str:
    """Return what to type to resume; `allow_code` where the run names what only its owner may trust, and the launcher
    where one has started several processes."""
    allowed = ["allow_code=true"] if needs_allow_code(config.plain) else []
    command = command_line("train", f"resume={folder}", *allowed)
    return f"{command} (with as many processes, by torchrun or srun as before)" if launched("auto") else command


def _out_of_room(error: BaseException | None) -> bool:
    return getattr(error, "errno", None) in _NO_ROOM
