"""Tokens of text files and of the .bin files that nanoGPT and llm.c write, read in pieces."""

import gzip
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tiktoken
from tqdm import tqdm

from poslab.config.corpora import compression_of, refuse_own_characters
from poslab.data.tokenizer import Array, Bytes, Encoding, encode_batch, end_of_text, end_token
from poslab.errors import SettingError, first_line
from poslab.processors import available

_PIECE = 1 << 20  # characters, or tokens, at a time
_DOCUMENTS, _CHARACTERS = 1024, 8 << 20  # at a time, whichever comes first

# Where every tiktoken pattern starts a new word, so that tokenising the text before and after separately gives the same
# tokens as tokenising it whole: between a letter or digit and a space or line end, and after a single line end (unless
# a slash follows, which o200k_base takes along). Elsewhere around punctuation and white space it may not.
_SAFE_CUT = re.compile(r"[^\W_](?=[ \r\n])|(?<=\S)\n(?=[^\s/])")

_FRAMES: dict[str, Callable[[], Any]] = {  # what makes a decompressor of one frame
    "bz2": lambda: import_module("bz2").BZ2Decompressor(),
    "xz": lambda: import_module("lzma").LZMADecompressor(),
    "zst": lambda: import_module("zstandard").ZstdDecompressor().decompressobj(),
}
_PACKED = 1 << 10  # packed bytes at a time, of which a .zst's may unpack to 30,000 times as many


class Encoded(NamedTuple):
    """Tokens (N,), and where documents end in them."""

    tokens: Array
    ends: Array


def read_text(path: str, file: Path, binary: bool) -> Iterator[str]:
    """Yield one of the text files at `path` in blocks of up to _PIECE characters. binary: anything is a text, and each
    byte that is no UTF-8 a character.

    Raises SettingError for what is no text.
    """
    try:
        with open_text(file, binary) as opened:
            while block := opened.read(_PIECE):
                if "\0" in block and not binary:
                    raise SettingError("path", path, _packed(file) or f"{file} is not a text, it contains null bytes")
                yield block
    except SettingError:
        raise
    except UnicodeDecodeError as error:
        problem = f"{file} is not UTF-8 text (byte 0x{error.object[error.start]:02x}); convert it to UTF-8 first"
        raise SettingError("path", path, _packed(file) or problem) from error
    except Exception as error:  # each compression has errors of its own
        reason = getattr(error, "strerror", None) or first_line(error)
        raise SettingError("path", path, f"{file} can't be read: {reason}") from error


def open_text(file: Path, binary: bool = False) -> Any:
    """Open a text, unpacked, whose line ends stay as they are; lines end at "\\n" alone.

    binary: each byte that is no UTF-8 is a character; else a byte order mark is dropped.
    """
    encoding, errors = ("utf-8", "surrogateescape") if binary else ("utf-8-sig", "strict")
    compression = compression_of(file)
    if compression in _FRAMES:
        frames = _Frames(file, _FRAMES[compression])
        return io.TextIOWrapper(io.BufferedReader(frames), encoding, errors, newline="\n")
    opener = gzip.open if compression else open
    return opener(file, "rt", encoding=encoding, errors=errors, newline="\n")


class _Frames(io.RawIOBase):
    """Contents of a file of compressed frames that follow each other, maybe with zeros between them.

    EOFError for one that was cut, which zstandard's own readers take for a whole one, and the library's error for a
    damaged frame, with which Python's readers of .bz2 and .xz take a file to end.
    """

    def __init__(self, file: Path, new_frame: Callable[[], Any]) -> None:
        self._new_frame = new_frame
        self._file, self._frame = file.open("rb"), None  # of the frame that has begun
        self._packed, self._ready = b"", memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            packed, self._packed = self._packed or self._file.read(_PACKED), b""
            if not packed and self._frame is not None:
                raise EOFError("Compressed file ended before the end of its last frame")
            if not packed:
                return 0
            if self._frame is None and not (packed := packed.lstrip(b"\0")):
                continue
            frame = self._frame or self._new_frame()
            self._ready = memoryview(frame.decompress(packed))
            self._frame, self._packed = (None, frame.unused_data) if frame.eof else (frame, b"")
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


