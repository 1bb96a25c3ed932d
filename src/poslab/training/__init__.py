"""One training run: data, model, Lightning module, trainer, console, TensorBoard; `train.py` holds it together."""
