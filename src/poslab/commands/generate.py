"""What scripts/generate.py does: the text on stdout, token by token, and what there is to say about it on stderr."""

import codecs
import sys
import time

import torch

from poslab.data.vocabulary import Vocabulary
from poslab.errors import SettingError
from poslab.generate import Sampling, stream
from poslab.runs.checkpoint import Checkpoint, find_checkpoint, load_checkpoint
from poslab.settings.scripts import GenerateConfig
from poslab.training.device import choose_device


def run_generation(config: GenerateConfig) -> None:
    """Prints each prompt and what the model makes of it. Raises UserError for whatever the user can put right."""
    checkpoint = load_checkpoint(find_checkpoint(config.ckpt), choose_device(config.device), config.allow_code)
    prompts = [_encoded(prompt, checkpoint.vocabulary) for prompt in config.prompt for _ in range(config.samples)]
    if not config.strict:
        _say_what_is_left_out(config, checkpoint, max(map(len, prompts)))
    stop_token = checkpoint.vocabulary.end_of_text if config.stop else None
    try:
        steps = stream(
            checkpoint.model,
            prompts,
            config.max_new_tokens,
            sampling=Sampling(config.temperature, config.top_k, config.top_p),
            generator=torch.Generator().manual_seed(config.seed),
            stop_token=stop_token,
            window=config.window,
            strict=config.strict,
        )
        headings = _headings(config)
        pages = [_Page(checkpoint.vocabulary, stop_token) for _ in prompts]
        pages[0].show(headings[0])
        for page, prompt in zip(pages, prompts, strict=True):
            page.add(*prompt, read=True)
        started = time.perf_counter()
        for ids in steps:
            for page, token in zip(pages, ids.tolist(), strict=True):
                page.add(token)
        seconds = time.perf_counter() - started
    except ValueError as error:
        if "not finite" not in str(error):
            raise
        pages[0].end()
        raise SettingError("ckpt", config.ckpt, f"{error}: its training diverged") from error
    pages[0].end()
    for page, heading in zip(pages[1:], headings[1:], strict=True):
        page.show(heading)
        page.end()
    written = sum(page.written for page in pages)
    print(f"{written:,} tokens in {seconds:.1f} s, {written / max(seconds, 1e-9):,.0f} tokens/s", file=sys.stderr)


class _Page:
    """One text: kept until it is shown, from then on printed as it comes."""

    def __init__(self, vocabulary: Vocabulary, stop_token: int | None) -> None:
        self.written = 0  # tokens by the model
        self._vocabulary = vocabulary
        self._stop_token = stop_token
        self._stopped = False
        self._shown = False
        self._waiting = ""
        # A character may be spread over several tokens: it is printed when it is complete.
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def add(self, *ids: int, read: bool = False) -> None:
        """Tokens that the model has written, or `read` in its prompt. After the stop token, nothing counts."""
        if self._stopped:
            return
        self._stopped = not read and ids[-1] == self._stop_token
        self.written += 0 if read else len(ids)
        if not self._stopped:
            self._print(self._decoder.decode(self._vocabulary.decode_bytes(ids)))

    def show(self, heading: str | None) -> None:
        text, self._waiting, self._shown = self._waiting, "", True
        self._print(text if heading is None else f"{heading}\n{text}")

    def end(self) -> None:
        self._print(self._decoder.decode(b"", final=True) + "\n")

    def _print(self, text: str) -> None:
        if self._shown:
            print(text, end="", flush=True)
        else:
            self._waiting += text


def _encoded(prompt: str, vocabulary: Vocabulary) -> list[int]:
    ids = vocabulary.encode(prompt, "prompt")
    if not ids:
        raise SettingError("prompt", prompt, "must hold at least one token")
    return ids


def _headings(config: GenerateConfig) -> list[str | None]:
    """A line above each text, where there are several."""
    prompts, samples = len(config.prompt), config.samples
    if prompts * samples == 1:
        return [None]
    names = []
    for p in range(1, prompts + 1):
        for s in range(1, samples + 1):
            parts = [f"prompt {p}"] * (prompts > 1) + [f"sample {s}"] * (samples > 1)
            names.append(f"== {', '.join(parts)}")
    return list(names)


def _say_what_is_left_out(config: GenerateConfig, checkpoint: Checkpoint, prompt: int) -> None:
    """On stderr, in a line each: a prompt that isn't read in full, and a scheme whose positions will end."""
    model = checkpoint.model
    longest = model.pos.max_positions(model.shape)
    window = config.window or model.shape.context_length
    seen = window if longest is None else min(window, longest)
    if prompt > seen:
        print(f"note: of the prompt's {prompt:,} tokens the model reads the last {seen:,}", file=sys.stderr)
    if longest is not None and min(prompt, seen) + config.max_new_tokens - 1 > longest:
        print(
            f"note: this model knows {longest:,} positions; beyond them each token is computed anew from the last "
            f"{longest:,}, which is slower (strict=true refuses that)",
            file=sys.stderr,
        )
