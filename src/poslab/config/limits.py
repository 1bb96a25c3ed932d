"""Limits of settings that several groups of them have."""

MOST_THREADS = 1024  # torch crashes with many thousands
MOST_REMEMBERED = 1_000_000  # tokens
MOST_TOKENS = 12_288  # of a text at each length: two models' difference on them has a standard error below 0.006 nats
