"""Evaluation of one model: losses by length and position, attention maps, what its scheme has learned."""
