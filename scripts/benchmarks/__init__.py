"""Benchmarks of attention, training steps, generation and start-up, beside other libraries; see README.md."""
