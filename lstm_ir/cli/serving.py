"""`lstm-ir serve`: packages behind the Open Inference Protocol."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lstm_ir.cli.packages import key_option, read_key
from lstm_ir.ir.errors import LstmIrError, MissingLibraryError, PackageError
from lstm_ir.loading import load, set_threads

if TYPE_CHECKING:
    from lstm_ir.backends.run.executable import Executable
    from lstm_ir.serving.batcher import Batcher
    from lstm_ir.serving.sessions import Sessions


class Seconds(click.FloatRange):
    """A finite number of seconds; NaN is outside of no range, and infinity within those without an end."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; click's error for what is none."""
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{found} is not a finite number of seconds", param, ctx)
        return found


@click.command()
@click.argument("packages", nargs=-1, required=True, metavar="[NAME=]PACKAGE...")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 takes a free one.")
@click.option("-d", "--device", help="Where to run; default: a package's first target that runs here.")
@click.option("-e", "--entry", help="Which entry is served; default: the one that keeps state, else main.")
@click.option("--output", "outputs", multiple=True, metavar="[NAME=]OUTPUT",
              help="What requests may ask for, of all packages or the one served as NAME; default: all.")  # fmt: skip
@click.option("--threads", type=click.IntRange(1),
              help="Threads of a call on the CPU; default: all processors but one.")  # fmt: skip
@click.option("--batch-size-name", default="B", show_default=True, help="The named size that is the batch.")
@click.option("--time-size-name", default="T", show_default=True, help="The named size that is time: steps.")
@click.option("--max-batch", type=click.IntRange(1), default=64, show_default=True, help="Rows of one call.")
@click.option("--max-steps", type=click.IntRange(1), default=65536, show_default=True,
              help="Steps (the size --time-size-name) of one request.")  # fmt: skip
@click.option("--max-delay", type=Seconds(0, 60), default=0.001, show_default=True,
              help="Seconds that a request waits for others to join its call.")  # fmt: skip
@click.option("--max-waiting", type=click.IntRange(1), default=1024, show_default=True,
              help="Requests that wait for a call; more get 429.")  # fmt: skip
@click.option("--max-sessions", type=click.IntRange(1), default=1000, show_default=True,
              help="Sequences that are open at once.")  # fmt: skip
@click.option("--idle-timeout", type=Seconds(0.001), default=600.0, show_default=True,
              help="Seconds without a request after which a sequence or a stream is closed.")  # fmt: skip
@click.option("--max-body", type=click.IntRange(1), default=64 << 20, show_default=True, help="Bytes of one request.")
@click.option("--max-json", type=click.IntRange(1), default=2 << 20, show_default=True,
              help="Bytes of the JSON of one request.")  # fmt: skip
@click.option("--max-message", type=click.IntRange(1), default=1 << 20, show_default=True,
              help="Bytes of one message of a stream.")  # fmt: skip
@click.option("--max-pending", type=click.IntRange(1), default=512 << 20, show_default=True,
              help="Bytes of all requests that are read or wait.")  # fmt: skip
@click.option("--max-connections", type=click.IntRange(1), default=1024, show_default=True, help="Connections at once.")
@click.option("--header-timeout", type=Seconds(0.001), default=10.0, show_default=True,
              help="Seconds until a connection has sent the head of a request.")  # fmt: skip
@click.option("--body-timeout", type=Seconds(0.001), default=30.0, show_default=True,
              help="Seconds until the body is there.")  # fmt: skip
@click.option("--send-timeout", type=Seconds(0.001), default=30.0, show_default=True,
              help="Seconds in which a client reads less than 1 KiB a second of its answers.")  # fmt: skip
@click.option("--ping-interval", type=Seconds(0.001), default=20.0, show_default=True,
              help="Seconds between pings of a stream, and until a client that is silent is given up.")  # fmt: skip
@click.option("--stop-timeout", type=Seconds(0.001), default=30.0, show_default=True,
              help="Seconds that accepted requests have when the server stops.")  # fmt: skip
