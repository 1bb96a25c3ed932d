"""Groups of settings of a training run: their types and limits.

configs/ holds the values. A position scheme brings its own: the dataclass named by `pos._target_` is the schema of the
group `pos`, and a task likewise that of the group `data`.
"""

from __future__ import annotations

import os
import re
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import tiktoken
from omegaconf import OmegaConf

from poslab.config.corpora import absolute, check_corpus, python_library, text_name
from poslab.config.fields import MOST_REMEMBERED, MOST_THREADS, Limited, Role, setting
from poslab.config.files import BUNDLED_DATA
from poslab.config.nodes import TARGET
from poslab.config.parts import Node, with_parts
from poslab.errors import SettingError, UserError, require_at_least, require_one_of
from poslab.metric import LOSS, PERPLEXITY

if TYPE_CHECKING:
    from poslab.positions import ModelShape


ACCELERATORS = ("auto", "cpu", "gpu", "cuda", "mps", "tpu")
PRECISIONS = ("32-true", "32", "bf16-mixed", "16-mixed", "bf16-true", "16-true", "64-true", "64")

# ${bundled:the-verdict.txt} in a yaml: a file of data/, wherever the command is started from.
OmegaConf.register_new_resolver("bundled", lambda name: str(BUNDLED_DATA / name), replace=True)
OmegaConf.register_new_resolver("python_library", python_library, replace=True)


@dataclass
class RetrievalConfig(Limited):
    """Layer that looks up earlier tokens of its document; see `poslab.model.memory.Retrieval`."""

    layer: int = setting(least=0)
    size: int = setting(8192, least=1, most=MOST_REMEMBERED)
    k: int = setting(32, least=1)
    position_bias: bool = False


# What a block is made of: weights of another one don't fit, or mean something else.
MADE = ("norm", "mlp")  # by a class that a node names
OF_BLOCK = (*MADE, "head_dim", "qk_norm", "num_kv_heads", "gate", "biases", "tied", "window")


@dataclass
class ModelConfig(Limited):
    """Decoder; see poslab.GPT."""

    context_length: int
    embed_dim: int
    num_layers: int
    num_heads: int
    head_dim: int | None = setting(None, least=1)
    norm: Node = setting({TARGET: "torch.nn.LayerNorm"})
    mlp: Node = setting({TARGET: "poslab.model.mlp.GELU"})
    qk_norm: str = setting("none", choices=("none", "rms", "key"))
    num_kv_heads: int | None = setting(None, least=1)
    gate: str = setting("none", choices=("none", "head", "element"))
    biases: bool = True
    tied: bool = True
    window: int | None = setting(None, least=1)
    dropout: float = setting(0.1, least=0, below=1)
    init_std: float = setting(0.02, above=0)
    attention_backend: str = setting("auto", role=Role.ROUNDING)
    compile: bool | None = setting(None, role=Role.ROUNDING)  # on CUDA
    # Told by the data, so no setting to be given: the longest text of a task, and whether it is read in segments.
    longest_text: int | None = setting(None, least=1, given=False)
    in_segments: bool = setting(False, given=False)
    memory_length: int = setting(0, role=Role.SCHEME, least=0, most=MOST_REMEMBERED)
    retrieval: RetrievalConfig | None = setting(None, role=Role.SCHEME)

    def __post_init__(self) -> None:
        super().__post_init__()
        assert self.shape  # which checks the sizes
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
class DataConfig(Limited):
    """Text and how it is cut; `stride` null means one context, `cache_dir` null the folder data/.cache. With
    encoding=characters the vocabulary is always the observed one."""

    path: str = setting(role=Role.LOCATION, help="a file, a folder, a quoted glob, or hf://owner/name")
    encoding: str = "gpt2"
    column: str = "text"
    name: str | None = None
    split: str | None = None
    dtype: str | None = setting(None, choices=("uint16", "uint32"))
    document_separator: str | None = None
    vocabulary: str = setting("full", choices=("full", "observed"))
    validation_share: float = setting(0.1, above=0, below=1)
    test_share: float = setting(0.0, least=0, below=1)
    batch_size: int = setting(4, least=1)
    stride: int | None = setting(None, least=1)
    order: str = setting("shuffled", choices=("shuffled", "stream"))
    documents: str = setting("joined", choices=("joined", APART))
    num_workers: int = setting(0, role=Role.SPEED, least=0, most=os.cpu_count())
    cache_dir: str | None = setting(None, role=Role.SPEED)
    same_batch: bool = False

    in_segments: ClassVar[bool] = False  # whether a model without memory, too, reads it in segments
    figures: ClassVar[tuple[str, ...]] = (PERPLEXITY.name,)  # of a validation, beside the loss
    test_lengths: ClassVar[tuple[int, ...]] = ()  # at which it is tested anyhow
    longest_text: ClassVar[int | None] = None  # of training, in tokens; None: a whole context

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
        super().__post_init__()
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
class OptimConfig(Limited):
    """What poslab makes parameter groups of for every optimizer (`training.optimizer.parameter_groups`); its class and
    all other settings of the group are a node (`config.parts`)."""

    learning_rate: float = setting(least=0)
    weight_decay: float = setting(0.0, least=0)
    position_learning_rate_factor: float = setting(1.0, role=Role.SCHEME, least=0)


