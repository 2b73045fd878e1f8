"""Asking for a path that somebody typed."""

from __future__ import annotations

from pathlib import Path


def there(path: Path) -> bool:
    """Whether something is at `path`; nothing is at a name that no file can have, or that may not be looked at."""
    try:
        return path.exists()
    except OSError:
        return False
