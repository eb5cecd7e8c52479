"""What a check of `hubbub doctor` found."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the diagnosis: `state` is `ok`, `warn` or `bad`; `remedy` says what to do."""

    name: str
    state: str
    what: str
    remedy: str = ""