@key_option
def command(
    packages: tuple[str, ...], host: str, port: int, device: str | None, entry: str | None, outputs: tuple[str, ...],
    threads: int | None, batch_size_name: str, time_size_name: str, max_batch: int, max_steps: int, max_delay: float,
    max_waiting: int, max_sessions: int, idle_timeout: float, key_file: str | None, **numbers: Any,
) -> None:  # fmt: skip
    """Serve packages over HTTP until SIGTERM. There is no authentication: whoever reaches the port may use it.

    A package is served under its file's name, or under NAME.
    """
    try:
        for library in ("prometheus_client", "websockets"):  # they are imported once the server runs
            import_module(library)
        from lstm_ir.serving.hosts import is_loopback
        from lstm_ir.serving.limits import ServerLimits
        from lstm_ir.serving.run import serve, threads_beside_a_server
        from lstm_ir.serving.served_model import ServedModel
        from lstm_ir.serving.sessions import Sessions
    except ModuleNotFoundError as e:
        if e.name is not None and e.name.startswith("lstm_ir"):
            raise
        raise MissingLibraryError(f"lstm-ir serve needs {e.name}: pip install 'lstm-ir[serve]'", name=e.name) from e
    places, key = _places(packages), read_key(key_file)
    set_threads(threads or threads_beside_a_server())
    models = {}
    common: dict[str, Any] = {
        "batch": batch_size_name, "time": time_size_name, "max_batch": max_batch, "max_delay": max_delay,
        "max_waiting": max_waiting,
    }  # fmt: skip
    opened: dict[str, Executable] = {}
    kept = {"max_sessions": max_sessions, "idle_timeout": idle_timeout}
    for name, path in places.items():
        chosen = _outputs(outputs, name, places)
        try:
            exe = load(path, device, require_key=key)
            server = _server(exe, {**common, "entry": entry, "outputs": chosen}, kept)
        except LstmIrError as e:
            said = str(e).removeprefix(f"{path}: ")
            raise PackageError(f"{path}, to be served as {name}: {said}") from e
        opened[name] = exe
        models[name] = ServedModel(
            name, server, max_steps=max_steps, again=partial(_again, opened, name, path, device, key, _version(path))
        )
        what = "sequences" if isinstance(server, Sessions) else "requests"
        click.echo(f"{name}: {path}, entry {server.entry.name}, {what}: {', '.join(models[name].outputs)}", err=True)
        free = [n for n in server.entry.dims if n != batch_size_name]
        if free and time_size_name not in free:
            known = f"no size is called {time_size_name}, there is {', '.join(free)}"
            click.echo(f"{name}: {known}: --max-steps bounds nothing; --time-size-name says what time is", err=True)
    if not is_loopback(host):
        click.echo(f"listening on {host}: there is no authentication", err=True)

    def listening(url: str) -> None:
        click.echo(f"serving on {url}")

    limits = ServerLimits(idle_timeout=idle_timeout, **numbers)
    serve(models, host=host, port=port, limits=limits, listening=listening)
    for exe in opened.values():  # not where it ended early: a call may run
        exe.close()


def _version(path: str) -> tuple[int, ...]:
    """What is another number where the file was replaced or written."""
    found = Path(path).stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _again(
    opened: dict[str, Executable], name: str, path: str, device: str | None, key: bytes | None, was: tuple[int, ...]
) -> Executable:
    """The package loaded anew; PackageError where the file is another now, whose weights may be others."""
    if _version(path) != was:
        raise PackageError(f"{path} has changed since it was loaded; start the server again")
    opened[name] = load(path, device, require_key=key)
    return opened[name]


def _server(exe: Executable, options: Mapping[str, Any], kept: Mapping[str, Any]) -> Batcher | Sessions:
    """Who answers requests to the executable; `kept`: options of what keeps state."""
    from lstm_ir.serving.batcher import Batcher
    from lstm_ir.serving.sessions import Sessions, steps

    entry = options["entry"]
    stateful = entry in steps(exe) if entry is not None else bool(steps(exe))
    return Sessions(exe, **options, **kept) if stateful else Batcher(exe, **options)


def _outputs(words: tuple[str, ...], model: str, models: Collection[str]) -> list[str] | None:
    """The outputs of one model; None is all of them."""
    found = []
    for word in words:
        name, _, output = word.partition("=")
        if name not in models:
            name, output = model, word
        if name == model:
            found.append(output)
    return found or None


def _places(packages: tuple[str, ...]) -> dict[str, str]:
    """Paths by model name."""
    found: dict[str, str] = {}
    for text in packages:
        name, equals, path = text.partition("=")
        if not equals:
            name, path = Path(text).stem, text
        if not name or "/" in name or not name.isprintable():
            raise click.UsageError(f"{text}: a model's name has no / and no control characters")
        if name in found:
            raise click.UsageError(f"{text}: there are two models called {name}; give NAME={path}")
        found[name] = path
    return found
