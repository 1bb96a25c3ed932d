"""Text to batches: tokenizer, tokenised corpus on disk, sliding windows, Lightning data module."""

from poslab.data.windows import SlidingWindowDataset

__all__ = ["SlidingWindowDataset"]
