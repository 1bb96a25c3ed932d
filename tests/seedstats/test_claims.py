"""The file of claims: what may stand in it, where it is found, and when it was written."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from poslab.comparison.claims import ALL, claims_file, parse_claim, read_claims, when_written
from poslab.comparison.groups import Group
from poslab.comparison.scores import Score

from poslab.config.files import CLAIMS, CONFIGS
from poslab.errors import UserError
from poslab.metric import loss_metric


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        ("better: t5, than: nope, data: back, length: 9, by: 0.2", "t5 better than nope by at least 0.2 on back at 9"),
        ("scheme: all, at_least: 0.9, data: majority, length: 51", "every scheme at least 0.9 on majority at 51"),
        ("scheme: t5, value: [1.0, 0.9], within: 0.1", "t5 as published, 0.95 within 0.1"),
        ("equal: [t5, rope], within: 0.02", "t5 equal to rope within 0.02"),
        ("of: [t5, rope], between: {bias: [true, false], norm: [layer, rms]}",
         "t5 better than rope by more with bias=true norm=layer than with bias=false norm=rms"),
    ],
)  # fmt: skip
def test_claims_in_words(claim: str, words: str) -> None:
    assert str(parse_claim(yaml.safe_load(f"{{{claim}}}"), "claim")) == words


@pytest.mark.parametrize(
    ("claim", "problem"),
    [
        ("5", "claims[0]=5: must be a claim, such as {better: NAME, than: NAME, by: 0.2, length: 96}"),
        ("{better: shaw}", "claims[0]={better: shaw}: must say better and than, equal and within, of and between, or"),
        ("{better: shaw, lenght: 9}", "claims[0].lenght=9: unknown setting; did you mean length?"),
        ("{better: t5, than: t5}", "claims[0].better=[t5,t5]: must be two that differ"),
        ("{better: t5, than: nope, 2: 0.3}", "claims[0].2=0.3: unknown setting"),
        ("{better: t5, than: all}", "claims[0]={better: t5, than: all}: needs schemes by name; all goes with"),
        ("{scheme: t5, at_least: 0.1, at_most: 0.9}", "must say better and than"),
        ("{better: t5, than: nope, by: -1}", "claims[0].by=-1: must be at least 0"),
        ("{scheme: all, value: 0.1}", "claims[0]={scheme: all, value: 0.1}: needs schemes by name; all goes with"),
        ("{scheme: t5, value: []}", "claims[0]={scheme: t5, value: []}: must say better and than"),
        ("{scheme: t5, at_least: 1, within: 0.1}", "must say better and than"),
        ("{scheme: t5, value: 1, length: 9, up_to: 9}", "claims[0].up_to=9: must be above length"),
        ("{equal: [t5, rope]}", "claims[0]={equal: [t5,rope]}: must say better and than"),
        ("{equal: [t5, rope, nope], within: 1}", "claims[0].equal=[t5,rope,nope]: must be two that differ"),
        (
            "{of: [t5, rope], between: {norm: layer}}",
            "claims[0].between={'norm': 'layer'}: must have two values for each",
        ),
        (
            "{of: [t5, rope], between: {norm: [rms, rms]}}",
            "claims[0].between=[norm=rms,norm=rms]: must be two that differ",
        ),
    ],
)
def test_what_is_no_claim(claim: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "claims.yaml"
    file.write_text(f"- {claim}")
    with pytest.raises(UserError, match=re.escape(problem)):
        read_claims(file)


@pytest.mark.parametrize("text", ["", "[]", "better: t5", "- [", b"\xff"])
def test_a_file_that_holds_something_else(text: str | bytes, tmp_path: Path) -> None:
    file = tmp_path / "claims.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError, match=re.escape(f"claims={file}: ")) as refusal:
        read_claims(file)
    assert "\n" not in str(refusal.value)


def test_a_name_is_of_the_claims_that_come_with_poslab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert claims_file("published/nanogpt") == CLAIMS / "published" / "nanogpt.yaml"
    (tmp_path / "mine.yaml").touch()
    assert claims_file("mine.yaml") == Path("mine.yaml")
    problem = "claims=published/nanogtp: no such file, nor one in configs/claims; did you mean published/nanogpt"
    with pytest.raises(UserError, match=re.escape(problem)):
        claims_file("published/nanogtp")


@pytest.mark.parametrize("file", sorted(CLAIMS.rglob("*.yaml")), ids=lambda file: file.stem)
def test_claims_are_of_an_experiment_and_of_schemes_that_there_are(file: Path) -> None:
    assert (CONFIGS / "experiment" / file.relative_to(CLAIMS)).exists()
    for claim in read_claims(file):
        names = {name.split()[0] for name in [*claim.pair, claim.scheme or ALL]} - {ALL}
        assert names <= {path.stem for path in CONFIGS.glob("pos/*.yaml")}
        assert claim.data is None or (CONFIGS / "data" / f"{claim.data}.yaml").exists()
    assert sum(claim.tested for claim in read_claims(file)) <= 12  # of which eight seeds can show each


def test_git_says_when_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "claims.yaml"
    file.write_text("- {better: t5, than: nope}")
    assert re.fullmatch(r"last changed \d{4}-\d\d-\d\d \d\d:\d\d, not known to git", when_written(file))
    mine = ("-c", "user.name=me", "-c", "user.email=me@here", "-c", "commit.gpgsign=false")
    for command in (["init", "-q"], ["add", "."], [*mine, "commit", "-qm", "claims"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    assert re.fullmatch(r"committed \d{4}-\d\d-\d\d \d\d:\d\d by [0-9a-f]{7}", when_written(file))
    file.write_text("- {better: nope, than: t5}")
    assert re.fullmatch(r"last changed .*, after its commit", when_written(file))


def test_names_of_schemes() -> None:
    settings = {"scale": "32.0", "share_layers": "true", "retrieval": "null"}
    group = Group("t5", "t5", Score(loss_metric(None), "loss"), settings, {}, {}, frozenset(), [], [])
    names = ("t5", "t5 scale=32", "t5 scale=32.0 share_layers=true", "t5 retrieval=null")
    assert all(map(group.is_named, names))
    others = ("shaw", "t5 scale=31", "t5 share_layers=false", "t5 width=32", "t5 retrieval=1")
    assert not any(map(group.is_named, others))
