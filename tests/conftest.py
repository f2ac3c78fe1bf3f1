"""Options, goldens, seeds, and the closing lines that name what a run was executed on."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import device
import numpy as np
import ordered_vulkan
import pytest
import selection
from _pytest.runner import runtestprotocol
from paths import GOLDEN

_TODAY = "CASES_OF_TODAY"  # 1: a run of the whole tree, in which cases take turns by the day


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files")
    parser.addoption("--seed", type=int, default=20261, help="what every test's seed is derived from")
    parser.addoption("--cpu", default="cpu", metavar="WORD", help="the target that `cpu` means: cpu:x86-64-v3, …")
    parser.addoption("--no-kernels", action="store_true", help="every recurrence by the loop")
    parser.addoption("--verify-each", action="store_true", help="IREE checks its modules after each pass")
    parser.addoption("--helpers", action="store_true", help="helpers take part in calls of any length")
    parser.addoption(
        "--within", type=float, metavar="MINUTES",
        help="cases of all tests in turns, and skip what has not begun after so long",
    )  # fmt: skip
    parser.addoption("--all-cases", action="store_true", help="in a run without paths: all cases, not those of today")


def pytest_configure(config: pytest.Config) -> None:
    """Compile for another processor, or without kernels, where the run asks for it.

    Before tests are imported, which take names from these modules.
    """
    ordered_vulkan.load()
    _hear_interrupts()
    if not hasattr(config, "workerinput"):  # workers are told by the environment, which they inherit
        chosen = config.getoption("--all-cases") or config.getoption("--within") is not None
        whole_tree = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.getoption("keyword")
        os.environ[_TODAY] = "1" if whole_tree and not chosen else "0"
    from lstm_ir import options
    from lstm_ir.backends.run import runtime
    from lstm_ir.backends.targets import targets

    runtime.set_threads(max(2, runtime.threads()))  # helpers take part on one processor too
    word = config.getoption("--cpu")
    if word != "cpu":
        targets.meanings["cpu"] = word
    if config.getoption("--no-kernels"):
        options.defaults["kernels"] = False
    if config.getoption("--verify-each"):
        options.defaults["verify"] = True
    if config.getoption("--helpers"):
        options.defaults["helpers"] = options.ALWAYS


def _hear_interrupts() -> None:
    """A run that a shell put in the background ignores SIGINT, and so would the children of its tests."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header(config: pytest.Config) -> list[str]:
    required = ", ".join(sorted(device.REQUIRED))
    kernels = "off" if config.getoption("--no-kernels") else "on"
    helpers = "with helpers" if config.getoption("--helpers") else "helpers by size"
    checks = "after each pass" if config.getoption("--verify-each") else "for CPUs between phases"
    left = os.environ.get("LSTM_IR_SCHEDULE_CALLER") == "0"
    few = f"of many one in {selection.DAYS}, others tomorrow (--all-cases)"
    return [
        f"seed {config.getoption('--seed')}; LSTM_IR_REQUIRE: {required if required else 'nothing'}",
        f"`cpu` means {config.getoption('--cpu')}; kernels {kernels}, {helpers}",
        f"IREE checks its modules: {checks}",
        f"cases: {few if os.environ[_TODAY] == '1' else 'all'}",
        f"threads that call: {'left alone' if left else 'scheduled by the library'}",
    ]


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """One number per test and `--seed`; printed, so a failure shows it."""
    base = int(request.config.getoption("--seed"))
    # Neither folders nor the group that xdist adds to a node's name: the same number in every kind of run.
    name = f"tests/{request.node.path.name}::{request.node.name}"
    value = (zlib.crc32(name.encode()) + base) % 2**32
    print(f"seed {value}")
    return value


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    """Random numbers of this test alone."""
    return np.random.default_rng(seed)


@pytest.fixture
def kernels(request: pytest.FixtureRequest) -> bool:
    """Whether recurrences may become kernels in this run."""
    return not request.config.getoption("--no-kernels")


