"""A forked process can be told from one that was started only by how soon it is there."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import processes
from tests.commands.test_cli import TIMEOUT_S

PROGRAMS = {
    "the end": "print('done')",
    "an exit code": "import sys; sys.exit(7)",
    "a last word": "import sys; print('half', end=''); sys.exit('whole')",
    "an input": "import sys; print(sys.stdin.read().upper(), sys.argv)",
    "a place": "import os; print(os.getcwd(), sorted(os.environ.items()))",
    "what is done at the end": "import atexit; atexit.register(print, 'last')",
    "a signal": "import os; os.kill(os.getpid(), 15)",
    "an interrupt": "import os, signal, sys; sys.stderr = None; os.kill(os.getpid(), 2)",
    "handlers": "import signal; print([signal.getsignal(n) for n in (2, 15, 17)])",
    "a session": "import os; print(os.getsid(0) == os.getpid())",
    "a full disk": "import sys; sys.stdout = open('/dev/full', 'w'); print('x')",
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_forked_process_ends_as_one_that_was_started(program: str, tmp_path: Path) -> None:
    command = ["-c", program, "one", "two"]
    place = {"cwd": tmp_path, "env": {"PATH": os.environ["PATH"], "LC_CTYPE": "C.UTF-8"}}
    started = subprocess.run(
        [sys.executable, *command], input=b"in", capture_output=True, timeout=TIMEOUT_S,
        check=False, **place,
    )  # fmt: skip
    forked = processes.run(command, imports=("json",), input=b"in", timeout=TIMEOUT_S, **place)
    assert (forked.returncode, forked.stdout) == (started.returncode, started.stdout)
    assert forked.stderr.splitlines()[-1:] == started.stderr.splitlines()[-1:]


def test_forked_process_that_does_not_end_is_killed() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        processes.run(["-c", "import time; time.sleep(60)"], imports=("json",), timeout=0.1)


def test_forked_process_is_heard_and_told_while_it_runs() -> None:
    program = "import signal; print(input(), flush=True); signal.pause()"
    with processes.Process(
        ["-c", program], imports=("json",), stdin=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        print("hello", file=process.stdin, flush=True)
        assert process.stdout.readline() == "hello\n"
        assert process.poll() is None
        assert os.getsid(process.pid) == process.pid
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == -signal.SIGTERM
