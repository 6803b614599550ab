"""Where the top-level trees (kernels, reproductions, leaderboards) live.

In a checkout they are siblings of ``dare/``; in a wheel they are packed below
``dare/_trees``.  Everything that reads them asks here, so both layouts work from
any working directory.
"""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def in_checkout() -> bool:
    """True when the package is used from a source tree."""
    return (_PACKAGE.parent / "pyproject.toml").is_file()


def tree(name: str) -> Path:
    """Folder of the tree ``name``, whether or not it exists."""
    if in_checkout():
        return _PACKAGE.parent / name
    return _PACKAGE / "_trees" / name
