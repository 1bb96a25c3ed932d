"""Text to batches: tokenizer, tokenised corpus on disk, sliding windows."""

from poslab.data.windows import SlidingWindowDataset

__all__ = ["SlidingWindowDataset"]
