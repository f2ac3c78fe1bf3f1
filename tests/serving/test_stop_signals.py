"""How the server is asked to stop where the event loop takes no signals, as on Windows."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path

import httpx
import pytest
from served import running
from served_models import encoder

from lstm_ir.serving import stop_signals

pytestmark = pytest.mark.together
SERVE = """
import asyncio, sys
def refuse(*_):
    raise NotImplementedError
kind = asyncio.SelectorEventLoop
kind.add_signal_handler = kind.remove_signal_handler = refuse
from lstm_ir.cli.start import main
sys.argv[1:] = ["serve", "--port", "0", *sys.argv[1:]]
sys.exit(main())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_whose_loop_takes_no_signals_ends_well(tmp_path: Path, number: int) -> None:
    with running("-c", SERVE, encoder(tmp_path)) as server:
        assert httpx.get(f"{server.url}/v2/health/ready", timeout=60).status_code == 200
        server.process.send_signal(number)
        assert server.process.wait(60) == 0
        assert server.process.stderr is not None
        assert "Traceback" not in server.process.stderr.read()


class Deaf(asyncio.SelectorEventLoop):
    """A loop that takes no signals."""

    def add_signal_handler(self, *_: object) -> None:
        raise NotImplementedError

    def remove_signal_handler(self, *_: object) -> bool:
        raise NotImplementedError


@pytest.mark.parametrize("kind", [asyncio.SelectorEventLoop, Deaf])
def test_signals_come_and_their_handlers_are_given_back(
    kind: type[asyncio.SelectorEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGBREAK too, where there is one; here another signal plays it."""
    monkeypatch.setattr(signal, "SIGBREAK", signal.SIGUSR1, raising=False)
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
    before = [signal.getsignal(n) for n in numbers]
    loop, calls = kind(), []

    async def send() -> None:
        with stop_signals.calling(lambda: calls.append(len(calls)), loop):
            for i, number in enumerate(numbers):
                os.kill(os.getpid(), number)
                while len(calls) <= i:
                    await asyncio.sleep(0.01)

    try:
        loop.run_until_complete(asyncio.wait_for(send(), 60))
    finally:
        loop.close()
    assert calls == [0, 1, 2]
    assert [signal.getsignal(n) for n in numbers] == before


def test_another_thread_takes_no_signals() -> None:
    before, seen = signal.getsignal(signal.SIGTERM), []

    def serve() -> None:
        loop = asyncio.new_event_loop()
        with stop_signals.calling(lambda: None, loop):
            seen.append(signal.getsignal(signal.SIGTERM))
        loop.close()

    thread = threading.Thread(target=serve)
    thread.start()
    thread.join(60)
    assert seen == [before]
