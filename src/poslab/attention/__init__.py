"""Attention with relative terms: `attend` picks the fastest backend that computes exactly the same."""

from poslab.attention.dispatch import BACKENDS, attend, check_backend, choose_backend

__all__ = ["BACKENDS", "attend", "check_backend", "choose_backend"]
