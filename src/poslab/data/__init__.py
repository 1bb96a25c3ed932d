"""Text to batches: tokenizer, tokenised corpus on disk, sliding windows, Lightning data module."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from poslab.data.windows import SlidingWindowDataset

__all__ = ["SlidingWindowDataset"]


def __getattr__(name: str) -> Any:
    # Late, so that files and encodings can be checked without loading torch.
    if name == "SlidingWindowDataset":
        from poslab.data.windows import SlidingWindowDataset

        return SlidingWindowDataset
    raise AttributeError(f"module 'poslab.data' has no attribute {name!r}")
