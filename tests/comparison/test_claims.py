"""The claims that come with poslab, and where a file of claims is found."""

import re
from itertools import chain
from pathlib import Path

import pytest

from poslab.commands.compare import run_comparison
from poslab.config.files import CLAIMS, CONFIGS
from poslab.config.scripts import CompareConfig
from poslab.errors import UserError
from seedstats.claims import ALL, read_claims


def test_a_name_that_no_claims_have_is_refused_with_one_that_is_near(tmp_path: Path) -> None:
    problem = "claims=published/nanogtp: no such file, nor one in configs/claims; did you mean published/nanogpt"
    with pytest.raises(UserError, match=re.escape(problem)):
        run_comparison(CompareConfig([str(tmp_path)], claims="published/nanogtp"), "")


@pytest.mark.parametrize("file", sorted(CLAIMS.rglob("*.yaml")), ids=lambda file: file.stem)
def test_claims_are_of_an_experiment_and_of_schemes_that_there_are(file: Path) -> None:
    assert (CONFIGS / "experiment" / file.relative_to(CLAIMS)).exists()
    for claim in chain.from_iterable(claim.all_of or [claim] for claim in read_claims(file)):
        names = {name.split()[0] for name in [*claim.compared, claim.name or ALL]} - {ALL}
        assert names <= {path.stem for path in CONFIGS.glob("pos/*.yaml")}
        assert claim.data in (None, "tinyshakespeare.txt") or (CONFIGS / "data" / f"{claim.data}.yaml").exists()
    assert sum(claim.tested for claim in read_claims(file)) <= 12  # of which eight seeds can show each
