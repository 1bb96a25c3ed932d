"""The configuration as typed objects, checked in full before torch is loaded.

configs/ holds the values, this file their types and limits. A position scheme brings its own: the dataclass named by
`pos._target_` is the schema of the group `pos`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import tiktoken
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from poslab.errors import SettingError, require_at_least, require_one_of
from poslab.positions import ModelShape, PositionScheme
from poslab.positions.base import BACKENDS
from poslab.positions.checks import check_sizes
from poslab.settings.contrasts import Contrast, parse_contrast
from poslab.settings.files import BUNDLED_DATA, find_files
from poslab.settings.roles import Limited, Role, roles, setting
from poslab.settings.schemes import TARGET, chosen, flat_node, given_of, node_of, parse_scheme
from poslab.settings.tasks import is_task, node_of_task, parse_task
from poslab.settings.typed import typed
from poslab.tasks import Task
from poslab.tasks.metric import LOSS, PERPLEXITY, SHARES

ACCELERATORS = ("auto", "cpu", "gpu", "cuda", "mps", "tpu")
PRECISIONS = ("32-true", "32", "bf16-mixed", "16-mixed", "bf16-true", "16-true", "64-true", "64")

# ${bundled:the-verdict.txt} in a yaml: a file of data/, wherever the command is started from.
OmegaConf.register_new_resolver("bundled", lambda name: str(BUNDLED_DATA / name), replace=True)


@dataclass
class ModelConfig(Limited):
    """The decoder; see poslab.GPT."""

    context_length: int
    embed_dim: int
    num_layers: int
    num_heads: int
    dropout: float = setting(least=0, below=1)
    init_std: float = setting(0.02, above=0)
    attention_backend: str = setting("auto", role=Role.ROUNDING, choices=BACKENDS)
    compile: bool = setting(False, role=Role.ROUNDING)

    def __post_init__(self) -> None:
        super().__post_init__()
        assert self.shape  # which checks the sizes

    @property
    def shape(self) -> ModelShape:
        return ModelShape(self.context_length, self.embed_dim, self.num_layers, self.num_heads)


@dataclass
class DataConfig(Limited):
    """The text and how it is cut; `stride` null means one context, `cache_dir` null the folder data/.cache. With
    encoding=characters the vocabulary is always the observed one."""

    path: str = setting(role=Role.TEXT)
    encoding: str = "gpt2"
    vocabulary: str = setting("full", choices=("full", "observed"))
    validation_share: float = setting(0.1, above=0, below=1, later=True)
    test_share: float = setting(0.0, least=0, below=1, later=True)
    batch_size: int = setting(4, least=1)
    stride: int | None = setting(None, least=1)
    num_workers: int = setting(0, role=Role.SPEED, least=0)
    cache_dir: str | None = setting(None, role=Role.SPEED)
    same_batch: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        processors = os.cpu_count() or 1
        if self.num_workers > processors:
            raise SettingError("num_workers", self.num_workers, f"must be at most {processors}, the processors here")
        check_encoding(self.encoding)
        if self.encoding == "characters":
            self.vocabulary = "observed"
        if self.validation_share + self.test_share >= 1:
            problem = f"leaves nothing to train on beside data.validation_share={self.validation_share:g}"
            raise SettingError("test_share", self.test_share, problem)
        find_files(self.path)


@dataclass
class OptimConfig(Limited):
    """AdamW, linear warm-up over a share of all steps, cosine decay to a share of the peak learning rate."""

    learning_rate: float = setting(least=0)
    weight_decay: float = setting(least=0)
    beta1: float = setting(least=0, below=1)
    beta2: float = setting(least=0, below=1)
    warmup_share: float = setting(least=0, below=1)
    final_share: float = setting(least=0, most=1)
    position_learning_rate_factor: float = setting(1.0, role=Role.SCHEME, least=0, later=True)


@dataclass
class TrainerConfig(Limited):
    """Settings of pytorch_lightning.Trainer under their own names."""

    accelerator: str = setting("auto", role=Role.ROUNDING, choices=ACCELERATORS)
    devices: Any = "auto"
    num_nodes: int = setting(1, least=1)
    strategy: str = "auto"
    precision: str = setting("32-true", choices=PRECISIONS)
    max_epochs: int | None = setting(None, role=Role.LENGTH, least=1)
    max_steps: int = setting(-1, role=Role.LENGTH)
    max_time: str | None = setting(None, role=Role.LENGTH)
    limit_train_batches: int | float | None = setting(None, above=0)
    limit_val_batches: int | float | None = setting(None, least=0)
    val_check_interval: int | float | None = setting(None, above=0)
    check_val_every_n_epoch: int | None = setting(1, least=1)
    accumulate_grad_batches: int = setting(1, least=1)
    gradient_clip_val: float | None = setting(None, least=0)
    log_every_n_steps: int = setting(5, role=Role.OUTPUT, least=1)
    deterministic: bool | None = setting(None, role=Role.ROUNDING)
    benchmark: bool | None = setting(None, role=Role.ROUNDING)
    detect_anomaly: bool = setting(False, role=Role.OUTPUT)
    profiler: str | None = setting(None, role=Role.OUTPUT)

    def __post_init__(self) -> None:
        super().__post_init__()
        for option in ("limit_train_batches", "limit_val_batches", "val_check_interval"):
            value = getattr(self, option)
            if isinstance(value, float) and value > 1:
                raise SettingError(option, value, "is a share, at most 1.0; a number of batches has no decimal point")
        if self.max_steps != -1:
            require_at_least(1, max_steps=self.max_steps)
        every = self.check_val_every_n_epoch
        if every is not None and self.max_epochs is not None and every > self.max_epochs:
            raise SettingError("check_val_every_n_epoch", every, f"must be at most max_epochs={self.max_epochs}")
        if self.max_epochs is None and self.max_steps == -1:
            raise SettingError("max_epochs", None, "set max_epochs or max_steps, or training would never end")


@dataclass
class SampleConfig(Limited):
    """The text that a run writes at every epoch; `prompt` null means how the validation text begins."""

    prompt: str | None = setting(None, role=Role.OUTPUT)
    new_tokens: int = setting(32, role=Role.OUTPUT, least=0)
    temperature: float = setting(0.8, role=Role.OUTPUT, least=0)
    top_k: int | None = setting(40, role=Role.OUTPUT, least=1)


@dataclass
class EvaluationConfig(Limited):
    """What is measured of the best weights once a run is over: losses at these lengths; none, nothing."""

    lengths: list[int] = setting([], role=Role.OUTPUT, least=1)
    stride: int | None = setting(None, role=Role.OUTPUT, least=1)
    last: int | None = setting(None, role=Role.OUTPUT, least=1)


@dataclass
class Settings(Limited):
    """What stands at the top level of configs/train.yaml beside the groups."""

    seed: int = setting(1, role=Role.SEED, least=0, below=2**32)
    run_dir: str | None = setting(None, role=Role.COMMAND)
    resume: str | None = setting(None, role=Role.COMMAND)
    init_from: str | None = setting(None, later=True)
    monitor: str = setting(LOSS, later=True)
    early_stopping_patience: int | None = setting(None, least=1)
    target_loss: float | None = setting(None, role=Role.LENGTH, least=0)
    checkpoint_every_n_steps: int | None = setting(100, role=Role.SPEED, least=1)
    threads: int | None = setting(None, role=Role.SPEED, least=1, most=1024)  # torch crashes with many thousands
    allow_code: bool = setting(False, role=Role.COMMAND)
    contrasts: list[Contrast] = setting([], role=Role.COMMAND)  # registered by a sweep when it begins

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.run_dir == "":
            raise SettingError("run_dir", "", "must name a folder; null makes one in runs")
        if self.init_from is not None:  # a run may go on from elsewhere, and a sweep's job start there
            self.init_from = os.path.abspath(os.path.expanduser(self.init_from))


@dataclass
class TrainConfig:
    """Everything a training run is made of."""

    pos: PositionScheme
    pos_name: str
    model: ModelConfig
    data: DataConfig | Task
    optim: OptimConfig
    trainer: TrainerConfig
    sample: SampleConfig
    evaluation: EvaluationConfig
    settings: Settings
    overrides: list[str] | None = None  # as typed; None: not known

    @property
    def pos_settings(self) -> dict[str, Any]:
        """The scheme's settings, its defaults included, in plain values."""
        node = node_of(self.pos)
        del node[TARGET]
        return node

    @property
    def plain(self) -> dict[str, Any]:
        """The same as nested dicts of plain values, in the shape of the yaml files, without settings of the command."""
        groups = {name: dataclasses.asdict(getattr(self, name)) for name in _GROUPS}
        if isinstance(self.data, Task):
            groups["data"] = node_of_task(self.data)
        else:  # a run may go on from elsewhere
            groups["data"]["path"] = os.path.abspath(os.path.expanduser(self.data.path))
        settings = {k: v for k, v in vars(self.settings).items() if role_of(k) is not Role.COMMAND}
        return {"pos": node_of(self.pos), **groups, **settings}

    @property
    def recorded(self) -> dict[str, Any]:
        """The content of config.yaml: all settings, what the scheme is called, and the overrides as they were typed."""
        typed = {} if self.overrides is None else {"overrides": self.overrides}
        return {"pos_name": self.pos_name} | typed | self.plain


