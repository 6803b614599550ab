"""Heavy modules, imported at first use.

Algorithms and reproductions are read by commands that must start in a blink
(``dare list``, ``dare show``), so they name torch without importing it::

    if TYPE_CHECKING:
        import torch
    else:
        torch = lazy("torch")
"""

from importlib import import_module
from types import ModuleType
from typing import Any


class _LazyModule:
    def __init__(self, name: str) -> None:
        self._name = name
        self._module: ModuleType | None = None

    def __getattr__(self, attribute: str) -> Any:
        if self._module is None:
            self._module = import_module(self._name)
        return getattr(self._module, attribute)


def lazy(name: str) -> Any:
    """A stand-in for module ``name`` that imports it when an attribute is read."""
    return _LazyModule(name)
