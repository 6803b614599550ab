"""The statistics of this project: pure functions on numbers.

Shares are in [0, 1]; everything else is in the unit of its input.  numpy is imported at
first use, scipy never: the Student quantiles are computed here and tested against tables.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist, fmean, stdev
from typing import TYPE_CHECKING, Any

from dare._lazy import lazy
from dare.diffusion.keys import Key, RunKey
from dare.errors import UsageProblem

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy("numpy")

DRAWS = 10_000
_CHUNK = 500
MOST_PAIRS = 20


# --- Student's t -------------------------------------------------------------------------


def t_cdf(x: float, df: float) -> float:
    """P(T <= x) for Student's t with ``df`` > 0 degrees of freedom."""
    if x == 0:
        return 0.5
    # I_z(df/2, 1/2) with z = df / (df + x^2) is the two-sided tail.
    tail = _incomplete_beta(df / 2, 0.5, df / (df + x * x), x * x / (df + x * x)) / 2
    return 1 - tail if x > 0 else tail


@lru_cache(maxsize=4096)
def t_quantile(p: float, df: float) -> float:
    """x with P(T <= x) = p, by bisection to the last digits; 0 < p < 1."""
    if not 0 < p < 1 or df <= 0:
        raise ValueError(f"no t quantile for p={p}, df={df}")
    if p < 0.5:
        return -t_quantile(1 - p, df)
    lo, hi = 0.0, 2.0
    while t_cdf(hi, df) < p:
        lo, hi = hi, 2 * hi
    while hi - lo > 1e-13 * hi:
        middle = (lo + hi) / 2
        if middle in (lo, hi):
            break
        lo, hi = (middle, hi) if t_cdf(middle, df) < p else (lo, middle)
    return (lo + hi) / 2


def _incomplete_beta(a: float, b: float, x: float, y: float) -> float:
    """The regularised incomplete beta function I_x(a, b), with y = 1 - x given exactly."""
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, y, x)
    if x == 0:
        return 0.0
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    log_front += a * math.log(x) + b * math.log(y)
    return math.exp(log_front) / (a * _beta_fraction(a, b, x))


def _beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of I_x(a, b), by Lentz's method: 1 + d1/(1 + d2/(1 + ...))."""
    tiny = 1e-300
    value, c, d = 1.0, 1.0, 0.0
    for step in range(1, 500):
        m = step // 2
        if step % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / (1 + term * d or tiny)
        c = 1 + term / c or tiny
        value *= c * d
        if abs(c * d - 1) < 1e-16:
            break
    return value


def normal_quantile(p: float) -> float:
    """The quantile of the standard normal."""
    return NormalDist().inv_cdf(p)


# --- intervals ---------------------------------------------------------------------------


def wilson(successes: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval for a share."""
    if n <= 0 or not 0 <= successes <= n:
        raise ValueError(f"{successes} successes in {n} trials")
    z = normal_quantile(0.5 + level / 2)
    p = successes / n
    centre = p + z * z / (2 * n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    lo = 0.0 if successes == 0 else (centre - half) / scale
    hi = 1.0 if successes == n else (centre + half) / scale
    return lo, hi


def t_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """Student's interval for the mean of a normal sample of at least 2."""
    return _t_around(values, level, 1 / len(values) if values else 0)


def prediction_interval(
    values: Sequence[float], level: float = 0.95, m_new: int = 1
) -> tuple[float, float]:
    """Where the mean of ``m_new`` new draws will fall, given at least 2 ``values``."""
    return _t_around(values, level, 1 / m_new + (1 / len(values) if values else 0))


def _t_around(values: Sequence[float], level: float, variances: float) -> tuple[float, float]:
    if len(values) < 2:
        raise ValueError(f"an interval over runs needs 2 values or more, not {len(values)}")
    half = t_quantile(0.5 + level / 2, len(values) - 1) * stdev(values) * math.sqrt(variances)
    return fmean(values) - half, fmean(values) + half


def t_test(values: Sequence[float]) -> float:
    """Two-sided p of "the mean is 0" for a normal sample of at least 2."""
    if len(values) < 2:
        raise ValueError("a t test needs 2 values or more")
    spread = stdev(values)
    if spread == 0:
        return 1.0 if fmean(values) == 0 else 0.0
    t = fmean(values) / (spread / math.sqrt(len(values)))
    return 2 * t_cdf(-abs(t), len(values) - 1)


# --- paired tests ------------------------------------------------------------------------


def mcnemar(only_a: int, only_b: int) -> float:
    """Exact two-sided McNemar test with the mid-p correction.

    ``only_a`` and ``only_b`` count the items that one of two runs alone got right.
    """
    n, small = only_a + only_b, min(only_a, only_b)
    if n == 0:
        return 1.0
    below = sum(math.comb(n, k) for k in range(small))
    at = math.comb(n, small)
    # 2 P(X <= small) - P(X = small), in whole numbers.
    return min(1.0, (2 * below + at) / 2**n)


@dataclass(frozen=True, slots=True)
class SignFlip:
    """Two-sided p of a sign-flip permutation test, and the smallest p it could have given."""

    p: float
    smallest: float


def sign_flip(differences: Sequence[float]) -> SignFlip:
    """Permutation test of "differences are symmetric about 0", over all 2^m sign patterns.

    Three pairs cannot give less than .25, six are needed for p < .05.  At most 20 pairs.
    """
    m = len(differences)
    if not 1 <= m <= MOST_PAIRS:
        raise ValueError(f"the exact sign-flip test takes 1 to {MOST_PAIRS} pairs, not {m}")
    values = np.asarray(differences, dtype=float)
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums + value, sums - value])
    observed = abs(values.sum())
    slack = 1e-9 * max(1.0, float(np.abs(values).sum()))
    p = float(np.mean(np.abs(sums) >= observed - slack))
    return SignFlip(p, 2.0 ** (1 - m))


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """A difference with its percentile interval and two-sided p."""

    estimate: float
    lo: float
    hi: float
    p: float
    level: float
    draws: int


