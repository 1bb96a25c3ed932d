"""Matrix products of bfloat16 attention: of numbers rounded to bfloat16, summed in float32, as flash kernels do.

Kernels compute in float32, so that scores, softmax and sums along the text keep their digits. Where the inputs came in
bfloat16, their products need not be more exact than that: a processor with matrix units for it takes half the time.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor

from poslab.processors import float32_products, float32_products_as


@contextmanager
def products_for(dtype: torch.dtype, device: torch.device) -> Iterator[None]:
    """Round products of float32 matrices on a CPU, within this context, as those of `dtype` may be."""
    with float32_products_as("bf16") if dtype == torch.bfloat16 and device.type == "cpu" else nullcontext():
        yield


@contextmanager
def unrounded() -> Iterator[None]:
    """Keep products exact within this context, or function.

    Products with small tables, on bands, are slower in the library that rounds, which copies their strided views.
    """
    with float32_products_as("ieee") if rounded() else nullcontext():
        yield


def rounded() -> bool:
    """Return whether products are rounded now."""
    return float32_products() == "bf16"


def for_product(x: Tensor) -> Tensor:
    """Prepare x for a product: for rounded ones a copy of a view, which their library would reorder first."""
    return x.contiguous() if rounded() else x
