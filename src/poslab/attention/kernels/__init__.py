"""The kernels behind `attend`."""