def paired_bootstrap(
    a: Any,
    b: Any,
    weights: Any = None,
    *,
    level: float = 0.95,
    draws: int = DRAWS,
    key: Key | None = None,
) -> Bootstrap:
    """a - b with its percentile interval; arguments as in :func:`bootstrap_differences`."""
    means, estimate = bootstrap_differences(a, b, weights, draws=draws, key=key)
    lo, hi = np.quantile(means, [0.5 - level / 2, 0.5 + level / 2])
    return Bootstrap(estimate, float(lo), float(hi), bootstrap_p(means), level, draws)


def bootstrap_p(means: Any) -> float:
    """Two-sided p of "the difference is 0" from bootstrap draws; never exactly 0."""
    beyond = min(int((means <= 0).sum()), int((means >= 0).sum()))
    return min(1.0, 2 * (1 + beyond) / (len(means) + 1))


def bootstrap_differences(
    a: Any, b: Any, weights: Any = None, *, draws: int = DRAWS, key: Key | None = None
) -> tuple[np.ndarray, float]:
    """(draws of a - b by resampling seeds, then items; a - b itself).

    One draw serves both arms, so the arms stay paired.
    a, b: (S, N) points per seed and item; ``b`` may be (1, N), one run against all seeds.
    weights: (N,) points that each item can give (default 1): the score is
    sum(points) / sum(weights), a share.  The random stream is fixed by ``key``.
    """
    d = np.asarray(a, dtype=float) - np.asarray(b, dtype=float)
    if d.ndim != 2 or not d.size:
        raise ValueError(f"points must be (seeds, items), got {d.shape}")
    seeds, items = d.shape
    w = np.ones(items) if weights is None else np.asarray(weights, dtype=float)
    rng = (key or RunKey(0).at("bootstrap")).numpy()
    means = np.empty(draws)
    for start in range(0, draws, _CHUNK):
        size = min(_CHUNK, draws - start)
        counts = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=size)
        per_item = counts @ d / seeds
        chosen = rng.integers(items, size=(size, items))
        points = np.take_along_axis(per_item, chosen, axis=1).sum(axis=1)
        means[start : start + size] = points / w[chosen].sum(axis=1)
    return means, float(d.mean(axis=0).sum() / w.sum())


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the order given."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [0.0] * len(p_values)
    running = 0.0
    for rank, index in enumerate(order):
        running = max(running, (len(p_values) - rank) * p_values[index])
        adjusted[index] = min(1.0, running)
    return adjusted


# --- what could have been seen -----------------------------------------------------------


def detectable_over_seeds(sd: float, m: int, *, power: float = 0.8, level: float = 0.95) -> float:
    """Smallest true difference that ``m`` paired seeds show with ``power``; unit of ``sd``.

    ``sd`` is that of the per-seed differences.  (t_level + t_power) sd / sqrt(m).
    """
    if m < 2:
        return math.inf
    quantiles = t_quantile(0.5 + level / 2, m - 1) + t_quantile(power, m - 1)
    return quantiles * sd / math.sqrt(m)


def detectable_paired(
    discordant: float, n: int, *, power: float = 0.8, level: float = 0.95
) -> float:
    """Smallest share that two runs on the same ``n`` items can differ by and be seen.

    ``discordant`` is the share of items on which exactly one of them is right.
    """
    return z_sum(power, level) * math.sqrt(discordant / n)


def detectable_unpaired(share: float, n: int, *, power: float = 0.8, level: float = 0.95) -> float:
    """The same for two runs on different sets of ``n`` items, both near ``share``."""
    return z_sum(power, level) * math.sqrt(2 * share * (1 - share) / n)


def z_sum(power: float = 0.8, level: float = 0.95) -> float:
    """Standard errors that a difference must have to be seen with ``power``."""
    return normal_quantile(0.5 + level / 2) + normal_quantile(power)


# --- aggregates --------------------------------------------------------------------------


def pass_at_k(n: int, correct: int, k: int, *, greedy: bool = False) -> float:
    """Unbiased pass@k of one problem: 1 - C(n - correct, k) / C(n, k).

    Raises ``UsageProblem`` for n < k, and for k > 1 when all samples are the greedy one.
    """
    if not 0 <= correct <= n or k < 1:
        raise ValueError(f"{correct} correct of {n} samples, k={k}")
    if greedy and k > 1:
        raise UsageProblem(
            f"pass@{k} cannot be estimated from a greedy sample",
            "at temperature 0 every sample of a problem is the same one",
            f"sample {k} or more completions per problem at a temperature above 0",
        )
    if n < k:
        raise UsageProblem(
            f"pass@{k} cannot be estimated from {n} samples",
            f"the unbiased estimator needs at least {k} per problem",
            f"sample {k} or more completions per problem, or ask for pass@{n}",
        )
    return 1 - math.comb(n - correct, k) / math.comb(n, k)


def iqm(values: Sequence[float]) -> float:
    """Interquartile mean: what is left when a quarter (rounded down) is cut off each end."""
    if not values:
        raise ValueError("no values")
    cut = len(values) // 4
    return fmean(sorted(values)[cut : len(values) - cut])
