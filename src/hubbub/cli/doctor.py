"""`hubbub doctor`: say what on this machine is in the way of the bus, and how to mend it."""

from collections.abc import Sequence
from dataclasses import asdict

import typer

from hubbub.cli.diagnosis import Finding
from hubbub.cli.options import Json, Log, LoopbackInterface
from hubbub.cli.screen import Screen, wrapped
from hubbub.cli.session import end_on_sigterm
from hubbub.cli.terminal import LOOPBACK, escape, plural, print_json


def doctor(
    interface: LoopbackInterface = LOOPBACK,
    as_json: Json = False,
    log: Log = None,
) -> None:
    """Say what on this machine is in the way of the bus.

    It looks at interfaces, multicast, buffers, offloads, timers and clocks. A datagram is really
    sent, on loopback unless --interface names another one. Exits with 1 if anything is bad; a
    warning only costs speed or precision.
    """
    from hubbub.cli import host_checks, network_checks

    end_on_sigterm()
    findings = [*host_checks.examine(), *network_checks.examine(interface, log)]
    if as_json:
        print_json({"ok": not _count(findings, "bad"), "findings": [asdict(f) for f in findings]})
    else:
        _print(findings)
    raise typer.Exit(1 if _count(findings, "bad") else 0)


def _count(findings: Sequence[Finding], state: str) -> int:
    return sum(finding.state == state for finding in findings)


def _print(findings: Sequence[Finding]) -> None:
    names, width = max(len(finding.name) for finding in findings), Screen().width
    for finding in findings:
        head = f"{finding.state:4}  {finding.name:{names}}  "
        print(*wrapped(head, escape(finding.what), width), sep="\n")
        for line in finding.remedy.splitlines():
            print(f"{'':{len(head)}}-> {escape(line)}")  # To be copied: never broken.
    bad, warnings = _count(findings, "bad"), _count(findings, "warn")
    if bad or warnings:
        print(f"{bad} bad, {plural(warnings, 'warning')}")
    else:
        print("everything is as it should be")
