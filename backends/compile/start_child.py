"""Start a command that ends when the process which asked for it does, or after so many seconds.

    python start_child.py PARENT SECONDS COMMAND [WORD ...]

It becomes the command. A script, since no Python may run between the fork and the exec of a process with threads.
Linux ends it with its parent, by the system's own means; elsewhere the seconds are what bounds it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: str, seconds: str, *command: str) -> None:
    """Become the command."""
    for number in (signal.SIGALRM, signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores the latter two
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.alarm(int(seconds))  # holds in what this becomes; 0: none
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # when the thread that waits for it ends
    if os.getppid() == int(parent):  # else the parent ended before
        os.execv(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
