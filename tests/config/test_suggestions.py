"""What is suggested for a setting that there isn't: in train, and in the commands without groups."""

import re

import pytest
from common import compose_config
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException
from refusals import refused

from poslab.commands.train import run_train
from poslab.config.command_line import parse_line
from poslab.config.overrides import explain
from poslab.config.scripts import CompareConfig, EvaluateConfig, ExplainConfig, ExportConfig, GenerateConfig
from poslab.errors import SettingError, UserError, suggestion
from seedstats.errors import suggestion as suggestion_of_a_table

# What is typed, of other projects or from memory, and the setting that is meant; "" where nothing is.
GUESSES = """
    lr                  optim.learning_rate         max_steps           trainer.max_steps
    epochs              trainer.max_epochs          context_length      model.context_length
    compile             model.compile               num_layers          model.num_layers
    steps               trainer.max_steps           batch_size          data.batch_size
    max_iters           trainer.max_steps           temperature         sample.temperature
    n_layer             model.num_layers            qk_norm             model.qk_norm
    n_head              model.num_heads             warmup_share        schedule.warmup_share
    n_embd              model.embed_dim             activation          model/mlp
    d_model             model.embed_dim             norm                model/norm
    block_size          model.context_length        n_kv_head           model.num_kv_heads
    bs                  data.batch_size             dropout_p           model.dropout
    wd                  optim.weight_decay          warmup              schedule.warmup_share
    file                data.path                   min_lr              schedule.final_share
    device              trainer.accelerator         grad_clip           trainer.gradient_clip_val
    optimizer           optim                       scheduler           schedule
    out_dir             run_dir                     patience            early_stopping_patience
    grad_accum          trainer.accumulate_grad_batches                 wandb   logger
    tie_weights         model.tied                  tokenizer           data.encoding
    optim.lr            optim.learning_rate         optim.beta1         optim.betas
    optim.schedule      schedule                    optim.warmup_steps  schedule.warmup_share
    data.batch          data.batch_size             data.file           data.path
    data.max_steps      trainer.max_steps           data.lr             optim.learning_rate
    model.block_size    model.context_length        model.lr            optim.learning_rate
    model.num_head      model.num_heads             model.activation    model/mlp
    model.context_lenght  model.context_length      trainer.epochs      trainer.max_epochs
    trainer.batch_size  data.batch_size             schedule.warmup     schedule.warmup_share
    seeds               seed                        po                  pos
    NumLayers           model.num_layers            topk                sample.top_k
"""
NOTHING_IS_MEANT = """
    vocab_size loss foo fast_dev_run rank ema label_smoothing z_loss seq x lr_decay num_seeds model.rotary model.foo
    data.shuffle optim.params trainer.foo
"""
IN_COMMANDS = [
    (EvaluateConfig, "checkpoint=x", "ckpt"),
    (EvaluateConfig, "ckpt=x data.path=y", "data_path"),
    (EvaluateConfig, "ckpt=x file=y", "data_path"),
    (EvaluateConfig, "ckpt=x length=64", "lengths"),
    (EvaluateConfig, "ckpt=x model.memory=64", "model.memory_length"),
    (EvaluateConfig, "ckpt=x lr=1", ""),
    (CompareConfig, "rnus=x", "runs"),
    (CompareConfig, "run_dir=x", "runs"),
    (CompareConfig, "output=x", "out"),
    (CompareConfig, "colour=red", ""),
    (ExplainConfig, "run=x", "ckpt"),
    (ExplainConfig, "ckpt=x text=y", "sentence"),
    (GenerateConfig, "ckpt=x prompt=y max_tokens=3", "max_new_tokens"),
    (GenerateConfig, "ckpt=x prompt=y temp=1", "temperature"),
    (GenerateConfig, "ckpt=x prompt=y num_samples=3", "samples"),
    (ExportConfig, "ckpt=x output_dir=y", "to"),
]


def suggested(message: str) -> str:
    assert "unknown setting; " in message
    found = re.search(r"did you mean (.*?)\?(?: valid: .*)?$", message)
    return found[1] if found else ""


GUESSED = [*zip(GUESSES.split()[::2], GUESSES.split()[1::2], strict=True)]


@pytest.mark.parametrize(("typed", "meant"), [*GUESSED, *((name, "") for name in NOTHING_IS_MEANT.split())])
def test_the_setting_that_is_meant_is_named_and_no_other(typed: str, meant: str) -> None:
    with pytest.raises((UserError, HydraException, OmegaConfBaseException)) as refusal:
        compose_config(f"{typed}=1")
    known = isinstance(refusal.value, UserError)
    assert suggested(str(refusal.value) if known else explain(refusal.value, [f"{typed}=1"])) == meant


@pytest.mark.parametrize(("schema", "line", "meant"), IN_COMMANDS)
def test_in_commands_without_groups(schema: type, line: str, meant: str) -> None:
    with pytest.raises(UserError) as refusal:
        parse_line(schema, line.split())
    assert suggested(str(refusal.value)) == meant


def test_a_setting_of_the_scheme_at_hand_is_named() -> None:
    typed = ["pos=t5", "num_buckets=8"]
    with pytest.raises(HydraException) as refusal:
        compose_config(*typed)
    assert suggested(explain(refusal.value, typed)) == "pos.num_buckets"


def test_a_long_list_of_names_is_left_out_where_one_is_suggested() -> None:
    many = [f"name_{letter}" for letter in "abcdefghij"]
    for offer in suggestion, suggestion_of_a_table:
        assert offer("name_a_", many) == "did you mean name_a?"
        assert offer("name_a_", many[:3]) == "did you mean name_a? valid: name_a, name_b, name_c"
        assert offer("foo", many) == f"valid: {', '.join(many)}"


def test_two_may_be_meant() -> None:
    """The exact name is that of a text file's token ids; in other projects it is the precision."""
    with pytest.raises(HydraException) as refusal:
        compose_config("dtype=bfloat16")
    assert suggested(explain(refusal.value, [])) == "data.dtype or trainer.precision"


def test_an_option_of_a_part_is_chosen_with_a_slash() -> None:
    with refused("model.norm", "rsm", "layer", "rms", "norm=NAME"):
        compose_config("model.norm=rsm")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "experiment=extrapolation pos=t5 seed=1 data=back",
            "data.validation_share=0.04: set by experiment=extrapolation; unknown set",
        ),
        ("debug=overfit data=back", "data.vocabulary=observed: set by debug=overfit; must be a whole number"),
        ("debug=overfit data=back data.vocabulary=x", "data.vocabulary=x: must be a whole number"),
        ("experiment=extrapolation pos=t5 seed=1 optim.learning_rate=-1", "optim.learning_rate=-1: must be at least 0"),
        ("experiment=extrapolation pos=t5 seed=1 model.num_heads=3", "model.num_heads=3: must divide"),
    ],
)
def test_a_setting_that_nobody_typed_is_that_of_the_experiment(line: str, message: str) -> None:
    with pytest.raises(SettingError) as caught:
        run_train(line.split())
    assert str(caught.value).startswith(message)
