"""Models in the format of the transformers library: out of poslab, and into it."""
