"""dare: a harness for post-training diffusion language models.

Every published method is a small module that pins config, data and seeds; one
shared core runs, scores and compares them.  Start with ``dare reproduce d1``.
"""

__version__ = "0.1.0"
