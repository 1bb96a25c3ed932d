"""Errors for the user: one line, no traceback, and an exit code of their own."""

import difflib
import operator
import re
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class UserError(ValueError):
    """Error that the user can put right. The message is one complete line."""

    exit_code = 2


class RunStopped(UserError):
    """End of a run that had begun well: a full disk, a loss that is no number any more."""

    exit_code = 1


class Diverged(RunStopped):
    """Loss or gradient that became infinite, or no number: a result of the run's settings."""


class SettingError(UserError):
    """Error of one setting, whose value can't work.

    `option` is the name as the raiser knows it ("num_buckets"), empty for all settings of a group together;
    `prefixed("pos")` gives the name as the command line knows it ("pos.num_buckets").
    """

    def __init__(self, option: str, value: Any, problem: str) -> None:
        self.option, self.value, self.problem = option, value, problem
        value_typed = f"{value:g}" if isinstance(value, float) else as_typed(value)
        super().__init__(" ".join(f"{option}={value_typed}: {problem}".splitlines()))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.option, self.value, self.problem)  # to pickle it for another process

    def prefixed(self, group: str) -> "SettingError":
        return type(self)(f"{group}.{self.option}".rstrip("."), self.value, self.problem)


class UnknownSetting(SettingError):
    """Error of a setting that its group, or the class chosen for it, doesn't have.

    name: within the group. valid: the settings that there are. elsewhere: those of other groups, which may be meant.
    prefix: what stands before them on the command line, "pos.of.".
    """

    def __init__(
        self, name: str, value: Any, valid: Iterable[str], elsewhere: Iterable[str] = (), prefix: str = ""
    ) -> None:
        self.name, self.valid, self.elsewhere, self.prefix = name, list(valid), list(elsewhere), prefix
        meant = suggestion(name, self.valid, self.elsewhere, prefix)
        super().__init__(f"{prefix}{name}", value, f"unknown setting; {meant}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, self.value, self.valid, self.elsewhere, self.prefix)

    def prefixed(self, group: str) -> "UnknownSetting":
        return type(self)(self.name, self.value, self.valid, self.elsewhere, f"{group}.{self.prefix}")


def as_typed(value: Any) -> str:
    """Write a value as on the command line: null, true, [64,128], {name: value}, plain text."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}: {as_typed(item)}' for name, item in value.items())}}}"
    return f"[{','.join(map(as_typed, value))}]" if isinstance(value, list) else str(value)


def require_at_least(lowest: float, **settings: float | None) -> None:
    """Raise SettingError for the first of the named settings that is below `lowest`; None means "not set"."""
    for option, value in settings.items():
        if value is not None and not value >= lowest:  # "not >=" also refuses NaN
            raise SettingError(option, value, f"must be at least {lowest}")


def require_one_of(choices: Iterable[Any], **settings: Any) -> None:
    """Raise SettingError, naming the nearest choice, for the first of the named settings that is none of `choices`."""
    valid = list(choices)
    for option, value in settings.items():
        if value not in valid:
            raise SettingError(option, value, f"unknown; {suggestion(str(value), map(str, valid))}")


def require_kind(kind: type, instead: str, **arguments: object) -> None:
    """Raise SettingError, with a call to make instead, for the first of the named arguments that is none of a kind."""
    for option, value in arguments.items():
        if not isinstance(value, kind):
            shown = value if isinstance(value, str) else described(value)
            raise SettingError(option, shown, f"must be a {kind.__name__}, as in {instead}")


# By the last part of a setting's name, what other projects call it: nanoGPT, litgpt, transformers, Lightning, and the
# commands of poslab among each other. Underscores and capitals don't count.
_CALLED_ELSEWHERE = {
    "learning_rate": "lr max_lr base_lr peak_lr",
    "weight_decay": "wd decay",
    "betas": "beta beta1 beta2 adam_betas",
    "eps": "epsilon adam_epsilon",
    "optim": "optimizer optimiser opt",
    "schedule": "scheduler lr_scheduler lr_schedule lr_scheduler_type decay_lr",
    "warmup_share": "warmup warmup_steps warmup_iters warmup_ratio num_warmup_steps",
    "final_share": "min_lr lr_min eta_min",
    "max_epochs": "epochs epoch num_epochs n_epochs num_train_epochs",
    "max_steps": "steps iters max_iters num_steps n_steps train_steps total_steps max_iterations iterations",
    "accumulate_grad_batches": "gradient_accumulation_steps grad_accum grad_accum_steps accumulation_steps",
    "gradient_clip_val": "grad_clip clip clip_grad clip_grad_norm max_grad_norm gradient_clipping max_norm",
    "precision": "dtype amp fp16 bf16 mixed_precision",
    "accelerator": "device",
    "devices": "gpus gpu n_gpus num_gpus ngpu",
    "log_every_n_steps": "log_interval logging_steps log_every",
    "val_check_interval": "eval_interval eval_steps eval_every val_interval val_every",
    "limit_val_batches": "eval_iters val_batches",
    "checkpoint_every_n_steps": "save_steps save_interval save_every checkpoint_interval",
    "early_stopping_patience": "patience",
    "num_workers": "workers n_workers dataloader_num_workers",
    "batch_size": "bs batch micro_batch_size train_batch_size per_device_train_batch_size",
    "context_length": "block_size seq_len seq_length sequence_length max_seq_len max_seq_length max_len max_length "
    "n_ctx ctx ctx_len context context_size context_window n_positions max_position_embeddings window_size",
    "embed_dim": "n_embd n_embed d_model dim hidden_size hidden_dim emb_dim embedding_dim embd width model_dim",
    "num_layers": "n_layer n_layers layers depth num_hidden_layers n_blocks",
    "num_heads": "n_head n_heads heads nhead num_attention_heads",
    "heads": "num_heads n_head n_heads nhead num_attention_heads",
    "head_dim": "head_size d_head dim_head d_kv n_embd_head",
    "num_kv_heads": "n_kv_head n_kv_heads num_key_value_heads kv_heads n_query_groups",
    "mlp": "activation act activation_function hidden_act ffn feed_forward",
    "norm": "norm_type normalization layer_norm rmsnorm",
    "biases": "bias use_bias",
    "tied": "tie tie_weights tie_word_embeddings weight_tying tie_embeddings",
    "dropout": "dropout_p dropout_rate drop p_drop resid_pdrop embd_pdrop attn_pdrop hidden_dropout_prob",
    "window": "sliding_window attention_window",
    "init_std": "initializer_range std",
    "attention_backend": "attn_implementation attention_implementation flash flash_attention backend",
    "compile": "torch_compile compile_model",
    "pos": "position positions positional_encoding position_encoding position_embedding position_embedding_type "
    "pos_encoding pos_emb pos_embed pe scheme",
    "base": "theta",
    "data": "dataset dataset_name task",
    "path": "file filename data_dir data_file train_file text_file dataset_path input input_file",
    "data_path": "path file text_file dataset",
    "encoding": "tokenizer",
    "vocabulary": "vocab",
    "column": "text_column text_field field",
    "validation_share": "val_split val_share val_size valid_size val_fraction",
    "test_share": "test_split test_size",
    "logger": "loggers wandb use_wandb wandb_log report_to tracker",
    "run_dir": "out out_dir output output_dir save_dir log_dir logdir default_root_dir run_name "
    "exp_name experiment_name",
    "out": "output output_dir out_dir",
    "to": "out output output_dir out_dir o",
    "resume": "ckpt ckpt_path checkpoint resume_from resume_from_checkpoint",
    "ckpt": "checkpoint ckpt_path run runs run_dir model model_path resume",
    "init_from": "pretrained weights load_from model_path",
    "runs": "run run_dir ckpt folder folders results",
    "seed": "random_seed manual_seed rng s",
    "threads": "cpus num_threads n_threads cores",
    "new_tokens": "max_new_tokens max_tokens num_tokens",
    "max_new_tokens": "new_tokens max_tokens num_tokens n_tokens tokens",
    "temperature": "temp",
    "samples": "num_samples n_samples num_return_sequences",
    "generate": "sample inference predict chat complete",
    "evaluate": "test validate score",
    "explain": "visualize inspect interpret",
    "prompt": "text start p",
    "sentence": "text prompt",
    "lengths": "length",
}


def _plain(name: str) -> str:
    """model.num_layers, NumLayers -> numlayers; model/norm -> norm."""
    return re.split(r"[./]", name)[-1].replace("_", "").replace("-", "").lower()


_OWN_NAMES: dict[str, set[str]] = {}
for _own, _names in _CALLED_ELSEWHERE.items():
    for _name in _names.split():
        _OWN_NAMES.setdefault(_plain(_name), set()).add(_plain(_own))


_MANY = 8  # names that nobody reads after a suggestion


def suggestion(name: str, choices: Iterable[str], elsewhere: Iterable[str] = (), prefix: str = "") -> str:
    """Suggest names for one that is none of the choices: "did you mean mini? valid: gpt2, mini". A long list is left
    out where a name is suggested.

    elsewhere: names that are suggested, but not listed: settings of other groups. prefix: what is typed before a
    choice, "data.", so that a suggestion can be pasted; one with a slash, "model/mlp", is whole. Of dotted names the
    last parts are compared. An exact one comes first, wherever it is, then what other projects mean by the name, then
    what begins with it, or is spelled like it.
    """
    names = list(choices)
    if not names:
        return "there are none here"
    near = _meant(_plain(name), names, list(elsewhere))
    near = [f"{prefix}{meant}" if meant in names and "/" not in meant else meant for meant in near]
    question, listed = f"did you mean {' or '.join(near)}?", f"valid: {', '.join(names)}"
    if not near:
        return listed
    return question if len(names) > _MANY else f"{question} {listed}"


def nearest(name: str, choices: Iterable[str]) -> str | None:
    """Return the one name that is meant by another, as `suggestion` has it; None where there is none, or several."""
    near = _meant(_plain(name), list(choices))
    return near[0] if len(near) == 1 else None


def _meant(typed: str, *pools: list[str]) -> list[str]:
    """Return the one or two names that are meant, of the first pool that has any; none where many might be."""

    def matches(is_meant: Callable[[str], bool]) -> list[str]:
        return next(filter(None, ([name for name in pool if is_meant(_plain(name))] for pool in pools)), [])

    own = _OWN_NAMES.get(typed, set())
    if exact := list(dict.fromkeys([*matches(lambda last: last == typed), *matches(lambda last: last in own)])):
        return exact[:2]
    begun = matches(lambda last: len(typed) > 2 and last.startswith(typed))
    if 0 < len(begun) < 3:
        return begun
    likeness = {last: _likeness(typed, last) for pool in pools for last in map(_plain, pool)}
    best = max(likeness.values(), default=0)
    return matches(lambda last: likeness[last] == best >= 0.8)[:2]


def _likeness(typed: str, last: str) -> float:
    """Return how alike two names are, from 0 to 1; those with one other letter, or in another order, are very much."""
    if (len(typed) == len(last) and sum(map(operator.ne, typed, last)) < 2) or sorted(typed) == sorted(last):
        return 0.9
    return difflib.SequenceMatcher(None, typed, last).ratio()


def first_line(error: Exception) -> str:
    """Return the first line of an error's message; of one without a message the name of its class."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def lacks_memory(error: BaseException) -> bool:
    """Return whether the error says that something is too large."""
    words = ("memory", "overflow", "too large")  # the latter two of sizes that no machine has
    is_torchs = isinstance(error, RuntimeError) and any(word in str(error).lower() for word in words)
    return is_torchs or isinstance(error, MemoryError)


@contextmanager
def blamed_on(option: str, owner: object, method: str) -> Iterator[None]:
    """Raise SettingError for whatever the owner's method raises within, but a UserError and a lack of memory.

    It names the method, also of an object of the same kind that the owner calls, and its line: "Mine.rotate
    (my_file.py, line 12)".
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if lacks_memory(error):
            raise
        where, kind = f"{type(owner).__name__}.{method}", type(owner).__mro__[-2]
        if isinstance(error, NotImplementedError) and not str(error):
            raise SettingError(option, where, "is missing") from error
        for frame, line in traceback.walk_tb(error.__traceback__):
            inner, code = frame.f_locals.get("self"), frame.f_code
            if isinstance(inner, kind) and hasattr(kind, code.co_name) and not code.co_name.startswith("_"):
                where = f"{type(inner).__name__}.{code.co_name} ({Path(code.co_filename).name}, line {line})"
        words = f": {error}" if str(error) else ""
        raise SettingError(option, where, f"raises {type(error).__name__}{words}") from error


def described(value: Any) -> str:
    """Return the shape and dtype of a tensor, or the type of anything else, for a message."""
    if not hasattr(value, "dtype"):
        return type(value).__name__
    return f"{tuple(value.shape)} of {str(value.dtype).removeprefix('torch.')}"
