"""Attention with relative terms: `attend` picks the fastest backend that computes exactly the same."""

from poslab.attention.dispatch import BACKENDS, attend, choose_backend

__all__ = ["BACKENDS", "attend", "choose_backend"]
