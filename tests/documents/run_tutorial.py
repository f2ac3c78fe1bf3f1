"""Runs the steps of a page of the tutorial, a process of its own: `run_tutorial.py steps.json` in the page's folder.

What each step prints goes to `steps.printed`, a JSON list. The port 8000 of a page becomes one that is free.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

FILE = re.compile(r"# file: (\S+)\n")
TOOLS = {"python": [sys.executable], "lstm-ir": [sys.executable, "-m", "lstm_ir"]}
PORT = "8000"


def free_port() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return str(taken.getsockname()[1])


def run_command(line: str, servers: list[subprocess.Popen[str]]) -> str:
    """What a line of a shell prints; of a server what it says until it serves."""
    tool, *words = shlex.split(line, comments=True)
    command = [*TOOLS[tool], *words]
    if words[0] == "serve":
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        servers.append(server)
        assert server.stdout is not None
        said = ""
        for text in server.stdout:
            said += text
            if text.startswith("serving on"):
                return said
        raise AssertionError(f"{line}: ended\n{said}")
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, f"{line}: exit status {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


class Program:
    """The blocks of Python of a page, as if they were one file, `tutorial.py`, whose lines messages name."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.lines = 0

    def run(self, code: str) -> str:
        """What a block prints; a file it names is written instead."""
        file = FILE.match(code)
        if file:
            Path(file[1]).write_text(code, encoding="utf-8")
            return ""
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile("\n" * self.lines + code, "tutorial.py", "exec"), self.names)
        self.lines += len(code.splitlines())
        return out.getvalue()


def main(file: Path) -> None:
    os.chdir(file.parent)
    sys.path.insert(0, os.getcwd())
    os.environ["PYTHONUNBUFFERED"] = "1"
    port, program = free_port(), Program()
    printed: list[str] = []
    servers: list[subprocess.Popen[str]] = []
    try:
        for kind, code in json.loads(file.read_text(encoding="utf-8")):
            text = code.replace(PORT, port)
            if kind == "python":
                said = program.run(text)
            else:
                said = "".join(run_command(line, servers) for line in text.splitlines() if line.strip())
            printed.append(said.replace(port, PORT))
        for server in servers:
            server.send_signal(signal.SIGTERM)
            assert server.wait(60) == 0, "the server did not end with exit code 0"
    finally:
        for server in servers:
            server.kill()
        file.with_suffix(".printed").write_text(json.dumps(printed), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