Golden = Callable[[str, str], None]


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden("errors/cycle.txt", text)`: equal to the file; a missing file fails."""
    update = bool(request.config.getoption("--update-golden"))

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        text = text if text.endswith("\n") else text + "\n"
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.is_file() or path.read_text(encoding="utf-8") != text:
                path.write_text(text, encoding="utf-8")
            return
        assert path.is_file(), f"{path} is missing; write it with --update-golden\n{text}"
        assert text == path.read_text(encoding="utf-8"), f"differs from {path}"

    return check


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compiled modules go to a folder of this run: no test may pass by an older run's cache."""
    if "LSTM_IR_CACHE" in os.environ:
        yield
        return
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    os.environ["LSTM_IR_CACHE"] = str(shared / "lstm-ir-cache")
    yield
    del os.environ["LSTM_IR_CACHE"]


@pytest.fixture(autouse=True)
def _tensorflow_stays_out() -> Iterator[None]:
    """It would crash a later Vulkan test of this process; see tensorflow_child.py."""
    yield
    assert "tensorflow" not in sys.modules, "imports tensorflow; use tensorflow_child.py"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    if call.when == "setup":
        item.user_properties.extend(("used", u) for u in device.used)
    if call.when == "call":
        item.user_properties.extend(("used", u) for u in dict.fromkeys(device.used))
        report.user_properties = list(item.user_properties)
        device.used.clear()
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Any:
    report = yield
    _refuse_skip(report)
    return report


def _refuse_skip(report: Any) -> None:
    """A skip whose reason names something required is a failure, whoever wrote the skip."""
    if report.outcome != "skipped" or hasattr(report, "wasxfail"):
        return
    reason = _reason(report)
    missed = [w for w in sorted(device.REQUIRED) if w in reason]
    if missed:
        report.outcome = "failed"
        report.longrepr = f"skipped, but LSTM_IR_REQUIRE names {missed[0]}: {reason}"


def _reason(report: Any) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return str(text).removeprefix("Skipped: ")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What was executed on what, and what was not and why."""
    stats = terminalreporter.stats
    ran: Counter[str] = Counter()
    for outcome in ("passed", "failed"):
        for report in stats.get(outcome, ()):
            if getattr(report, "when", "") == "call":
                uses = {v for k, v in report.user_properties if k == "used"}
                ran.update(uses if uses else {"processor and NumPy alone"})
    skipped = Counter(_reason(r) for r in stats.get("skipped", ()))
    lost = sum(
        ("repeated", "its device was lost") in map(tuple, r.user_properties)
        for outcome in ("passed", "failed")
        for r in stats.get(outcome, ())
        if getattr(r, "when", "") == "call"
    )
    used = {name.partition(" ")[0] for name in ran}
    terminalreporter.section("executed on")
    for name, count in sorted(ran.items()):
        terminalreporter.write_line(f"{count:6} tests: {name}")
    backward = sum(
        v for o in ("passed", "failed") for r in stats.get(o, ()) for k, v in r.user_properties
        if k == "left out"
    )  # fmt: skip
    if backward:
        terminalreporter.write_line(f"{backward:6} Vulkan signals left out that went backwards")
    if lost:
        terminalreporter.write_line(f"{lost:6} tests run again: their Vulkan device was lost")
    for reason, count in sorted(skipped.items()):
        terminalreporter.write_line(f"{count:6} not run: {reason}")
    for word in device.WORDS:
        found, text = device.look(word)
        if word not in used and not any(r.startswith(word) for r in skipped):
            why = f"here ({text}), but no test of this run asked for it" if found else text
            terminalreporter.write_line(f"       not used: {word}: {why}")


LOST = "the device was lost"
TRIES = 3


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a Vulkan test again where the driver lost its device, and say so at the end.

    That happens where ordered_vulkan.c could not be built.
    """
    if "vulkan" not in item.nodeid.lower():
        return None
    hook = item.ihook
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    before = ordered_vulkan.left_out()
    for tries in range(TRIES):  # noqa: B007
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        if not any(r.failed and LOST in str(r.longrepr) for r in reports):
            break
        assert isinstance(item, pytest.Function)
        item.session._setupstate.teardown_exact(None)  # fixtures of every scope, and
        for v in vars(item.module).values():
            getattr(v, "cache_clear", lambda: None)()  # executables on the lost device
    for r in reports:
        if tries:
            r.user_properties.append(("repeated", "its device was lost"))
        if r.when == "call":
            r.user_properties.append(("left out", ordered_vulkan.left_out() - before))
        hook.pytest_runtest_logreport(report=r)
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what takes long and what belongs together, before -m and pytest-xdist look at marks."""
    selection.mark(items)
    selection.group(items)
    if os.environ[_TODAY] == "1":
        kept = selection.of_today(items)
        among = set(kept)
        config.hook.pytest_deselected(items=[i for i in items if i not in among])
        items[:] = kept
    if config.getoption("--within") is not None:
        selection.in_turns(items)


def pytest_collection_finish() -> None:
    """What was collected stays to the end: whoever looks for garbage later need not walk it."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Where this run is short, leave out what does not fit."""
    minutes = item.config.getoption("--within")
    if minutes is not None:
        selection.leave_out(minutes)
