"""Summary of a run: the figures of summary.json, and the flat settings by which TensorBoard compares runs."""

import math
import platform
import re
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Trainer

import poslab
from poslab.attention import Choice, choose_backend
from poslab.config.fields import NOT_SHOWN
from poslab.config.groups import flat
from poslab.config.nodes import scheme_settings, shown
from poslab.config.train import TrainConfig
from poslab.metric import LOSS, perplexity
from poslab.model.block import SelfAttention
from poslab.model.decoder import GPT
from poslab.runs.summary import Summary
from poslab.training.module import LanguageModel
from poslab.training.state import RunState

PACKAGES = ("poslab", "torch", "pytorch-lightning", "hydra-core", "tiktoken", "tensorboard")


def summarise(module: LanguageModel, trainer: Trainer) -> Summary:
    """Collect the figures and facts of a run that has just ended."""
    config, state = module.config, module.state
    counts = module.model.parameter_counts()
    commit, clean = git_state()
    return Summary(
        pos=config.pos_name,
        pos_settings=config.pos_settings,
        pos_target=config.plain["pos"]["_target_"],
        seed=config.settings.seed,
        best_val_loss=_finite(state.best_val_loss),
        best_val_perplexity=_finite(perplexity(state.best_val_loss)),
        best_step=state.best_step,
        best_monitored=best_monitored(config.settings.monitor, state),
        val_loss_tokens=state.val_loss_tokens,
        last_val_loss=_finite(state.last_val_loss),
        last_val_step=max(map(int, state.validations), default=None),
        late_fall=None if state.late_fall is None else _finite(state.late_fall),
        last_val_perplexity=_finite(perplexity(state.last_val_loss)),
        epochs=math.ceil((trainer.fit_loop.total_batch_idx + 1) / trainer.num_training_batches),
        steps=trainer.global_step,
        tokens=state.tokens,
        tokens_per_s=state.tokens_per_s,
        wall_time_s=state.clock.seconds,
        peak_memory_mb=_peak_memory_mb(trainer.strategy.root_device),
        params_total=counts["total"],
        params_trunk=counts["trunk"],
        params_scheme=counts["scheme"],
        context_length=config.model.context_length,
        init_from=config.settings.init_from,
        init_sha256=config.init_sha256,
        device=_device_name(trainer.strategy.root_device),
        threads=torch.get_num_threads(),
        precision=str(trainer.precision),
        attention_backend=training_backend(module.model, trainer.strategy.root_device, str(trainer.precision)),
        versions={"python": platform.python_version()} | {name: version(name) for name in PACKAGES},
        git_commit=commit,
        git_clean=clean,
        solved_step=state.solved_step,
        processes=module.data.processes,
        code_fingerprint=module.fingerprints["code_fingerprint"],
        scheme_fingerprint=module.fingerprints["scheme_fingerprint"],
        **module.data.facts,
    )


def best_monitored(monitor: str, state: RunState) -> float | None:
    """Return the best of the figure that `monitor` names; None if nothing was validated."""
    best = state.best_val_loss if monitor == LOSS else abs(state.best_monitored)
    return _finite(best) if state.best_step else None


def training_backend(model: GPT, device: torch.device, precision: str = "32-true") -> str:
    """Name the attention backend that training on `device` runs on; all of them where layers differ."""
    return ", ".join(sorted({choice.name for choice in training_choices(model, device, precision)}))


def training_choices(model: GPT, device: torch.device, precision: str = "32-true") -> set[Choice]:
    """Return the attention backends that training on `device` runs on, each with why; precision: of the trainer."""
    attention = model.blocks[0].attention
    assert isinstance(attention, SelfAttention)
    if attention.backend != "auto":
        return {Choice(attention.backend, "model.attention_backend")}
    length = model.shape.context_length
    dtype = torch.bfloat16 if "16" in precision else model.token_embedding.weight.dtype
    how = attention.dropout_p, device, dtype != torch.float64, dtype
    return {choose_backend(parts, length, *how) for parts in model.attention_parts()}


def backend_words(choices: set[Choice]) -> str:
    """Put backends and why they were chosen into one line."""
    return " and ".join(f"{choice.name} ({choice.why})" for choice in sorted(choices))


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def flat_settings(config: TrainConfig) -> dict[str, Any]:
    """Flatten the settings to scalars, with the same keys for every scheme: TensorBoard compares no others.

    Settings that only a scheme from outside configs/pos has stand together under "pos.other".
    """
    unset = scheme_settings()
    own = {f"pos.{name}": value for name, value in shown(config.pos_settings).items()}
    rest = {name: value for name, value in flat(config.plain, without=NOT_SHOWN).items() if not name.startswith("pos.")}
    other = [name for name in own if name not in unset]
    all_other = ", ".join(f"{name.removeprefix('pos.')}={own.pop(name)}" for name in other) or "n/a"
    settings = {"pos": config.pos_name} | unset | own | rest | {"pos.other": all_other}
    scalars = bool | int | float | str
    return {name: value if isinstance(value, scalars) else str(value) for name, value in settings.items()}


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    return f"{device} ({processor()}, {torch.backends.cpu.get_cpu_capability()})"


def processor() -> str:
    """Name the processor's model, where Linux says it, else its kind. What torch computes differs by rounding."""
    with suppress(OSError):
        listed = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        if match := re.search(r"^model name\s*: (.+)$", listed, flags=re.MULTILINE):
            return match[1].strip()
    return platform.machine()


def _peak_memory_mb(device: torch.device) -> float | None:
    """Return the peak of what torch allocated of a GPU, else of the process; None where the system doesn't say."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e6
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def git_state() -> tuple[str | None, bool | None]:
    """Return the commit of the package, and whether its files are as in that commit; None outside a git checkout."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(poslab.__file__).parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "HEAD"), not git("status", "--porcelain", "--", ".")
    except (OSError, subprocess.CalledProcessError):
        return None, None
