"""Progress of what takes long, where there is no terminal: by a clock on which each look takes five seconds."""

from itertools import count

import pytest

from poslab.progress import progress


def test_a_line_every_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    clock = count(0, 5)
    assert list(progress("abcde", "reading", now=lambda: next(clock))) == [*"abcde"]
    assert capsys.readouterr().err == "reading: 2 of 5\nreading: 4 of 5\n"
    assert list(progress(iter("abc"), "reading", now=lambda: 0.0)) == [*"abc"]
    assert capsys.readouterr() == ("", "")
