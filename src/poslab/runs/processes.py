"""The processes of one run: how they meet, what they tell each other beside the training, and how they end.

torchrun and srun start all of them, Lightning the further ones of `trainer.devices` once the first has prepared
everything; which of them this is stands in variables (`poslab.runs.place`). The processes of
torchrun and srun meet before anything else, at a key-value store of torch's; those of Lightning when training begins.
From then on each gives signs of life there, and the first that has to end says so: the others end as well, and only one
of them speaks.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from poslab.errors import UserError, as_typed
from poslab.runs.place import Place, place, started_by_lightning, whole_number

if TYPE_CHECKING:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # the stubs lack it

ARRIVAL_S = 60.0  # that processes wait for each other's start
GONE = "killed, or its machine is down; resume=... goes on from the last checkpoint"
_LEAVING_S = 20.0  # that the process with the store waits for the others to come and take notice of its end ...
_NOTICE_S = 2.0  # ... and where they have come before
_SILENCE_S = 20.0  # without a sign of life, and a process is taken for lost
_LOOK_S = 0.5  # between two looks for such signs
_PAUSE_S = 0.02


def _variable(name: str) -> str:
    """By which Lightning's processes, which inherit it, know what the first has told."""
    return f"POSLAB_RUN_{name.upper()}"


class Processes:
    """The processes of this run that have met; one alone, until they do."""

    def __init__(self) -> None:
        self.rank = 0
        self.size = 1
        self._store: TCPStore | None = None
        self._hosts = False  # whether the store is in this process
        self._over = threading.Event()

    @property
    def first(self) -> bool:
        return self.rank == 0

    def meet(self, here: Place, limit: float = ARRIVAL_S) -> None:
        """Waits until all are there. Raises UserError where they don't come within `limit` seconds."""
        if self._store is not None:
            return
        self.rank, self.size = here.rank, here.size
        if here.size == 1:
            return
        self._connect(limit)
        self._set(f"here/{self.rank}")
        self._wait(self._everyone("here"), limit)
        threading.Thread(target=self._watch, daemon=True).start()

    def _connect(self, limit: float) -> None:
        """Raises UserError where there is no store to be had."""
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        address, port = _address()
        # torchrun's own process has one; else it is the one that Lightning will use, of which a process may have many.
        self._hosts = self.first and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
        if not self._hosts:
            _await_port(address, port, limit)
        silence = timedelta(seconds=_SILENCE_S)
        try:
            self._store = TCPStore(
                address, port, is_master=self._hosts, timeout=silence, wait_for_workers=False, multi_tenant=True
            )
        except (RuntimeError, OSError) as error:
            advice = "; MASTER_PORT=... in the environment names another port" if self._hosts else ""
            raise UserError(f"{address}:{port}: {str(error).splitlines()[0]}{advice}") from error

    def check_same(self, settings: Mapping[str, Any]) -> None:
        """Raises UserError, naming one, where this process has other settings than the first."""
        if self._store is None:
            return
        own = {name: as_typed(value) for name, value in settings.items()}
        if self.first:
            self._set("told/settings", json.dumps(own))
        else:
            firsts = json.loads(self.ask("settings") or "{}")
            for name in firsts | own:
                if firsts.get(name) != own.get(name):
                    here, there = (f"{name}={given.get(name)}" for given in (own, firsts))
                    problem = f"but {there} in process 0; all processes of a run must have the same settings"
                    raise UserError(f"{here} in process {self.rank}, {problem}")
        self.together("settings")

    def together(self, place: str) -> None:
        """Returns once all processes have come to that place."""
        if self._store is not None:
            self._set(f"{place}/{self.rank}")
            self._wait(self._everyone(place))

    def tell(self, name: str, value: str) -> None:
        """Says something to the other processes, those that Lightning will start included."""
        os.environ[_variable(name)] = value
        if self._store is not None:
            self._set(f"told/{name}", value)

    def ask(self, name: str) -> str | None:
        """What the first process has told, or tells in a while; None where this one can't know it."""
        if self._store is None:
            return os.environ.get(_variable(name))
        self._wait(lambda: self._check(f"told/{name}"))
        return bytes(self._store.get(self._key(f"told/{name}"))).decode()

    # How they end.

    def say(self, line: str, code: int) -> None:
        """Prints why the run ends, and with which exit code, unless another process has said so."""
        if self._speaks(code):
            print(line, file=sys.stderr, flush=True)

    def _speaks(self, code: int) -> bool:
        if self._store is None:  # where the first was to be met and did not come, the second speaks
            return self.first or (self.size > 1 and self.rank == 1)
        own = f"{self.rank} {code}"
        try:
            return bool(self._store.compare_set(self._key("ended"), "", own).decode() == own)
        except RuntimeError:  # the store is gone, and the first process with it
            return self.rank == 1

    def leave(self, code: int = 0) -> int:
        """The exit code that all processes end with: that of the one which said why, or the given one. Those that
        Lightning has started end with 0: it would kill the first for any other."""
        self._over.set()
        with contextlib.suppress(RuntimeError):  # the store is gone, which is no news by now
            if self._store is not None:
                if code and self._check("ended"):
                    code = int(self._store.get(self._key("ended")).decode().split()[1])
                self._set(f"left/{self.rank}")
                end = time.monotonic() + (_NOTICE_S if self._check("alive/0") else _LEAVING_S)
                while self._hosts and not self._everyone("left")() and time.monotonic() < end:
                    time.sleep(_PAUSE_S)  # until they know
                return 0 if started_by_lightning() else code
        return code

    def _watch(self) -> None:
        """Gives signs of life, and ends this process when another one has ended the run, or is lost: its main thread
        may wait for what never comes."""
        assert self._store is not None
        watched = range(1, self.size) if self.first else range(1)
        signs = {rank: (b"", time.monotonic()) for rank in watched}
        number = 0
        while not self._over.wait(_LOOK_S):
            number += 1
            try:
                self._set(f"alive/{self.rank}", str(number))
                if self._check("ended"):
                    self._end()
                for rank in watched:
                    sign = self._store.get(self._key(f"alive/{rank}")) if self._check(f"alive/{rank}") else b""
                    if sign != signs[rank][0]:
                        signs[rank] = sign, time.monotonic()
                    elif time.monotonic() - signs[rank][1] > _SILENCE_S and not self._check(f"left/{rank}"):
                        self._end(rank)
            except RuntimeError:
                self._end(0)

    def _end(self, lost: int | None = None) -> None:
        """lost: the process that is gone, if this one is the first to notice."""
        if self._over.is_set():  # the main thread is about to end by itself
            return
        if lost is not None:
            self.say(f"error: process {lost} of {self.size} is gone: {GONE}", 1)
        sys.stdout.flush()
        os._exit(self.leave(1))

    def _wait(self, there: Callable[[], bool], limit: float = math.inf) -> None:
        """Looks now and then, so that signals are heard; ends where another process has ended the run."""
        end = time.monotonic() + limit
        while not there():
            if self._check("ended"):
                raise SystemExit(self.leave(1))
            if time.monotonic() > end:
                missing = [rank for rank in range(self.size) if not self._check(f"here/{rank}")]
                raise UserError(_not_there(missing, self.size, limit))
            time.sleep(_PAUSE_S)

    def _everyone(self, place: str) -> Callable[[], bool]:
        return lambda: self._check(*(f"{place}/{rank}" for rank in range(self.size)))

    def _key(self, name: str) -> str:
        return f"poslab/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{name}"

    def _set(self, name: str, value: str = "1") -> None:
        assert self._store is not None
        self._store.set(self._key(name), value)

    def _check(self, *names: str) -> bool:
        assert self._store is not None
        return bool(self._store.check([self._key(name) for name in names]))


