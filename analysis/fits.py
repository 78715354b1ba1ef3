"""Two models of scaling: Amdahl's law by least squares, and the Karp-Flatt serial fraction.

q = p / p0 is the world size relative to the baseline's; T is the time of fixed work in seconds.
Sources: G. Amdahl, AFIPS 1967; A. Karp and H. Flatt, CACM 33(5), 1990.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MIN_POINTS = 4
"""World sizes below which two parameters and their spread say nothing."""
MAX_EXTRAPOLATION = 2.0
"""`AmdahlFit.predict` refuses world sizes beyond this multiple of the largest measured one."""
RESAMPLES = 2000
SEED = 20240117


def karp_flatt(speedup: float | None, q: float | None) -> float | None:
    """Experimentally determined serial fraction e = (1/S - 1/q) / (1 - 1/q), dimensionless.

    Constant e over q points to a serial part (data, start-up), rising e to communication or imbalance. None at the
    baseline (q <= 1), where it is not defined, and without a positive speedup.
    """
    if speedup is None or q is None or q <= 1 or speedup <= 0:
        return None
    return (1 / speedup - 1 / q) / (1 - 1 / q)


@dataclass(frozen=True, slots=True)
class AmdahlFit:
    """T(q) = serial_s + parallel_s / q with a 95 % interval of the serial share."""

    serial_s: float
    parallel_s: float
    serial_share: float
    """serial_s / (serial_s + parallel_s): share of the baseline's time that doesn't shrink."""
    share_lo: float
    share_hi: float
    method: Literal["runs", "residuals"]
    """What was resampled: runs within each world size, or residuals where a world size has only one run."""
    points: int
    base_world_size: int
    largest_world_size: int
    residual: float
    """Root mean square of the relative residuals, dimensionless."""

    def predict(self, world_size: float) -> float:
        """Seconds at a world size. Raises ValueError beyond twice the largest measured one."""
        limit = MAX_EXTRAPOLATION * self.largest_world_size
        if not 0 < world_size <= limit:
            raise ValueError(
                f"world size {world_size:g} is outside 0 to {limit:g}: the fit was made up to "
                f"{self.largest_world_size} and says nothing beyond twice that"
            )
        return self.serial_s + self.parallel_s * self.base_world_size / world_size


def fit_amdahl(times: Sequence[tuple[int, float]], base_world_size: int) -> AmdahlFit | None:
    """Fit Amdahl's law to (world size, seconds) pairs, one pair per run.

    Least squares on relative errors (a run ten times longer varies about ten times as much), both parameters not
    negative. The interval is a percentile bootstrap of 2000 resamples with a fixed seed, over runs within each world
    size; residuals are resampled instead when some world size has a single run. None below four world sizes.
    """
    import numpy as np

    data = sorted((size, seconds) for size, seconds in times if seconds > 0)
    sizes = sorted({size for size, _ in data})
    if len(sizes) < MIN_POINTS:
        return None
    world = np.array([size for size, _ in data], dtype=float)
    seconds = np.array([value for _, value in data], dtype=float)
    inverse_q = base_world_size / world
    serial, parallel = (float(value[0]) for value in _least_squares(inverse_q, seconds[np.newaxis, :]))
    groups = [np.flatnonzero(world == size) for size in sizes]
    resampled, method = _resample(inverse_q, seconds, serial + parallel * inverse_q, groups)
    a, b = _least_squares(inverse_q, resampled)
    low, high = np.percentile(a / (a + b), [2.5, 97.5])
    fitted = serial + parallel * inverse_q
    return AmdahlFit(
        serial_s=serial,
        parallel_s=parallel,
        serial_share=serial / (serial + parallel),
        share_lo=float(low),
        share_hi=float(high),
        method=method,
        points=len(sizes),
        base_world_size=base_world_size,
        largest_world_size=sizes[-1],
        residual=float(np.sqrt(np.mean((seconds / fitted - 1) ** 2))),
    )


def _least_squares(
    inverse_q: NDArray[np.float64], seconds: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Minimise sum(((a + b/q) / T - 1)^2) with a, b >= 0. `inverse_q` is (n,), `seconds` (m, n); a and b are (m,).

    Two unknowns, so non-negativity is settled by comparing the free optimum with the two edges a = 0 and b = 0.
    """
    import numpy as np

    u, v = 1 / seconds, inverse_q / seconds
    uu, uv, vv = (u * u).sum(axis=1), (u * v).sum(axis=1), (v * v).sum(axis=1)
    su, sv = u.sum(axis=1), v.sum(axis=1)
    determinant = uu * vv - uv * uv
    a, b = (su * vv - sv * uv) / determinant, (sv * uu - su * uv) / determinant
    # on the edge a = 0 the objective falls by sv^2/vv from n, on b = 0 by su^2/uu: take the larger fall
    parallel_only = sv * sv / vv >= su * su / uu
    outside = (a < 0) | (b < 0)
    a = np.where(outside, np.where(parallel_only, 0.0, su / uu), a)
    b = np.where(outside, np.where(parallel_only, sv / vv, 0.0), b)
    return a, b


def _resample(
    inverse_q: NDArray[np.float64],
    seconds: NDArray[np.float64],
    fitted: NDArray[np.float64],
    groups: list[NDArray[np.intp]],
) -> tuple[NDArray[np.float64], Literal["runs", "residuals"]]:
    """(2000, n) resampled times, columns in the order of `inverse_q`."""
    import numpy as np

    generator = np.random.default_rng(SEED)
    if all(len(group) > 1 for group in groups):
        columns = [generator.choice(group, size=(RESAMPLES, len(group))) for group in groups]
        return seconds[np.concatenate(columns, axis=1)], "runs"
    # two parameters were fitted, so raw residuals are too small by sqrt((n - 2) / n)
    ratios = (seconds / fitted - 1) * np.sqrt(len(seconds) / (len(seconds) - 2))
    drawn = generator.choice(ratios, size=(RESAMPLES, len(seconds)))
    return fitted * np.maximum(1 + drawn, 1e-3), "residuals"
