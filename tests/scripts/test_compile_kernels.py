"""The check of compiled kernels covers all tiles, and says why where it can check nothing."""

import pytest

from maintenance import compile_kernels
from poslab.attention.kernels.near_far_launch import TILES


def test_every_tile_is_compiled() -> None:
    tasks = list(compile_kernels.tasks())
    compiled = {(task.form.tile_name(task.kernel), task.head_dim > 64) for task in tasks}
    assert compiled == {(name, large) for name in TILES for large in (False, True)}


def test_a_machine_without_triton_is_told_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compile_kernels, "find_spec", lambda name: None)
    assert compile_kernels.main() == 0
    assert "triton isn't installed" in capsys.readouterr().out
