"""Groups of settings of a training run: their types and limits.

configs/ holds the values. A position scheme brings its own: the dataclass named by `pos._target_` is the schema of the
group `pos`, and a task likewise that of the group `data`.
"""

from __future__ import annotations

import os
import re
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from poslab.checked import Checked, Limits
from poslab.config.corpora import absolute, check_corpus, python_library, text_name
from poslab.config.fields import (
    Amount,
    Count,
    Positive,
    PositiveAmount,
    Remembered,
    Role,
    Seed,
    Share,
    Threads,
    setting,
)
from poslab.config.files import BUNDLED_DATA
from poslab.config.nodes import TARGET
from poslab.config.parts import module_node, with_parts
from poslab.errors import SettingError, UserError, require_at_least, require_one_of
from poslab.metric import LOSS, PERPLEXITY

if TYPE_CHECKING:
    from poslab.positions import ModelShape


Accelerator = Literal["auto", "cpu", "gpu", "cuda", "mps", "tpu"]
Precision = Literal["32-true", "32", "bf16-mixed", "16-mixed", "bf16-true", "16-true", "64-true", "64"]
REDUCE_OVERHEAD = "reduce-overhead"  # torch's name of the mode that records CUDA graphs
Compile = bool | Literal["reduce-overhead"]
Batches = Annotated[int, Limits(gt=0)] | PositiveAmount | None  # a number, or a share of an epoch

# ${bundled:the-verdict.txt} in a yaml: a file of data/, wherever the command is started from.
OmegaConf.register_new_resolver("bundled", lambda name: str(BUNDLED_DATA / name), replace=True)
OmegaConf.register_new_resolver("python_library", python_library, replace=True)
# Hydra takes any setting of these groups: their classes refuse what they don't have.
_OPEN = (
    "pos", "model", "data", "optim", "schedule", "trainer", "sample", "evaluation", "callbacks", "logger",
)  # fmt: skip
_STORE = ConfigStore.instance()
_STORE.store("open", {group: OmegaConf.create({}, flags={"struct": False}) for group in _OPEN})
_STORE.store("own", {TARGET: "???"}, group="pos")  # a class of the user's


@dataclass
class RetrievalConfig(Checked):
    """Layer that looks up earlier tokens of its document; see `poslab.model.memory.Retrieval`."""

    layer: Count
    size: Annotated[Remembered, Limits(ge=1)] = 8192
    k: Positive = 32
    position_bias: bool = False


# What a block is made of: weights of another one don't fit, or mean something else.
MADE = ("norm", "mlp")  # by a class that a node names
OF_BLOCK = (*MADE, "head_dim", "qk_norm", "num_kv_heads", "gate", "biases", "tied", "window")


