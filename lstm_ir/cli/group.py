"""The command line, `lstm-ir` = `python -m lstm_ir`; a verb's module is imported when called."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from lstm_ir.ir.errors import LstmIrError
from lstm_ir.ir.libraries import missing

VERBS = {  # verb: (module, one line for --help)
    "demo": ("lstm_ir.cli.demo", "Classify handwritten digits on every device that is here."),
    "import": ("lstm_ir.cli.importing", "Say what an ONNX model holds and what is taken; make a package of it."),
    "verify": ("lstm_ir.cli.verifying", "Compare a model with what its own library gives, a package with its graph."),
    "compile": ("lstm_ir.cli.compile", "Compile a graph into a package."),
    "run": ("lstm_ir.cli.run", "Run a package or a graph on arrays."),
    "serve": ("lstm_ir.cli.serving", "Serve packages over HTTP, by the Open Inference Protocol."),
    "opt": ("lstm_ir.cli.opt", "Run passes over a graph, text in and text out."),
    "show": ("lstm_ir.cli.show", "Print or draw a graph at any stage; say what a package holds."),
    "bench": ("lstm_ir.cli.bench", "Measure beside torch, onnxruntime and JAX."),
    "targets": ("lstm_ir.cli.targets", "List what can be compiled and run here, and why not."),
}
INTERRUPTED, TERMINATED = 130, 143  # what shells report for SIGINT and SIGTERM


class _TerminatedError(BaseException):
    """SIGTERM came; what is half done is removed on the way out."""


class Verbs(click.Group):
    """The verbs, by name; --help reads the table alone."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every verb, in the order of the table."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb's command, from its module."""
        if cmd_name not in VERBS:
            return None
        found = importlib.import_module(VERBS[cmd_name][0]).command
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table of --help."""
        with formatter.section("Commands"):
            formatter.write_dl([(verb, text) for verb, (_, text) in VERBS.items()])


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="lstm-ir", prog_name="lstm-ir")
def group() -> None:
    """A graph compiler for recurrent networks: graph -> StableHLO -> CPU, Vulkan, CUDA, HIP, Metal.

    `lstm-ir VERB --help` explains one verb. Graphs are `.lir` text, packages `.lirpkg`.
    """


def main(args: Sequence[str] | None = None) -> None:
    """Run one verb and exit: 0, 1 for an error, 2 for wrong usage, 130 when interrupted, 143 when terminated."""
    sys.exit(run(args))


def run(args: Sequence[str] | None = None) -> int:
    """One verb; its exit code. Errors are one message on stderr, never a traceback."""
    try:
        with _termination_raises():
            # click turns Exit(code), raised by a verb, into this result.
            code = group.main(None if args is None else list(args), prog_name="lstm-ir", standalone_mode=False)
            if sys.stdout is not None:  # it was open when this process began
                sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as e:
        return e.exit_code
    except click.ClickException as e:
        e.show()
        return e.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted", INTERRUPTED)
    except _TerminatedError:
        return _fail("terminated", TERMINATED)
    except BrokenPipeError:  # the reader of a pipe has enough: `lstm-ir show g.lir | head`
        if sys.stdout is not None:  # else the pipe was another file
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except LstmIrError as e:
        return _fail(str(e))
    except ModuleNotFoundError as e:
        found = missing(e)
        return _fault(e) if found is None else _fail(str(found))
    except OSError as e:
        place = "" if e.filename is None else f"{e.filename}: "
        return _fail(f"{place}{str(e) if e.strerror is None else e.strerror}")
    except MemoryError:
        return _fail("out of memory")
    except Exception as e:
        return _fault(e)


@contextmanager
def _termination_raises() -> Iterator[None]:
    """SIGTERM is an exception inside, once; not where whoever started the process chose otherwise."""

    def terminate(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_IGN)  # while what is half done is removed
        raise _TerminatedError

    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _fault(e: Exception) -> int:
    if os.environ.get("LSTM_IR_DEBUG"):
        raise e
    return _fail(f"a fault of lstm-ir itself: {type(e).__name__}: {e}\n  LSTM_IR_DEBUG=1 shows where; please report it")


def _fail(text: str, code: int = 1) -> int:
    click.echo(f"lstm-ir: {text}", err=True)
    return code
