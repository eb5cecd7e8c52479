"""The very machines of `hubbub.protocol` under virtual time, on a network that does its worst.

One process, one seed, no wall clock: a failure is a scenario and a number, and happens again. What
opens a socket or a thread may not enter, and what users call is `run`, `run_many` and
`list_scenarios`; a `Trace` keeps what happened for others to judge.
"""

from hubbub.simulation.runner import Result, list_scenarios, run, run_many
from hubbub.simulation.trace import Trace

__all__ = ["Result", "Trace", "list_scenarios", "run", "run_many"]
