"""A trained model as a folder that transformers loads."""

import json
import shutil
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from poslab.config.files import EXPORTED, require_writable
from poslab.config.nodes import distinguishing, schemes, shown
from poslab.config.schema import OF_BLOCK
from poslab.config.trust import needs_allow_code
from poslab.errors import SettingError
from poslab.hf.tokenizer import write_tokenizer
from poslab.model.architectures import hf_equivalent
from poslab.model.memory import MemoryGPT, RetrievedAttention
from poslab.runs.checkpoint import Checkpoint
from poslab.runs.checkpoint_files import read_checkpoint, save_weights

_CODE = Path(__file__).with_name("modeling_poslab.py")


def export(checkpoint: Checkpoint, folder: Path) -> list[str]:
    """Writes config.json, the weights and the tokenizer; returns sentences on what can be done with them.

    A model that an architecture of transformers computes becomes one of that, any other a folder with code that calls
    poslab. Raises SettingError for a model that retrieves, and for a folder that holds something already, or can't be
    written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SettingError("to", folder, "is there already; name a folder that is empty, or is to be made")
    if any(isinstance(part, RetrievedAttention) for part in checkpoint.model.modules()):
        raise SettingError("ckpt", checkpoint.path, "looks up what it has read before, for which there is no form")
    require_writable("to", folder)
    folder.mkdir(parents=True, exist_ok=True)
    model = checkpoint.model
    equivalent = hf_equivalent(model)
    if equivalent is None:
        how = _write_with_code(checkpoint, folder)
    else:
        architecture, form = equivalent
        weights = architecture.to_transformers(model) | dict(form.weights)
        settings = architecture.config(model, checkpoint.vocabulary.size) | dict(form.settings)
        copies = {name: weight.detach().cpu().contiguous().clone() for name, weight in weights.items()}
        save_file(copies, folder / EXPORTED, {"format": "pt"})
        _write_config(checkpoint, folder, architecture.model_type, architecture.class_name, settings)
        how = f"a {architecture.model_type} model: AutoModelForCausalLM.from_pretrained({str(folder)!r})"
    tokenizer = _write_tokenizer(checkpoint, folder)
    without = "transformers knows nothing of its memory: there, a text is read in one pass"
    return [how, tokenizer, *([without] if isinstance(model, MemoryGPT) else [])]


def _write_with_code(checkpoint: Checkpoint, folder: Path) -> str:
    """Write the checkpoint as poslab reads it, and the code by which transformers does."""
    content = read_checkpoint(checkpoint.path)
    about = content["poslab"]
    save_weights(folder / EXPORTED, content["state_dict"], about)
    trained = about["config"]["model"]
    sizes = checkpoint.model.shape.sizes | {name: trained[name] for name in ("dropout", *OF_BLOCK) if name in trained}
    classes = {"AutoConfig": "PoslabConfig", "AutoModelForCausalLM": "PoslabForCausalLM"}
    settings = {
        "pos": about["config"]["pos"],
        "model": sizes,
        "vocab_size": checkpoint.vocabulary.size,
        "seed": about["config"]["seed"],
        "use_cache": False,
        "auto_map": {auto: f"{_CODE.stem}.{name}" for auto, name in classes.items()},
    }
    _write_config(checkpoint, folder, "poslab", classes["AutoModelForCausalLM"], settings)
    shutil.copy(_CODE, folder)
    allow_code = ", allow_code=True" * needs_allow_code({"pos": settings["pos"], "model": sizes})
    call = f"AutoModelForCausalLM.from_pretrained({str(folder)!r}, trust_remote_code=True{allow_code})"
    pos, default = (shown(node) for node in (settings["pos"], schemes().get(checkpoint.pos_name, settings["pos"])))
    scheme = " pos.".join([checkpoint.pos_name, *distinguishing(pos, [default])])
    return f"no architecture of transformers computes pos={scheme}, so the folder brings code: {call}"


def _write_config(checkpoint: Checkpoint, folder: Path, model_type: str, name: str, settings: dict[str, Any]) -> None:
    end = checkpoint.vocabulary.end_of_text
    content = {
        "model_type": model_type,
        "architectures": [name],
        "tie_word_embeddings": checkpoint.model.head is None,
        **settings,
        "poslab": _description(checkpoint),
        "bos_token_id": end,
        "eos_token_id": end,
        "dtype": str(checkpoint.model.token_embedding.weight.dtype).removeprefix("torch."),
    }
    (folder / "config.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _description(checkpoint: Checkpoint) -> dict[str, Any] | None:
    """Return what poslab knows of the model, which transformers keeps when it saves a model that it has tuned."""
    if not checkpoint.path.exists():  # a model that never was in a file
        return None
    about = dict(read_checkpoint(checkpoint.path)["poslab"])
    observed = about.get("observed")
    return about | {"observed": None if observed is None else observed.tolist()}


def _write_tokenizer(checkpoint: Checkpoint, folder: Path) -> str:
    """Write the tokenizer as transformers reads it; but GPT-2's, also a list of its tokens."""
    vocabulary = checkpoint.vocabulary
    has_tokenizer = write_tokenizer(vocabulary, folder, checkpoint.model.shape.context_length)
    if not (folder / "vocab.json").exists():
        tokens = [vocabulary.decode([i]) for i in range(vocabulary.size)]
        (folder / "tokens.json").write_text(json.dumps(tokens, ensure_ascii=False) + "\n", encoding="utf-8")
    if has_tokenizer:
        trust = ", trust_remote_code=True" * (folder / _CODE.name).exists()  # or transformers asks about the model's
        return f"its tokenizer: AutoTokenizer.from_pretrained({str(folder)!r}{trust})"
    return "its vocabulary is none that transformers has a tokenizer for; tokens.json says what each id stands for"
