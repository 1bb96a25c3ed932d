"""Initial weights of a decoder."""

from torch import nn


def initialise(decoder: nn.Module, std: float, token_std: float, num_layers: int) -> None:
    """Initialise as GPT-2 with another std: normal, biases zero, projections to the residual stream over sqrt(2 L)."""
    for name, parameter in decoder.named_parameters():
        if parameter.dim() < 2:
            continue  # torch's own: ones for a LayerNorm's weight, zeros for its bias
        residual = name.endswith(("attention.project.weight", "mlp.project.weight"))
        of_block = std / (2 * num_layers) ** 0.5 if residual else std
        nn.init.normal_(parameter, std=token_std if name == "token_embedding.weight" else of_block)
    for module in decoder.modules():
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