_GROUPS: dict[str, type] = {
    "model": ModelConfig,
    "data": DataConfig,
    "optim": OptimConfig,
    "trainer": TrainerConfig,
    "sample": SampleConfig,
    "evaluation": EvaluationConfig,
}


_ROLES: dict[str, Role] = {
    f"{group}.{name}": role for group, schema in _GROUPS.items() for name, role in roles(schema).items()
} | roles(Settings)


# What runs have that were made before there was such a setting, by its name.
LATER: dict[str, Any] = {
    f"{group}.{field.name}" if group else field.name: field.default
    for group, schema in {**_GROUPS, "": Settings}.items()
    for field in dataclasses.fields(schema)
    if field.metadata.get("later")
}


def role_of(setting: str) -> Role:
    """The role of a setting by its name on the command line."""
    if setting == "pos_name" or setting.startswith("pos."):
        return Role.SCHEME
    return Role.COMMAND if setting == "overrides" else _ROLES.get(setting, Role.RESULT)


def names(of: Collection[Role]) -> list[str]:
    """The settings that have one of these roles; those of schemes are not among them."""
    return [name for name, role in _ROLES.items() if role in of]


def flat(config: TrainConfig | Mapping[Any, Any], without: Collection[Role] = ()) -> dict[str, Any]:
    """Settings by their names on the command line, {"trainer.max_epochs": 4, ...}, without those of some roles.

    config: as parsed, or as the plain dict of a config.yaml, which may be an older version's or hold unknown settings.
    """
    plain = config.plain if isinstance(config, TrainConfig) else config
    return {name: value for name, value in flat_node(plain).items() if role_of(name) not in without}


