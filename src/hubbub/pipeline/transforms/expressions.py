"""Columns that several digests need.

They are written as SQL: each operator of Python would be a call to Java of its own, and a small
step would spend more time on these than on its rows.
"""


def floor_to(column: str, step: int) -> str:
    """Round a number that is not negative down to a multiple."""
    return f"{column} - {column} % {step}L"
