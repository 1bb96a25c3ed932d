"""Model that a run begins with: made by its settings; with weights of another run or of a GPT-2, of which the trunk is
taken always, a scheme's tables where they fit."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from poslab.config.groups import flat
from poslab.config.schema import OF_BLOCK
from poslab.config.train import TrainConfig
from poslab.data.tokenizer import AnyVocabulary, tokens_of
from poslab.errors import SettingError, lacks_memory
from poslab.hf.pretrained import check_same_sizes, init_from_pretrained
from poslab.model.decoder import GPT
from poslab.model.memory import decoder_of
from poslab.runs.checkpoint import vocabulary_of
from poslab.runs.checkpoint_files import read_checkpoint
from poslab.runs.initial import initial_files
from poslab.runs.saved_weights import require_fractions
from poslab.training.compilation import compilation


def make_model(config: TrainConfig, vocabulary: AnyVocabulary, processes: int, new: bool) -> GPT:
    """Make the model of a run and, if the run is new, give it the weights that it is to begin with.

    processes: how many train.

    Raises SettingError, naming the largest size, where it doesn't fit into memory.
    """
    try:
        settings = config.model.arguments | {"compile": compilation(config, processes)}
        model = decoder_of(config.pos, vocab_size=vocabulary.size, **settings)
    except SettingError as error:
        if error.option == "pos":
            raise
        raise error.prefixed("model") from None
    except (RuntimeError, MemoryError) as error:
        if not lacks_memory(error):
            raise
        sizes = {name: size for name, size in flat(config.plain).items() if name.startswith(("model.", "pos."))}
        largest = max((name for name, size in sizes.items() if type(size) is int), key=lambda name: sizes[name])
        problem = "the model does not fit into memory, and this is the largest of its sizes"
        raise SettingError(largest, sizes[largest], problem) from error
    if new and config.settings.init_from is not None:
        block = {name: getattr(config.model, name) for name in OF_BLOCK}
        print(init_from(model, config.settings.init_from, vocabulary, block))
    return model


def init_from(model: GPT, file_or_run: str, vocabulary: AnyVocabulary, block: Mapping[str, Any] | None = None) -> str:
    """Load the weights that `file_or_run` names (`poslab.runs.initial`), and return in one line what was taken.

    block: settings of the model's block. Raises SettingError for weights of other sizes or of another block, or of
    other tokens than those of `vocabulary`.
    """
    file, *others = initial_files(file_or_run)
    if others:
        return init_from_pretrained(model, file.parent, vocabulary)
    content = read_checkpoint(file)
    about = content["poslab"]
    check_same_sizes(model, about["config"]["model"], file_or_run)
    trained = about["config"]["model"]
    for name, own in (block or {}).items():
        if own != trained.get(name, own):
            raise SettingError(f"model.{name}", own, f"the weights of init_from={file_or_run} need {trained[name]}")
    if tokens_of(vocabulary_of(about)) != tokens_of(vocabulary):
        raise SettingError("init_from", file_or_run, "was trained on other tokens than those of these data")
    own = model.state_dict()
    theirs = {str(name).removeprefix("model."): weight for name, weight in content["state_dict"].items()}
    taken = {name: weight for name, weight in theirs.items() if name in own and own[name].shape == weight.shape}
    try:
        require_fractions(model, taken)
    except ValueError as error:
        raise SettingError("init_from", file_or_run, str(error)) from error
    model.load_state_dict(taken, strict=False)
    new = {name: weight for name, weight in own.items() if name not in taken}
    left = {name: weight for name, weight in theirs.items() if name not in taken}
    tables = {"tables taken": _listed(taken), "new": _listed(new), "left behind": _listed(left)}
    words = f"weights begin with those of {file}: embedding and blocks of a {about['pos']} model"
    if any(tables.values()):
        words += "".join(f"; {what}: {names or 'none'}" for what, names in tables.items())
    return words


def _listed(weights: dict[str, Tensor]) -> str:
    """Return names and sizes of what is not of the trunk that all models share."""
    names = {name: name.removeprefix("position_tables.") for name in weights}
    apart = [name for name in names if name != names[name] or ".retrieval." in name]
    return ", ".join(f"{names[name]} {tuple(weights[name].shape)}" for name in apart)
