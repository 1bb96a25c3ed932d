"""Attention, training step, generation and start-up of poslab, measured beside other libraries; see README.md."""
