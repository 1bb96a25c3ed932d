"""Vocabularies: the ids that a model reads and predicts, all of an encoding's or those that occur in the text.

Most of a small model is its token embedding, and most of its time goes into the head. The-verdict contains 1,416 of
GPT-2's 50,257 tokens; without the others the same experiment takes a fraction of the time. Losses of two vocabularies
can't be compared: with fewer tokens to choose from, guessing is easier.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from poslab.data.tokenizer import Encoding, end_of_text
from poslab.errors import SettingError, suggestion


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Encoding whose token `observed[i]` has id i; `observed` (V,) is int32 and ascending, None for all tokens."""

    encoding: Encoding
    observed: Tensor | None = None

    @property
    def name(self) -> str:
        return "full" if self.observed is None else "observed"

    @property
    def size(self) -> int:
        return self.encoding.n_vocab if self.observed is None else len(self.observed)

    @property
    def unit(self) -> str:
        """Return the name of a token of this encoding."""
        return getattr(self.encoding, "unit", "token")

    def encode(self, text: str, option: str = "text") -> list[int]:
        """Return the ids of a text, in which <|endoftext|> is text like any other.

        Raises SettingError, under the name `option`, for a text with tokens that the vocabulary doesn't have.
        """
        try:
            tokens = torch.tensor(self.encoding.encode_ordinary(text), dtype=torch.int32)
        except UnicodeEncodeError as error:
            raise SettingError(option, text, "has half of a surrogate pair, which no byte stands for") from error
        return self.narrow(tokens, option, text).tolist()

    def decode(self, ids: Sequence[int]) -> str:
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def decode_bytes(self, ids: Sequence[int]) -> bytes:
        """Return the bytes of the tokens in UTF-8; one by itself may be a part of a character only. Raises SettingError
        for ids that the vocabulary doesn't have."""
        if not all(0 <= i < self.size for i in ids):
            raise SettingError("ids", "[...]", f"must be from 0 to {self.size - 1}")
        tokens = list(ids) if self.observed is None else self.observed[list(ids)].tolist()
        return self.encoding.decode_bytes(tokens)

    @property
    def end_of_text(self) -> int | None:
        """Return the id of <|endoftext|>; None where the encoding has none, or the text had none and ids are its
        own."""
        token = end_of_text(self.encoding)
        if token is None or self.observed is None:
            return token
        ids = (self.observed == token).nonzero().flatten().tolist()
        return ids[0] if ids else None

    def narrow(self, tokens: Tensor, option: str = "text", value: str = "...") -> Tensor:
        """Return the encoding's ids (N,), int32 or uint16, as ids of this vocabulary, int32. Raises SettingError for
        `option` and its `value` where the vocabulary doesn't have them all."""
        if self.observed is None:
            return tokens
        tokens = tokens.to(torch.int32)
        ids = torch.searchsorted(self.observed, tokens.contiguous(), out_int32=True)
        known = self.observed[ids.clamp(max=self.size - 1)] == tokens
        if not known.all():
            unknown = self.encoding.decode_bytes(tokens[~known][:10].tolist()).decode("utf-8", errors="replace")
            of_text = f"{self.size:,} {self.unit}s of the text it was trained on"
            problem = f"the model knows only the {of_text}, not {unknown!r}"
            raise SettingError(option, value, problem)
        return ids


@dataclass(frozen=True, eq=False)
class Symbols:
    """Vocabulary of a task: text is the names of its symbols, with spaces between them."""

    symbols: tuple[str, ...]

    name: ClassVar[str] = "symbols"
    observed: ClassVar[None] = None

    @property
    def size(self) -> int:
        return len(self.symbols)

    def encode(self, text: str, option: str = "text") -> list[int]:
        """Return the ids of a text. Raises SettingError, under the name `option`, for a name that no symbol has."""
        ids = {symbol: number for number, symbol in enumerate(self.symbols)}
        for word in text.split():
            if word not in ids:
                raise SettingError(option, text, f"{word} is no symbol; {suggestion(word, self.symbols)}")
        return [ids[word] for word in text.split()]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(self.symbols[i] for i in ids)

    def decode_bytes(self, ids: Sequence[int]) -> bytes:
        """Return the names in UTF-8, with a space after each, so that pieces can be put together."""
        return "".join(f"{self.symbols[i]} " for i in ids).encode()

    @property
    def end_of_text(self) -> int | None:
        return self.symbols.index("EOS") if "EOS" in self.symbols else None


AnyVocabulary = Vocabulary | Symbols


def observed_ids(tokens: Tensor) -> Tensor:
    """Return the ids that occur in the tokens (N,): (V,) int32, ascending."""
    pieces = tokens.split(1 << 20)  # views
    most = max((int(_indices(piece).max()) for piece in pieces if len(piece)), default=-1)
    present = torch.zeros(1 + most, dtype=torch.bool)
    for piece in pieces:
        present[_indices(piece)] = True
    return present.nonzero().flatten().to(torch.int32)


def _indices(tokens: Tensor) -> Tensor:
    """Return the tokens as int64: torch has few operations on uint16."""
    return tokens.to(torch.int64)
