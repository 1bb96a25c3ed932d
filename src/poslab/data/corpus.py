"""A text as two arrays of token ids, training and validation, cached on disk and memory-mapped.

The text is split before it is tokenised, and read in pieces, so that neither its length nor its alphabet decides how
much memory is needed.
"""

import codecs
import hashlib
import re
import sys
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import tiktoken
from torch import Tensor
from tqdm import tqdm

from poslab.data.token_files import read_tokens, write_tokens
from poslab.data.vocabulary import Vocabulary, observed_ids
from poslab.errors import SettingError, UserError
from poslab.settings.files import find_files, fingerprint, joined_sha256

TRAIN_FRACTION = 0.9  # of the characters
_PIECE = 1 << 20  # bytes of text, or tokens, at a time
_LAYOUT = "2"  # part of every cache key; another number wherever the same text would give other files

# Where every tiktoken pattern starts a new word, so that tokenising the text before and after separately gives the same
# tokens as tokenising it whole: between a letter or digit and a space or line end, and after a single line end (unless
# a slash follows, which o200k_base takes along). Elsewhere around punctuation and white space it may not.
_SAFE_CUT = re.compile(r"[^\W_](?=[ \r\n])|(?<=\S)\n(?=[^\s/])")


@dataclass(frozen=True)
class Corpus:
    """The tokens of a text: `train` and `validation` are int32 of (number of tokens,), ids of `vocabulary`."""

    name: str
    sha256: str
    vocabulary: Vocabulary
    train: Tensor
    validation: Tensor


def load_corpus(
    path: str,
    tokenizer: tiktoken.Encoding,
    cache_dir: Path,
    observed_only: bool = False,
    train_fraction: float = TRAIN_FRACTION,
) -> Corpus:
    """The text at `path`, tokenised now or before. Files of a folder or glob are joined by the end-of-text token.

    observed_only: renumber the ids that the text contains, training and validation together, and leave out all others.
    train_fraction: of the characters; with 0 all of the text is the validation part, tokenised in one piece.
    Raises SettingError for a text that is missing, empty, not UTF-8 or changing, UserError where the cache can't be
    written.
    """
    files = find_files(path)
    sha256 = fingerprint(path)
    key = hashlib.sha256(f"{_LAYOUT} {train_fraction} {tokenizer.name} {sha256}".encode()).hexdigest()[:32]

    def cached(name: str, make: Callable[[], Iterator[bytes]]) -> Tensor:
        file = cache_dir / f"{key}.{name}.bin"
        tokens = read_tokens(file)
        if tokens is None:
            write_tokens(file, make())
            tokens = read_tokens(file)
        if tokens is None:
            raise UserError(f"data.cache_dir={cache_dir}: {file.name} can't be made anew; name another")
        return tokens

    tokenised = partial(_tokenised, path, sha256, tokenizer)
    train = cached("train", lambda: tokenised(0, train_fraction))
    validation = cached("validation", lambda: tokenised(train_fraction, 1))
    vocabulary = Vocabulary(tokenizer)
    if observed_only:
        vocabulary = Vocabulary(tokenizer, observed_ids(train, validation))
        train = cached("observed.train", partial(_renumbered, train, vocabulary))
        validation = cached("observed.validation", partial(_renumbered, validation, vocabulary))
    name = files[0].name if len(files) == 1 else f"{len(files)} files of {path}"
    return Corpus(name, sha256, vocabulary, train, validation)


def _renumbered(tokens: Tensor, vocabulary: Vocabulary) -> Iterator[bytes]:
    return (vocabulary.narrow(piece).numpy().tobytes() for piece in tokens.split(_PIECE))


def _tokenised(path: str, sha256: str, tokenizer: tiktoken.Encoding, begin: float, end: float) -> Iterator[bytes]:
    """The tokens of the text from one share of its characters to another, as int32."""
    total = sum(len(piece) for piece in _pieces(path, sha256))
    if total == 0:
        raise SettingError("path", path, "the text is empty")
    start, stop = int(begin * total), int(end * total)
    if stop - start > 20 * _PIECE and not sys.stderr.isatty():  # where no bar is shown
        print(f"tokenising {stop - start:,} characters, once for this text and encoding ...", flush=True)
    bar = tqdm(total=stop - start, desc="tokenising", unit=" chars", unit_scale=True, leave=False, disable=None)
    with bar as progress:
        for tokens in _encoded(_between(_pieces(path, sha256), start, stop), tokenizer, progress):
            yield array("i", tokens).tobytes()


def _pieces(path: str, sha256: str) -> Iterator[str]:
    """The text in pieces of up to _PIECE characters; an empty piece stands between two files.

    Raises SettingError for what is no text; and at the end, where the bytes read are not those with that sha256.
    """
    hashes = []
    for number, file in enumerate(find_files(path)):
        if number:
            yield ""
        digest = hashlib.sha256()
        decoder = codecs.getincrementaldecoder("utf-8-sig")()  # drops a BOM
        try:
            with file.open("rb") as opened:
                while block := opened.read(_PIECE):
                    digest.update(block)
                    if piece := decoder.decode(block):
                        if "\0" in piece:
                            raise SettingError("path", path, f"{file} is not a text, it contains null bytes")
                        yield piece
            decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            problem = f"{file} is not UTF-8 text (byte 0x{error.object[error.start]:02x}); convert it to UTF-8 first"
            raise SettingError("path", path, problem) from error
        except OSError as error:
            raise SettingError("path", path, f"{file} can't be read: {error.strerror}") from error
        hashes.append(digest.hexdigest())
    if joined_sha256(hashes) != sha256:
        raise SettingError("path", path, "the text changed while it was read; start again once it is complete")


def _between(pieces: Iterator[str], start: int, stop: int) -> Iterator[str]:
    """The characters start..stop-1 of the pieces, and the empty pieces among them. All pieces are read, to the end,
    where the text is verified."""
    position = 0
    for piece in pieces:
        inside = piece[max(start - position, 0) : max(stop - position, 0)]
        if inside or (not piece and start < position < stop):
            yield inside
        position += len(piece)


def _encoded(pieces: Iterator[str], tokenizer: tiktoken.Encoding, progress: "tqdm[None]") -> Iterator[list[int]]:
    """The tokens of the pieces, the end-of-text token for an empty one."""
    rest = ""
    for piece in pieces:
        progress.update(len(piece))
        rest += piece
        if not piece:  # the end of a file
            yield [*tokenizer.encode_ordinary(rest), tokenizer.eot_token]
            rest = ""
        elif cut := _last_safe_cut(rest, since=len(rest) - len(piece)):
            yield tokenizer.encode_ordinary(rest[:cut])
            rest = rest[cut:]
    yield tokenizer.encode_ordinary(rest)


def _last_safe_cut(text: str, since: int) -> int:
    """The last place at or after `since` where the text may be cut; 0 if there is none."""
    for end in range(len(text), max(since, 1), -1000):
        cuts = [match.end() for match in _SAFE_CUT.finditer(text, max(end - 1001, since, 0), end)]
        if cuts:
            return cuts[-1]
    return 0