@dataclass
class TrainerConfig(Limited):
    """Settings of pytorch_lightning.Trainer under their own names."""

    accelerator: str = setting("auto", role=Role.ROUNDING, choices=ACCELERATORS)
    devices: Any = setting("auto", role=Role.SPEED)
    num_nodes: int = setting(1, role=Role.SPEED, least=1)
    strategy: str = setting("auto", role=Role.SPEED)
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
            if isinstance(value, float) and value > 1:  # of which Lightning takes some as numbers
                raise SettingError(option, value, "is a share, at most 1.0; a number of batches has no decimal point")
        if self.max_steps != -1:
            require_at_least(1, max_steps=self.max_steps)
        if self.max_time is not None and not re.fullmatch(r"\d+:\d\d:\d\d:\d\d", self.max_time):
            raise SettingError("max_time", self.max_time, "must be days:hours:minutes:seconds, as in 00:02:00:00")
        if self.max_epochs is None and self.max_steps == -1 and self.max_time is None:
            raise SettingError("max_epochs", None, "set max_epochs, max_steps or max_time, or training would never end")


@dataclass
class SampleConfig(Limited):
    """Sampled text at every validation, `prompt` null means how the validation text begins; pictures, at validations
    whose step doubles ("doubling"), or of the last weights alone ("last")."""

    prompt: str | None = setting(None, role=Role.OUTPUT)
    new_tokens: int = setting(32, role=Role.OUTPUT, least=0)
    temperature: float = setting(0.8, role=Role.OUTPUT, least=0)
    top_k: int | None = setting(40, role=Role.OUTPUT, least=1)
    pictures: str = setting("doubling", role=Role.OUTPUT, choices=("doubling", "last"))


@dataclass
class EvaluationConfig(Limited):
    """Evaluation of the best weights once a run is over: losses at these lengths; none, nothing. probes: whether every
    validation measures heads and hidden states, too."""

    lengths: list[int] = setting([], role=Role.OUTPUT, least=1)
    stride: int | None = setting(None, role=Role.OUTPUT, least=1)
    last: int | None = setting(None, role=Role.OUTPUT, least=1)
    probes: bool = setting(False, role=Role.OUTPUT)


@dataclass
class Settings(Limited):
    """Settings at the top level of configs/train.yaml, beside the groups."""

    seed: int = setting(1, role=Role.SEED, least=0, below=2**32)
    run_dir: str | None = setting(None, role=Role.COMMAND)
    resume: str | None = setting(None, role=Role.COMMAND)
    init_from: str | None = setting(None, role=Role.LOCATION)
    monitor: str = LOSS
    early_stopping_patience: int | None = setting(None, least=1)
    target_loss: float | None = setting(None, role=Role.LENGTH, least=0)
    checkpoint_every_n_steps: int | None = setting(100, role=Role.SPEED, least=1)
    keep_last: bool = setting(True, role=Role.SPEED)
    threads: int | None = setting(None, role=Role.SPEED, least=1, most=MOST_THREADS)
    allow_code: bool = setting(False, role=Role.COMMAND)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.run_dir == "":
            raise SettingError("run_dir", "", "must name a folder; null makes one in runs")
        if self.init_from is not None:  # a run may be resumed in another folder, and a sweep's job start there
            self.init_from = os.path.abspath(os.path.expanduser(self.init_from))


def check_encoding(encoding: str) -> None:
    """Raise SettingError, naming the nearest, for an encoding that neither poslab nor tiktoken knows."""
    require_one_of([*tiktoken.list_encoding_names(), "characters", "bytes"], encoding=encoding)
