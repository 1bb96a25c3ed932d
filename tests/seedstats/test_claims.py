"""The file of claims: what may stand in it, and when it was written."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from seedstats import BadSetting, read_claims
from seedstats.claims import parse_claim, when_written


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        ("better: t5, than: nope, data: back, length: 9, by: 0.2", "t5 better than nope by at least 0.2 on back at 9"),
        ("name: all, at_least: 0.9, data: majority, length: 51", "each at least 0.9 on majority at 51"),
        ("name: t5, value: [1.0, 0.9], within: 0.1", "t5 as published, 0.95 within 0.1"),
        ("equal: [t5, rope], within: 0.02", "t5 equal to rope within 0.02"),
        ("of: [t5, rope], between: {bias: [true, false], norm: [layer, rms]}",
         "t5 better than rope by more with bias=true norm=layer than with bias=false norm=rms"),
        ("of: [t5, rope, nope], between: {norm: [layer, rms]}, within: 0.05",
         "differences of t5, rope, nope with norm=layer and with norm=rms equal within 0.05"),
        ("better: t5 norm=rms, than: t5 norm=layer, times: 0.75, metric: loss, length: 64, beyond: 16",
         "t5 norm=rms better than 0.75 times t5 norm=layer in loss at 64 less that at 16"),
        ("all_of: [{name: t5, at_least: 1}, {name: nope, at_most: 0}]", "t5 at least 1 and nope at most 0"),
        ("claim: only t5 solves it, all_of: [{name: t5, at_least: 1}, {name: nope, at_most: 0}]", "only t5 solves it"),
    ],
)  # fmt: skip
def test_claims_in_words(claim: str, words: str) -> None:
    assert str(parse_claim(yaml.safe_load(f"{{{claim}}}"), "claim")) == words


@pytest.mark.parametrize(
    ("claim", "problem"),
    [
        ("5", "claims[0]=5: must be a claim, such as {better: NAME, than: NAME, by: 0.2, length: 96}"),
        (
            "{better: shaw}",
            "claims[0]={better: shaw}: must say better and than, equal and within, of and between, all_of",
        ),
        ("{better: shaw, lenght: 9}", "claims[0].lenght=9: unknown; did you mean length?"),
        ("{better: t5, than: t5}", "claims[0].better=['t5', 't5']: must be two that differ"),
        ("{better: t5, than: nope, 2: 0.3}", "claims[0].2=0.3: unknown"),
        ("{better: t5, than: all}", "claims[0]={better: t5, than: all}: needs groups by name; all goes with"),
        ("{name: t5, at_least: 0.1, at_most: 0.9}", "must say better and than"),
        ("{better: t5, than: nope, by: -1}", "claims[0]={better: t5, than: nope, by: -1}: by must be at least 0"),
        ("{name: all, value: 0.1}", "claims[0]={name: all, value: 0.1}: needs groups by name; all goes with"),
        ("{name: t5, value: []}", "claims[0]={name: t5, value: []}: must say better and than"),
        ("{better: t5, than: nope, by: much}", "claims[0].by=much: must be a number"),
        ("{better: t5, than: nope, length: 1.5}", "claims[0].length=1.5: must be a whole number of at least 1"),
        ("{better: 5, than: nope}", "claims[0].better=5: must be text"),
        ("{equal: t5, within: 1}", "claims[0].equal=t5: must be a list of names"),
        ("{name: t5, value: [a]}", "claims[0].value=['a']: must be a number, or a list of them"),
        ("{name: t5, at_least: 1, within: 0.1}", "must say better and than"),
        ("{name: t5, value: 1, length: 9, up_to: 9}", "claims[0].up_to=9: must be above length"),
        ("{equal: [t5, rope]}", "claims[0]={equal: ['t5', 'rope']}: must say better and than"),
        ("{equal: [t5, rope, t5], within: 1}", "claims[0].equal=['t5', 'rope', 't5']: must be two or more that differ"),
        ("{of: [t5, rope, nope], between: {norm: [a, b]}}", "claims[0].of=['t5', 'rope', 'nope']: must be two that"),
        ("{all_of: []}", "claims[0].all_of=[]: must be a list of claims"),
        ("{all_of: [{better: t5}]}", "claims[0].all_of[0]={better: t5}: must say better and than"),
        ("{all_of: [{name: t5, at_least: 1}], within: 1}", "must say better and than"),
        ("{better: t5, than: nope, times: 0}", "times and within above 0"),
        ("{name: t5, at_least: 1, beyond: 9}", "claims[0].beyond=9: must be another length than length"),
        (
            "{of: [t5, rope], between: {norm: layer}}",
            "claims[0].between={'norm': 'layer'}: must have two values for each",
        ),
        (
            "{of: [t5, rope], between: {norm: [rms, rms]}}",
            "claims[0].between=['norm=rms', 'norm=rms']: must be two that differ",
        ),
    ],
)
def test_what_is_no_claim(claim: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "claims.yaml"
    file.write_text(f"- {claim}")
    with pytest.raises(BadSetting, match=re.escape(problem)):
        read_claims(file)


@pytest.mark.parametrize("text", ["", "[]", "better: t5", "- [", b"\xff", "[" * 5000])
def test_a_file_that_holds_something_else(text: str | bytes, tmp_path: Path) -> None:
    file = tmp_path / "claims.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(BadSetting, match=re.escape(f"claims={file}: ")) as refusal:
        read_claims(file)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("word", ["name", "method", "model", "scheme"])
def test_other_words_for_a_name(word: str) -> None:
    assert parse_claim({word: "t5", "at_least": 1}) == parse_claim({"name": "t5", "at_least": 1})


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
