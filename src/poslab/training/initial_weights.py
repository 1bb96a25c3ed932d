"""Weights to begin with, of another run or of a GPT-2: the trunk always, a scheme's tables where they fit."""

from torch import Tensor

from poslab.data.tokenizer import AnyVocabulary, tokens_of
from poslab.errors import SettingError
from poslab.hf.pretrained import check_sizes, init_from_pretrained
from poslab.model.decoder import GPT
from poslab.runs.checkpoint import vocabulary_of
from poslab.runs.checkpoint_files import read_checkpoint
from poslab.runs.initial import initial_files


def init_from(model: GPT, given: str, vocabulary: AnyVocabulary) -> str:
    """Load the weights that `given` names (`poslab.runs.initial`), and return in one line what was taken.

    Raises SettingError for weights of other sizes, or of other tokens than those of `vocabulary`.
    """
    file, *others = initial_files(given)
    if others:
        return init_from_pretrained(model, file.parent, vocabulary)
    content = read_checkpoint(file)
    about = content["poslab"]
    check_sizes(model, about["config"]["model"], given)
    if tokens_of(vocabulary_of(about)) != tokens_of(vocabulary):
        raise SettingError("init_from", given, "was trained on other tokens than those of these data")
    own = model.state_dict()
    theirs = {str(name).removeprefix("model."): weight for name, weight in content["state_dict"].items()}
    taken = {name: weight for name, weight in theirs.items() if name in own and own[name].shape == weight.shape}
    model.load_state_dict(taken, strict=False)
    new, left = ({n: w for n, w in weights.items() if n not in taken} for weights in (own, theirs))
    tables = f"tables taken: {_listed(taken)}; new: {_listed(new)}; left behind: {_listed(left)}"
    return f"from {file}: embedding and blocks of a {about['pos']} model; {tables}"


def _listed(weights: dict[str, Tensor]) -> str:
    """Return names and sizes of what is not of the trunk that all models share."""
    names = {name: name.removeprefix("position_tables.") for name in weights}
    apart = [name for name in names if name != names[name] or ".retrieval." in name]
    return ", ".join(f"{names[name]} {tuple(weights[name].shape)}" for name in apart) or "none"