processes = Processes()  # of this process's run


def end(line: str, code: int, meets: bool = True) -> int:
    """Says why the run ends, from one of its processes only, and returns the exit code.

    meets: whether, if the processes have not met yet, they do for that, so that none waits for this one.
    """
    here = place()
    if processes.size == 1:  # or they have met
        processes.rank = 0 if meets and not here.launcher else here.rank
        if here.size > 1 and meets:
            with contextlib.suppress(UserError, SystemExit):
                processes.meet(here, _LEAVING_S)
    processes.say(line, code)
    return processes.leave(code)


def _not_there(missing: Sequence[int], size: int, limit: float) -> str:
    numbers = ", ".join(map(str, missing))
    advice = "; in a batch script, start it with srun" if place().launcher == "srun" else ""
    return f"of {size} processes, {numbers} did not come within {limit:.0f} seconds{advice}"


def _address() -> tuple[str, int]:
    """Where the processes meet: as torchrun or Lightning say, else as SLURM's variables do."""
    if "MASTER_ADDR" not in os.environ or "MASTER_PORT" not in os.environ:
        from lightning_fabric.plugins.environments.slurm import SLURMEnvironment

        nodes = os.environ.get("SLURM_STEP_NODELIST") or os.environ.get("SLURM_NODELIST") or "127.0.0.1"
        os.environ.setdefault("MASTER_ADDR", SLURMEnvironment.resolve_root_node_address(nodes))
        # Steps of one job may run side by side.
        number = whole_number("SLURM_JOB_ID", default=0) + 101 * whole_number("SLURM_STEP_ID", default=0)
        os.environ.setdefault("MASTER_PORT", str(15000 + number % 10000))
    return os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


def _await_port(address: str, port: int, limit: float) -> None:
    """Returns once something listens there. torch's own waiting is deaf to signals."""
    end = time.monotonic() + limit
    while True:
        try:
            socket.create_connection((address, port), timeout=limit).close()
            return
        except OSError as error:
            if time.monotonic() > end:
                raise UserError(
                    f"the first process is not to be reached at {address}:{port} within {limit:.0f} seconds: "
                    f"{error.strerror or error}"
                ) from error
            time.sleep(_PAUSE_S)