_MAGIC = {b"\x1f\x8b": "gz", b"BZh": "bz2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zst", b"PK\3\4": "zip"}


def _packed(file: Path) -> str:
    """Return what is to be done with a file that is compressed and isn't called so, or is an archive; "" for others."""
    with file.open("rb") as opened:
        start = opened.read(8)
    kind = next((ending for magic, ending in _MAGIC.items() if start.startswith(magic)), "")
    if not kind:
        return ""
    if kind == "zip" or compression_of(file) or file.name.endswith((f".tar.{kind}", ".tgz")):
        return f"{file} is an archive: unpack it first"
    return f"{file} is compressed ({kind}): unpack it first, or give it a name such as {file.stem}.txt.{kind}"


def last_safe_cut(text: str, since: int) -> int:
    """Return the last position at or after `since` where the text may be cut; 0 if there is none."""
    for end in range(len(text), max(since, 1), -1000):
        cuts = [match.end() for match in _SAFE_CUT.finditer(text, max(end - 1001, since, 0), end)]
        if cuts:
            return cuts[-1]
    return 0


def text_pieces(path: str, files: Sequence[Path], tokenizer: Encoding, start: int, stop: int) -> Iterator[Encoded]:
    """Yield the tokens of the characters from `start` to `stop` of all files together, tokenised as if they were the
    whole text. Each file is a document; none ends at the end of the last one, or of the part."""
    words = isinstance(tokenizer, tiktoken.Encoding)  # in other encodings any cut leaves the tokens as they are

    def pieces() -> Iterator[tuple[str, bool]]:
        rest, read = "", 0
        for file in files:
            if start < read < stop:
                yield rest, True
                rest = ""
            for block in read_text(path, file, isinstance(tokenizer, Bytes)):
                mine = block[max(0, start - read) : max(0, stop - read)]
                rest, read = rest + mine, read + len(block)
                if mine and (cut := last_safe_cut(rest, since=len(rest) - len(mine)) if words else len(rest)):
                    yield rest[:cut], False
                    rest = rest[cut:]
                if read >= stop:
                    yield rest, False
                    return
        yield rest, False

    with tqdm(total=stop - start, desc="tokenising", unit_scale=True, leave=False, disable=None, delay=1) as bar:
        left = pieces()
        while batch := list(islice(left, 4 * available())):
            yield _encoded(tokenizer, *zip(*batch, strict=True))
            bar.update(sum(len(text) for text, _ in batch))


def _encoded(tokenizer: Encoding, texts: Sequence[str], document_ends: Sequence[bool]) -> Encoded:
    """Return the tokens of texts that follow each other, with the end-of-text token after those that end a document."""
    ending, tokens = end_token(tokenizer), []
    for text_tokens, is_end in zip(encode_batch(tokenizer, texts), document_ends, strict=True):
        tokens.append(np.concatenate([text_tokens, ending]) if is_end else text_tokens)
    ends = np.cumsum([len(text_tokens) for text_tokens in tokens])
    return Encoded(np.concatenate(tokens), ends[np.array(document_ends)])


def encoded_documents(documents: Iterable[str], tokenizer: Encoding) -> Iterator[Encoded]:
    """Yield the tokens of documents, each tokenised alone, with the end-of-text token after it."""
    bar = tqdm(documents, desc="tokenising", unit=" documents", leave=False, disable=None, delay=1)
    batch, characters = list[str](), 0
    for document in bar:
        batch.append(document)
        characters += len(document)
        if len(batch) == _DOCUMENTS or characters > _CHARACTERS:
            yield _encoded(tokenizer, batch, [True] * len(batch))
            batch, characters = [], 0
    if batch:
        yield _encoded(tokenizer, batch, [True] * len(batch))