@dataclass
class ModelConfig(Checked):
    """Decoder; its settings are arguments of poslab.GPT, or of its BlockForm."""

    context_length: int
    embed_dim: int
    num_layers: int
    num_heads: int
    head_dim: Positive | None = None
    norm: Any = setting({TARGET: "torch.nn.LayerNorm"})  # nodes, of `config.parts`
    mlp: Any = setting({TARGET: "poslab.model.mlp.GELU"})
    qk_norm: Literal["none", "rms", "key"] = "none"
    num_kv_heads: Positive | None = None
    gate: Literal["none", "head", "element"] = "none"
    biases: bool = True
    tied: bool = True
    window: Positive | None = None
    dropout: Share = 0.1
    init_std: PositiveAmount = 0.02
    attention_backend: str = setting("auto", role=Role.ROUNDING)
    compile: Compile | None = setting(None, role=Role.ROUNDING)  # on CUDA
    # Told by the data, so no setting to be given: the longest text of a task, and whether it is read in segments.
    longest_text: Positive | None = setting(None, given=False)
    in_segments: bool = setting(False, given=False)
    memory_length: Remembered = setting(0, role=Role.SCHEME)
    retrieval: RetrievalConfig | None = setting(None, role=Role.SCHEME)

    def __post_init__(self) -> None:
        assert self.shape  # which checks the sizes
        self.norm, self.mlp = module_node(self.norm, "norm"), module_node(self.mlp, "mlp")
        if self.num_heads % (self.num_kv_heads or 1):
            raise SettingError("num_kv_heads", self.num_kv_heads, f"must divide num_heads={self.num_heads}")

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of `poslab.model.memory.decoder_of`, its norm and MLP as what makes them."""
        return with_parts(vars(self), "model")

    @property
    def reach(self) -> int:
        """Number of tokens before a segment that it may see; 0: it has no memory."""
        return max(self.memory_length, 0 if self.retrieval is None else self.retrieval.size)

    @property
    def shape(self) -> ModelShape:
        from poslab.positions import ModelShape

        sizes = self.context_length, self.embed_dim, self.num_layers, self.num_heads
        return ModelShape(*sizes, longest_text=self.longest_text, head_dim=self.head_dim or 0)

    @property
    def shape_with_memory(self) -> ModelShape:
        """Shape whose context has the tokens that are remembered, too: the distances that a scheme meets."""
        return replace(self.shape, context_length=self.context_length + self.memory_length)


APART = "apart"  # of documents that share a window: none sees another


@dataclass
class DataConfig(Checked):
    """Text and how it is cut; `stride` null means one context, `cache_dir` null the folder data/.cache. With
    encoding=characters the vocabulary is always the observed one."""

    path: str = setting(role=Role.LOCATION, help="a file, a folder, a quoted glob, or hf://owner/name")
    encoding: str = "gpt2"
    column: str = "text"
    name: str | None = None
    split: str | None = None
    dtype: Literal["uint16", "uint32"] | None = None
    document_separator: str | None = None
    vocabulary: Literal["full", "observed"] = "full"
    validation_share: Annotated[Share, Limits(gt=0)] = 0.1
    test_share: Share = 0.0
    batch_size: Positive = 4
    stride: Positive | None = None
    order: Literal["shuffled", "stream"] = "shuffled"
    documents: Literal["joined", "apart"] = "joined"
    num_workers: Annotated[Count, Limits(le=os.cpu_count() or 1)] = setting(0, role=Role.SPEED)
    cache_dir: str | None = setting(None, role=Role.SPEED)
    same_batch: bool = False

    in_segments: ClassVar[bool] = False  # whether a model without memory, too, reads it in segments
    figures: ClassVar[tuple[str, ...]] = (PERPLEXITY.name,)  # of a validation, beside the loss
    test_lengths: ClassVar[tuple[int, ...]] = ()  # at which it is tested anyhow
    longest_text: ClassVar[int | None] = None  # of training, in tokens; None: a whole context

    @property
    def one_length(self) -> bool:
        """Whether the texts of all training batches have one length."""
        return self.documents != APART

    @property
    def title(self) -> str:
        """Name in summaries."""
        return text_name(self.path)

    @property
    def node(self) -> dict[str, Any]:
        """The settings in plain values; by the absolute path, because a run may be resumed in another folder."""
        return asdict(self) | {"path": absolute(self.path)}

    def check(self, context_length: int, positions: int | None, remembers: bool = False) -> None:
        """Raise SettingError where a model that remembers would not read on where it was."""
        if remembers and self.order != "stream":
            problem = "must be stream with model.memory_length or model.retrieval"
            raise SettingError("order", self.order, problem)

    def module(self, remembers: bool) -> str:
        """Return the data module of training, by name."""
        return f"poslab.training.data.{'stream.StreamDataModule' if self.order == 'stream' else 'text.TextDataModule'}"

    def example(self) -> str:
        raise UserError("--example: of a task, as in data=recall --example")

    def __post_init__(self) -> None:
        check_encoding(self.encoding)
        if self.encoding == "characters":
            self.vocabulary = "observed"
        if self.validation_share + self.test_share >= 1:
            problem = f"leaves nothing to train on beside data.validation_share={self.validation_share:g}"
            raise SettingError("test_share", self.test_share, problem)
        if self.order == "stream" and self.stride is not None:
            problem = "must be null: with data.order=stream windows don't overlap"
            raise SettingError("stride", self.stride, problem)
        if self.document_separator == "":
            raise SettingError("document_separator", "", "must be the text between two documents, or null")
        options = {"column": self.column, "dtype": self.dtype, "document_separator": self.document_separator}
        check_corpus(self.path, self.encoding, **options, name=self.name)


@dataclass
class OptimConfig(Checked):
    """What poslab makes parameter groups of for every optimizer (`training.optimizer.parameter_groups`); its class and
    all other settings of the group are a node (`config.parts`)."""

    learning_rate: Amount
    weight_decay: Amount = 0.0
    position_learning_rate_factor: Amount = setting(1.0, role=Role.SCHEME)


@dataclass
class TrainerConfig(Checked):
    """Settings of pytorch_lightning.Trainer under their own names."""

    accelerator: Accelerator = setting("auto", role=Role.ROUNDING)
    devices: Any = setting("auto", role=Role.SPEED)
    num_nodes: Positive = setting(1, role=Role.SPEED)
    strategy: str = setting("auto", role=Role.SPEED)
    precision: Precision = "32-true"
    max_epochs: Positive | None = setting(None, role=Role.LENGTH)
    max_steps: int = setting(-1, role=Role.LENGTH)
    max_time: str | None = setting(None, role=Role.LENGTH)
    limit_train_batches: Batches = None
    limit_val_batches: Count | Amount | None = None
    val_check_interval: Batches = None
    check_val_every_n_epoch: Positive | None = 1
    accumulate_grad_batches: Positive = 1
    gradient_clip_val: Amount | None = None
    log_every_n_steps: Positive = setting(5, role=Role.OUTPUT)
    deterministic: bool | None = setting(None, role=Role.ROUNDING)
    benchmark: bool | None = setting(None, role=Role.ROUNDING)
    detect_anomaly: bool = setting(False, role=Role.OUTPUT)
    profiler: str | None = setting(None, role=Role.OUTPUT)

    def __post_init__(self) -> None:
        for option in ("limit_train_batches", "limit_val_batches", "val_check_interval"):
            value = getattr(self, option)
            if isinstance(value, float) and value > 1:  # of which Lightning takes some as numbers
                raise SettingError(option, value, "is a share, at most 1.0; a number of batches has no decimal point")
        if self.max_steps != -1:
            require_at_least(1, max_steps=self.max_steps)
        if self.max_time is not None and not re.fullmatch(r"\d+:\d\d:\d\d:\d\d", self.max_time):
            raise SettingError("max_time", self.max_time, "must be days:hours:minutes:seconds, as in 00:02:00:00")
        if self.max_epochs is None and self.max_steps == -1 and self.max_time is None:
            raise SettingError("max_epochs", None, "set max_epochs, max_steps or max_time, or training would never end")


@dataclass
class SampleConfig(Checked):
    """Sampled text at every validation, `prompt` null means how the validation text begins; pictures, at validations
    whose step doubles ("doubling"), or of the last weights alone ("last")."""

    prompt: str | None = setting(None, role=Role.OUTPUT)
    new_tokens: Count = setting(32, role=Role.OUTPUT)
    temperature: Amount = setting(0.8, role=Role.OUTPUT)
    top_k: Positive | None = setting(40, role=Role.OUTPUT)
    pictures: Literal["doubling", "last"] = setting("doubling", role=Role.OUTPUT)


@dataclass
class EvaluationConfig(Checked):
    """Evaluation of the best weights once a run is over: losses at these lengths; none, nothing. probes: whether every
    validation measures heads and hidden states, too."""

    lengths: list[Positive] = setting([], role=Role.OUTPUT)
    stride: Positive | None = setting(None, role=Role.OUTPUT)
    last: Positive | None = setting(None, role=Role.OUTPUT)
    probes: bool = setting(False, role=Role.OUTPUT)


@dataclass
class Settings(Checked):
    """Settings at the top level of configs/train.yaml, beside the groups."""

    seed: Seed = setting(1, role=Role.SEED)
    run_dir: str | None = setting(None, role=Role.COMMAND)
    resume: str | None = setting(None, role=Role.COMMAND)
    init_from: str | None = setting(None, role=Role.LOCATION)
    monitor: str = LOSS
    early_stopping_patience: Positive | None = None
    target_loss: Amount | None = setting(None, role=Role.LENGTH)
    checkpoint_every_n_steps: Positive | None = setting(100, role=Role.SPEED)
    keep_last: bool = setting(True, role=Role.SPEED)
    threads: Threads | None = setting(None, role=Role.SPEED)
    allow_code: bool = setting(False, role=Role.COMMAND)

    def __post_init__(self) -> None:
        if self.run_dir == "":
            raise SettingError("run_dir", "", "must name a folder; null makes one in runs")
        if self.init_from is not None:  # a run may be resumed in another folder, and a sweep's job start there
            self.init_from = os.path.abspath(os.path.expanduser(self.init_from))


def check_encoding(encoding: str) -> None:
    """Raise SettingError, naming the nearest, for an encoding that neither poslab nor tiktoken knows."""
    import tiktoken  # which the help of a command doesn't need

    require_one_of([*tiktoken.list_encoding_names(), "characters", "bytes"], encoding=encoding)
