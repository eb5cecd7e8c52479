"""`hubbub bench --link inproc`: publisher and subscribers as nodes of this very process."""

import contextlib
import gc
import os
import threading
from concurrent.futures import ThreadPoolExecutor, wait

import msgspec

import hubbub
from hubbub.cli.bench_plan import Outcome, Plan
from hubbub.cli.bench_processes import GRACE_S, START_TIMEOUT_S
from hubbub.cli.bench_worker import part_of
from hubbub.cli.session import set_up_log

LINKS = ("inproc", "local", "multicast")


def run(plan: Plan) -> tuple[Outcome, list[Outcome]]:
    """Run a benchmark; return the publisher's outcome and those of the subscribers."""
    set_up_log(is_wanted="HUBBUB_LOG" in os.environ)
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(plan.subscribers))
        subscribers = [
            _Part(f"subscriber-{index}", plan, stack) for index in range(plan.subscribers)
        ]
        publisher = _Part("publisher", plan, stack)
        gc.collect()
        gc.freeze()
        stack.callback(gc.unfreeze)
        playing = [pool.submit(subscriber.play) for subscriber in subscribers]
        for subscriber in subscribers:
            subscriber.is_ready.wait(START_TIMEOUT_S)
        published = publisher.play()
        wait(playing, GRACE_S)
        for subscriber in subscribers:
            subscriber.stop.set()
        received = [one.result() for one in playing]
    # The publisher's share is of the whole process, the subscribers' included.
    return published, [msgspec.structs.replace(one, cpu_seconds=0.0) for one in received]


class _Part:
    """One node, and what it does."""

    def __init__(self, role: str, plan: Plan, stack: contextlib.ExitStack) -> None:
        self.is_ready = threading.Event()
        self._plan = plan
        self.stop = threading.Event()
        self._part = part_of(role, plan)
        self._node = stack.enter_context(
            hubbub.open(f"bench-{role}", domain=plan.domain, interface=plan.interface, links=LINKS)
        )
        stack.callback(self.stop.set)

    def play(self) -> Outcome:
        """Do it until told to stop."""
        return self._part(self._node, self._plan, self.stop, self.is_ready.set)
