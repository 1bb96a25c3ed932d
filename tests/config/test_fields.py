"""Roles of settings: what each consumer of a configuration may leave out."""

import pytest
from common import compose_config

from poslab.config.fields import MAY_CHANGE, NOT_COMPARED, NOT_IDENTITY, NOT_REPEATED, NOT_SHOWN, Role
from poslab.config.groups import names, role_of
from poslab.config.nodes import TRAINING_OF_SCHEME, training_of_scheme


@pytest.mark.parametrize(
    ("option", "identity", "changes", "compared", "shown", "repeated"),
    [
        ("optim.learning_rate", True, False, True, True, True),
        ("optim.position_learning_rate_factor", True, False, False, True, True),
        ("optim.betas", True, False, True, True, True),
        ("schedule._target_", True, False, True, True, True),
        ("callbacks.mine.every", True, False, True, True, True),
        ("logger.csv.name", False, True, False, False, True),
        ("model.memory_length", True, False, False, True, True),
        ("model.retrieval.size", True, False, False, True, True),
        ("pos.any_setting", True, False, False, True, True),
        ("seed", True, False, False, True, True),
        ("trainer.max_epochs", True, True, True, True, True),
        ("data.path", False, True, False, True, True),
        ("model.attention_backend", True, False, False, True, True),
        ("evaluation.lengths", False, True, False, False, True),
        ("threads", False, True, False, False, False),
        ("run_dir", False, False, False, False, False),
        ("a_setting.nobody_knows", True, False, True, True, True),
    ],
)
def test_what_a_role_means(
    option: str, identity: bool, changes: bool, compared: bool, shown: bool, repeated: bool
) -> None:
    role = role_of(option)
    found = (role not in NOT_IDENTITY, role in MAY_CHANGE, role not in NOT_COMPARED, role not in NOT_SHOWN)
    assert (*found, role not in NOT_REPEATED) == (identity, changes, compared, shown, repeated)


def test_memory_is_a_setting_of_the_scheme() -> None:
    without = training_of_scheme(compose_config("data=distant_recall", "pos=t5").plain)
    assert without == {"position_learning_rate_factor": 1.0, "memory_length": 0, "retrieval": None}
    config = compose_config("data=distant_recall", "pos=t5", "model.retrieval.layer=1", "model.retrieval.size=64")
    told = {"retrieval": True, "retrieval.layer": 1, "retrieval.size": 64, "retrieval.k": 32}
    assert training_of_scheme(config.plain) == without | told | {"retrieval.position_bias": False}


def test_settings_of_a_scheme_are_those_with_its_role() -> None:
    assert set(TRAINING_OF_SCHEME) == set(names({Role.SCHEME}))