def separated_documents(path: str, files: Sequence[Path], tokenizer: Encoding, separator: str) -> Iterator[Encoded]:
    """Yield the tokens of the documents that the separator divides the files into, but of those of white space alone. A
    line end after it goes with it."""

    def documents() -> Iterator[str]:
        for file in files:
            rest = ""
            for block in read_text(path, file, isinstance(tokenizer, Bytes)):
                *whole, rest = (rest + block).split(separator)
                for document in whole:
                    yield document.removeprefix("\r").removeprefix("\n")
            yield rest.removeprefix("\r").removeprefix("\n")

    return encoded_documents((document for document in documents() if document.strip()), tokenizer)


# Token ids that other trainers wrote

_HEADER = np.dtype("<i4"), 256  # of llm.c (dev/data/data_common.py there): a magic number, a version, number of tokens
_OF_MAGIC: dict[int, str] = {20240520: "uint16", 20240801: "uint32"}
_FEW = 1000  # tokens that may all be single bytes by chance


def token_documents(path: str, files: Sequence[Path], tokenizer: Encoding, dtype: str | None) -> Iterator[Encoded]:
    """Yield the token ids of .bin files as they are, but that one end-of-text token follows each document, and none
    stands before the first. Several files are one stream: llm.c cuts documents between them.

    Raises SettingError for a file that is not complete, whose type isn't known, or whose ids aren't the encoding's.
    """
    ending, ended = end_of_text(tokenizer), True  # whether no document is under way
    for file in files:
        refuse_own_characters(path, file)
        ids, highest = _token_ids(path, file, dtype), 0
        for first in range(0, len(ids), _PIECE):
            tokens = ids[first : first + _PIECE]
            if (beyond := tokens >= tokenizer.n_vocab).any():
                number = int(beyond.argmax())
                size = f"{tokenizer.name} has {tokenizer.n_vocab:,}: are data.encoding and data.dtype right?"
                problem = f"{file} has the token {tokens[number]:,} at position {first + number:,}; {size}"
                raise SettingError("path", path, problem)
            is_end = tokens == ending
            highest = max(highest, int(tokens[~is_end].max(initial=0)))
            repeated = is_end & np.concatenate(([ended], is_end[:-1]))
            ended = bool(is_end[-1])
            tokens = tokens[~repeated]
            yield Encoded(tokens, np.flatnonzero(tokens == ending) + 1)
        # Ids of characters, as nanoGPT's shakespeare_char has them, are also ids of tiktoken's encodings: single bytes.
        if len(ids) >= _FEW and highest < 256:
            problem = f"{file} has ids of its own characters, not tokens of {tokenizer.name}"
            raise SettingError("path", path, f"{problem}: name its text, with data.encoding=characters")
    if not ended:
        last = end_token(tokenizer)
        yield Encoded(last, np.array([len(last)]))


def _token_ids(path: str, file: Path, dtype: str | None) -> Array:
    """Return the ids of a .bin file (N,), memory-mapped."""
    kind, length = _HEADER
    try:
        size = file.stat().st_size
        header = np.fromfile(file, kind, length)
    except OSError as error:
        raise SettingError("path", path, f"{file} can't be read: {error.strerror}") from error
    start, header_dtype = 0, _OF_MAGIC.get(int(header[0])) if len(header) == length else None
    if header_dtype is not None and dtype in (None, header_dtype):
        start, dtype = header.nbytes, header_dtype
    if dtype is None:
        problem = f"must be uint16 or uint32, as {file} doesn't say which it holds; nanoGPT writes uint16"
        raise SettingError("dtype", None, problem)
    ids: np.dtype[Any] = np.dtype(dtype).newbyteorder("<")
    if (size - start) % ids.itemsize or (start and (size - start) // ids.itemsize != header[2]):
        raise SettingError("path", path, f"{file} is not complete, or holds something else than {dtype}")
    tokens = np.memmap(file, ids, "r", start) if size > start else np.array([], ids)
    if ids.itemsize == 2 and len(tokens) >= _FEW and not tokens[1:_PIECE:2].any():
        raise SettingError("dtype", dtype, f"every other token of {file} would be 0, so it seems to hold uint32")
    return tokens
