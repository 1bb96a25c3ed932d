"""The book's training script at the size, data and number of epochs of our main job.

It is gpt_train.py of "Build a Large Language Model From Scratch" (Raschka 2024) with the package's own data set, model,
training and evaluation functions; what differs is the configuration, the tied head, and the tokenizer, which is the
bundled one because tiktoken's would be downloaded.
"""

import sys

import torch
from llms_from_scratch.ch02 import GPTDatasetV1
from llms_from_scratch.ch04 import GPTModel
from llms_from_scratch.ch05 import train_model_simple
from torch.utils.data import DataLoader

from poslab.data.files import BUNDLED_DATA
from poslab.data.tokenizer import load_tokenizer


def main(epochs: int) -> None:
    torch.manual_seed(123)
    text = (BUNDLED_DATA / "the-verdict.txt").read_text(encoding="utf-8")
    split = int(0.9 * len(text))
    tokenizer = load_tokenizer("gpt2")
    model = GPTModel(
        {
            "vocab_size": 50257,
            "context_length": 256,
            "emb_dim": 256,
            "n_heads": 4,
            "n_layers": 4,
            "drop_rate": 0.1,
            "qkv_bias": True,
        }
    )
    model.out_head.weight = model.tok_emb.weight
    torch.nn.init.normal_(model.tok_emb.weight, std=0.02)  # as a head, its own std of 1 would give enormous logits
    train, validation = (
        DataLoader(GPTDatasetV1(part, tokenizer, 256, stride), batch_size=2, shuffle=shuffle, drop_last=shuffle)
        for part, stride, shuffle in ((text[:split], 64, True), (text[split:], 256, False))
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.1)
    device = torch.device("cpu")
    train_model_simple(model, train, validation, optimizer, device, epochs, 5, 1, "Every effort moves you", tokenizer)


if __name__ == "__main__":
    main(int(sys.argv[1]))
