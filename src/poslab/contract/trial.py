"""A check of the contract, tried on a scheme or a block: its outcome, and the small models that checks are tried on.

A check makes small models with weights large enough for position to matter, and yields differences: what was compared,
what was computed and what it should be (tensors of one shape), and how far apart they may be, as a proportion of the
largest value, at least 1. Texts are longer than any window where one matters.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from poslab.config.nodes import flat_node
from poslab.config.parts import with_parts
from poslab.config.schemes import node_of
from poslab.errors import SettingError, UserError
from poslab.model.decoder import GPT
from poslab.model.memory import decoder_of
from poslab.positions import PositionScheme

Difference = tuple[str, Tensor, Tensor, float]
Check = Callable[..., Iterator[Difference]]
# Two blocks of a kernel; heads, layers and channels of a head can't be taken for each other.
SIZES: dict[str, Any] = {"context_length": 150, "embed_dim": 24, "num_layers": 3, "num_heads": 2}
LONGEST_WINDOW = 512  # because with more, the dense formula takes seconds
RISING = torch.tensor([[0, 1, 2, 5, 6, 9, 20, 21, 22, 30], [3, 4, 7, 7, 7, 8, 11, 12, 15, 39]])
SYMBOLS = [f"s{number}" for number in range(61)]
NEAR = 1e-5  # two ways to the same numbers; a scheme may compute them in float32


class NotTried(UserError):
    """Reason why a check says nothing about a scheme."""


class Differs(UserError):
    """What differs, and by how much."""


def compare(check: Check, scheme: PositionScheme, **sizes: Any) -> str:
    """Return how near the numbers of a check are. Raises Differs, NotTried, and SettingError for a hook's result."""
    torch.manual_seed(0)
    largest, limit, compared = 0.0, 0.0, False
    for what, computed, expected, room in check(scheme, **sizes):
        apart = float((computed - expected).abs().max().detach() / expected.abs().max().detach().clamp(min=1))
        largest, limit, compared = *max((largest, limit), (apart, room)), True
        if not apart <= room:  # NaN is not
            raise Differs(f"{what}: off by {apart:.2g} (limit {room:g})")
    return f"within {largest:.0e} (limit {limit:g})" if largest else "to the bit" * compared


def outcome(check: Check, scheme: PositionScheme, **block: Any) -> tuple[str, str]:
    """Return ("ok", the largest relative difference), ("differs", what, and by how much) or ("not tried", why)."""
    try:
        return "ok", compare(check, scheme, **block)
    except UserError as error:
        return "not tried" if isinstance(error, NotTried) else "differs", str(error)
    except Exception as error:  # because whatever a scheme raises is what was to be found
        return "differs", " ".join(f"{type(error).__name__}: {error}".split())


def beyond_window(scheme: PositionScheme, least: int) -> int:
    """Return how long a text must be for the scheme's window to hide something, at least `least`.

    The window is that of `relative`, or a whole-number setting, as `score_mod` may take its window from one. Raises
    NotTried for a window of `relative` that is wider than LONGEST_WINDOW.
    """
    model = small_model(scheme, context_length=least)
    windows = [terms.window for terms in model.relative_terms(1) if terms is not None and terms.window is not None]
    if max(windows, default=0) > LONGEST_WINDOW:
        problem = f"its window of {max(windows)} keys is wider than the texts here: try one of at most {LONGEST_WINDOW}"
        raise NotTried(problem)
    windows += [value for value in flat_node(node_of(scheme)).values() if type(value) is int]
    return max(least, *(window + 10 for window in windows if window <= LONGEST_WINDOW), 0)


def small_model(scheme: PositionScheme, **sizes: Any) -> GPT:
    """Return a model in float64. Raises NotTried for sizes that the scheme refuses."""
    torch.manual_seed(0)
    try:
        arguments = with_parts(SIZES | {"dropout": 0.0} | sizes, "model")
        model = decoder_of(scheme, vocab_size=len(SYMBOLS), **arguments)
    except SettingError as refused:
        if refused.option in ("pos", "model.norm", "model.mlp"):  # a mistake of its author
            raise
        raise NotTried(str(refused)) from None
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.double().eval()


def model_and_tokens(scheme: PositionScheme, sizes: dict[str, Any], least: int = 150) -> tuple[GPT, Tensor]:
    """Return a causal model, and tokens of a whole context, which is longer than a window unless `sizes` has one."""
    if "context_length" not in sizes:
        sizes = sizes | {"context_length": beyond_window(scheme, least)}
    model = small_model(scheme, **sizes)
    if not model.shape.causal:
        raise NotTried("the model isn't causal")
    return model, random_tokens(model.shape.context_length)


def random_tokens(length: int) -> Tensor:
    return torch.randint(len(SYMBOLS), (2, length))


def finite(what: str, values: Tensor) -> Difference:
    return f"{what}, which must be finite", 0 * values, values.new_zeros(()), 0.0
