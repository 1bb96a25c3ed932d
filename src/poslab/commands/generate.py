"""Command `generate`: the text on stdout, token by token, and notes on stderr."""

import codecs
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import product

import torch

from poslab.config.scripts import GenerateConfig
from poslab.data.tokenizer import AnyVocabulary
from poslab.model.generate import Sampling, stream
from poslab.processors import compute_on
from poslab.progress import progress
from poslab.runs.checkpoint import Checkpoint, choose_device, load_checkpoint
from seedstats.page.terminal import visible


def run_generation(config: GenerateConfig) -> None:
    """Print each prompt and the model's continuation. Raises UserError for whatever the user can put right."""
    compute_on(config.threads)
    checkpoint = load_checkpoint(config.ckpt, choose_device(config.device), config.allow_code, config.pos)
    if checkpoint.settings:
        print(f"note: {checkpoint.settings_in_words}", file=sys.stderr)
    encoded = [checkpoint.vocabulary.encode(prompt, "prompt") for prompt in config.prompt]
    prompts = [prompt for prompt in encoded for _ in range(config.samples)]
    if not config.strict:
        _note_limits(config, checkpoint, max(map(len, prompts)))
    stop_token = checkpoint.vocabulary.end_of_text if config.stop else None
    tokens = stream(
        checkpoint.model,
        prompts,
        config.max_new_tokens,
        sampling=Sampling(config.temperature, config.top_k, config.top_p),
        generator=torch.Generator().manual_seed(config.seed),
        stop_token=stop_token,
        window=config.window,
        strict=config.strict,
    )
    # On a terminal the text itself shows how far it is.
    steps = tokens if sys.stdout.isatty() else progress(tokens, "generating, tokens", config.max_new_tokens)
    columns: list[list[int]] = []  # a token of each text, again and again

    def first_text() -> Iterator[int]:
        for ids in steps:
            columns.append(ids.tolist())
            yield columns[-1][0]

    show = partial(show_text, checkpoint.vocabulary, stop_token)
    numbers = product(range(1, len(config.prompt) + 1), range(1, config.samples + 1))
    headings = [f"== prompt {p}, sample {s}\n" for p, s in numbers] if len(prompts) > 1 else [""]
    started = time.perf_counter()
    written = show(headings[0], prompts[0], first_text())
    seconds = time.perf_counter() - started
    for number in range(1, len(prompts)):
        written += show(headings[number], prompts[number], (column[number] for column in columns))
    print(f"{written:,} tokens in {seconds:.1f} s, {written / max(seconds, 1e-9):,.0f} tokens/s", file=sys.stderr)


def show_text(
    vocabulary: AnyVocabulary, stop_token: int | None, heading: str, prompt: list[int], new: Iterable[int]
) -> int:
    """Print a text as its tokens come, up to the stop token; return the number of new ones, that included."""
    # A character may be spread over several tokens: it is printed when it is complete.
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    count, stopped = 0, False
    # Somebody's model may write what a terminal obeys.
    shown: Callable[[str], str] = visible if sys.stdout.isatty() else str
    print(heading + shown(decoder.decode(vocabulary.decode_bytes(prompt))), end="", flush=True)
    try:
        for token in new:
            count += not stopped
            stopped = stopped or token == stop_token
            if not stopped:
                print(shown(decoder.decode(vocabulary.decode_bytes([token]))), end="", flush=True)
    finally:
        print(decoder.decode(b"", final=True))
    return count


def _note_limits(config: GenerateConfig, checkpoint: Checkpoint, prompt: int) -> None:
    """Note on stderr a prompt that isn't read in full, and a scheme whose positions will end."""
    model = checkpoint.model
    longest = model.most_positions(config.window)
    seen = min(prompt, model.most_read(config.window) or prompt)
    if prompt > seen:
        print(f"note: of the prompt's {prompt:,} tokens the model reads the last {seen:,}", file=sys.stderr)
    if longest is not None and seen + config.max_new_tokens - 1 > longest:
        print(
            f"note: this model knows {longest:,} positions; beyond them each token is computed anew from the last "
            f"{longest:,}, which is slower (strict=true refuses that)",
            file=sys.stderr,
        )
