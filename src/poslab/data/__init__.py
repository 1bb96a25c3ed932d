"""Text to batches: tokenizer, tokenised corpus on disk, sliding windows, Lightning data module."""

import poslab.lazy  # noqa: F401  # before anything here imports Lightning
from poslab.data.windows import SlidingWindowDataset

__all__ = ["SlidingWindowDataset"]
