"""Hydra sweeper of poslab."""
