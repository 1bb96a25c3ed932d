"""Entrants in processes of their own, so that no library's imports, threads or memory settings touch another's."""

import multiprocessing
from collections.abc import Callable
from typing import Any

import torch

# Builds an entrant: what there is to say about it, and the function that answers requests.
Builder = Callable[[str], tuple[Any, Callable[[Any], float]]]


class Worker:
    """One entrant, built by `build(name)` in a new process. Raises ImportError where its library is missing."""

    def __init__(self, build: Builder, name: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, there = context.Pipe()
        self._process = context.Process(target=_work, args=(build, name, there, torch.get_num_threads()), daemon=True)
        self._process.start()
        there.close()
        self.about = self._receive()

    def ask(self, request: Any) -> float:
        """The answer to a request; nothing else of the benchmark runs meanwhile."""
        self._connection.send(request)
        seconds: float = self._receive()
        return seconds

    def stop(self) -> None:
        self._connection.send(None)
        self._process.join()

    def _receive(self) -> Any:
        try:
            answer = self._connection.recv()
        except EOFError:
            self._process.join()
            raise RuntimeError(f"a process of the benchmark ended with code {self._process.exitcode}") from None
        if isinstance(answer, Exception):
            raise answer
        return answer


def start_all(build: Builder, names: list[str]) -> tuple[dict[str, Worker], list[str]]:
    """(the workers by name, a line for each whose library is missing)"""
    workers, missing = {}, []
    for name in names:
        try:
            workers[name] = Worker(build, name)
        except ImportError as error:
            missing.append(f"{name} is left out: {error}; python -m pip install -e '.[bench]'")
    return workers, missing


def _work(build: Builder, name: str, connection: Any, threads: int) -> None:
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    try:
        about, answer = build(name)
        connection.send(about)
        while (request := connection.recv()) is not None:
            connection.send(answer(request))
    except ImportError as error:
        connection.send(ImportError(str(error)))
