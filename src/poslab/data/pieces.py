"""Pieces of a corpus that can be tokenised one by one: texts, cut where their tokens stay the same, and documents.

Neither the length of a text nor its alphabet decides how much memory a piece needs.
"""

import codecs
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import tiktoken

from poslab.config.files import Kind
from poslab.data.documents import read_documents
from poslab.data.tokenizer import Array, Bytes, Encoding
from poslab.errors import SettingError

_PIECE = 1 << 20  # bytes of a text, or characters of documents, at a time

# Where every tiktoken pattern starts a new word, so that tokenising the text before and after separately gives the same
# tokens as tokenising it whole: between a letter or digit and a space or line end, and after a single line end (unless
# a slash follows, which o200k_base takes along). Elsewhere around punctuation and white space it may not.
_SAFE_CUT = re.compile(r"[^\W_](?=[ \r\n])|(?<=\S)\n(?=[^\s/])")


@dataclass(frozen=True)
class Source:
    """Files that hold a corpus, and the `fingerprint` of what they held when they were looked at."""

    path: str
    files: Sequence[Path]
    kind: Kind
    column: str
    sha256: str


class Piece(NamedTuple):
    """Texts that are tokenised one by one. document_ends: whether a document ends with each; part_ends: whether a part
    of the corpus ends with them; read: characters of a text, or bytes of documents, up to their end."""

    texts: list[str]
    read: int
    document_ends: bool = True
    part_ends: bool = False


class Encoded(NamedTuple):
    """Tokens of a piece (N,), where documents end in them, how far the source has been read with it, and whether a
    part of the corpus ends there."""

    tokens: Array
    ends: Array
    read: int
    part_ends: bool = False


def document_pieces(source: Source) -> Iterator[Piece]:
    """Yield the documents of all files, as many at a time as have about _PIECE characters; the same ones each time."""
    before = 0
    for file in source.files:
        documents, length = [], 0
        for text, read in read_documents(source.path, file, source.column):
            documents.append(text)
            length += len(text)
            if length >= _PIECE:
                yield Piece(documents, before + read)
                documents, length = [], 0
        before += file.stat().st_size
        if documents:
            yield Piece(documents, before)


def text_pieces(source: Source, tokenizer: Encoding, stops: Sequence[int]) -> Iterator[Piece]:
    """Yield a text in pieces of about _PIECE characters. Each file is a document; between two parts, which are the
    characters up to each of the ascending `stops`, none ends. Raises SettingError as `read_text` does."""
    left, rest, read = list(stops), "", 0
    for block in read_text(source, binary=isinstance(tokenizer, Bytes)):
        if not block and read not in (0, *stops):
            yield Piece([rest], read)
            rest = ""
        while left and left[0] <= read + len(block):
            length = left.pop(0) - read
            read += length
            yield Piece([rest + block[:length]], read, document_ends=False, part_ends=True)
            rest, block = "", block[length:]
        rest += block
        read += len(block)
        words = isinstance(tokenizer, tiktoken.Encoding)  # else any cut leaves the tokens as they are
        if block and (cut := last_safe_cut(rest, since=len(rest) - len(block)) if words else len(rest)):
            yield Piece([rest[:cut]], read, document_ends=False)
            rest = rest[cut:]


def read_text(source: Source, binary: bool) -> Iterator[str]:
    """Yield a text in blocks of up to _PIECE characters, with an empty block between two files. binary: anything is a
    text, and each byte that is no UTF-8 a character.

    Raises SettingError for what is no text.
    """
    decoder_class = codecs.getincrementaldecoder("utf-8" if binary else "utf-8-sig")  # which drops a BOM
    for number, file in enumerate(source.files):
        if number:
            yield ""
        decoder = decoder_class("surrogateescape" if binary else "strict")
        try:
            with file.open("rb") as opened:
                while content := opened.read(_PIECE):
                    if block := decoder.decode(content):
                        if "\0" in block and not binary:
                            raise SettingError("path", source.path, f"{file} is not a text, it contains null bytes")
                        yield block
            if block := decoder.decode(b"", final=True):  # of a character that the file leaves unfinished
                yield block
        except UnicodeDecodeError as error:
            problem = f"{file} is not UTF-8 text (byte 0x{error.object[error.start]:02x}); convert it to UTF-8 first"
            raise SettingError("path", source.path, problem) from error
        except OSError as error:
            raise SettingError("path", source.path, f"{file} can't be read: {error.strerror}") from error


def last_safe_cut(text: str, since: int) -> int:
    """Return the last position at or after `since` where the text may be cut; 0 if there is none."""
    for end in range(len(text), max(since, 1), -1000):
        cuts = [match.end() for match in _SAFE_CUT.finditer(text, max(end - 1001, since, 0), end)]
        if cuts:
            return cuts[-1]
    return 0
