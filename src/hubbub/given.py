"""What counts as a number where somebody gives one: to Python True is one, too."""

from typing import Any, TypeGuard


def is_whole(value: Any) -> TypeGuard[int]:
    """Tell whether a whole number was given."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> TypeGuard[float]:
    """Tell whether a number was given, whole or not."""
    return isinstance(value, int | float) and not isinstance(value, bool)
