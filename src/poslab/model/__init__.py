"""Decoder: token vectors, blocks, the cache of keys and values, memory beyond the window, and text from it."""
