"""Puts the top-level ``kernels/`` tree on this package's path."""

from dare._layout import tree

__path__.append(str(tree("kernels")))