def training_of_scheme(config: TrainConfig | Mapping[Any, Any]) -> dict[str, Any]:
    """Settings outside `pos` that belong to the scheme all the same, {"position_learning_rate_factor": 1.0}; as in
    `flat`."""
    values = LATER | flat(config)
    return {name.rpartition(".")[2]: values[name] for name in names({Role.SCHEME}) if name in values}


def resolved(config: DictConfig) -> dict[str, Any]:
    """A composed config as plain values. Raises SettingError where one refers to another that there isn't."""
    try:
        plain: Any = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as error:
        raise SettingError(str(error.full_key), "...", str(error).splitlines()[0]) from None
    return dict(plain)


def parse(
    config: DictConfig | Mapping[str, Any], pos_name: str | None = None, overrides: list[str] | None = None
) -> TrainConfig:
    """Checks a config, composed or of plain values, and makes it typed.

    pos_name: what to call the scheme, by default its class. overrides: what was typed, to be recorded; of settings of
    the scheme it tells which are those of the class that was chosen.

    Raises SettingError for the first setting that is unknown, of the wrong type or impossible. Loads no torch.
    """
    plain = resolved(config) if isinstance(config, DictConfig) else config
    task = parse_task(plain["data"]) if is_task(plain.get("data")) else None
    schemas = {name: schema for name, schema in _GROUPS.items() if task is None or name != "data"}
    parsed: dict[str, Any] = {name: typed(schema, plain.get(name), name) for name, schema in schemas.items()}
    rest = {key: value for key, value in plain.items() if key not in _GROUPS and key != "pos"}
    scheme = parse_scheme(chosen(plain["pos"], given_of(overrides or ())))
    if not scheme.overrides("tables"):  # it learns nothing that could move faster: with any factor the same run
        parsed["optim"].position_learning_rate_factor = 1.0
    try:
        check_sizes(scheme, parsed["model"].shape)
    except SettingError as error:
        if error.option == "pos":
            raise
        raise error.prefixed("model" if error.option in vars(parsed["model"]) else "pos") from None
    if task is not None:
        _check_task(task, scheme.max_length(parsed["model"].shape), **parsed)
        parsed["data"] = task
    last, longest = parsed["evaluation"].last, parsed["model"].context_length
    if last is not None and last > longest:
        raise SettingError("evaluation.last", last, f"must be at most model.context_length={longest}")
    settings = typed(Settings, rest, "", {Contrast: parse_contrast})
    if settings.early_stopping_patience is not None and parsed["trainer"].limit_val_batches == 0:
        patience = settings.early_stopping_patience
        raise SettingError("early_stopping_patience", patience, "needs validation, but trainer.limit_val_batches=0")
    figures = SHARES if task is not None else (PERPLEXITY,)
    require_one_of([LOSS, *(figure.name for figure in figures)], monitor=settings.monitor)
    name = pos_name or type(scheme).__name__.lower()
    return TrainConfig(scheme, name, settings=settings, overrides=overrides, **parsed)


def _check_task(
    task: Task, positions: int | None, model: ModelConfig, evaluation: EvaluationConfig, sample: SampleConfig, **_: Any
) -> None:
    """Raises SettingError where the model can't read the task, or a setting is of texts. positions: of the scheme."""
    try:
        task.check(model.context_length, positions)
    except SettingError as error:
        raise error.prefixed("data") from None
    if evaluation.lengths:
        problem = "are lengths of windows over a text; a task is tested at data.test_lengths"
        raise SettingError("evaluation.lengths", evaluation.lengths, problem)
    if sample.prompt is not None:
        raise SettingError("sample.prompt", sample.prompt, "is how a text goes on; a task shows one of its examples")


def check_encoding(encoding: str) -> None:
    """Raises SettingError, naming the nearest, for an encoding that neither poslab nor tiktoken knows."""
    require_one_of([*tiktoken.list_encoding_names(), "characters", "bytes"], encoding=encoding)
