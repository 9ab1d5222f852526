"""What a gradient must satisfy, checked without anybody's formula for it: the directional derivative of its function.

In:  a function in double precision, the point, the output's gradient, the gradient that is claimed.
Out: an AssertionError when Σ dy · (f(x + h·v) − f(x − h·v)) / 2h is not Σ dx · v for random directions v.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

STEP = 1e-4
"""the central difference's error is then about 1e-8 of the result"""
DIRECTIONS = 4


def check_gradient(
    function: Callable[..., np.ndarray], at: Sequence[np.ndarray], dy: np.ndarray, gradients: Sequence[np.ndarray], tolerance: float = 1e-5
) -> None:
    """gradients[i] belongs to at[i]; tolerance: relative to the sizes of gradient and direction."""
    rng = np.random.default_rng(3)
    point = [x.astype(np.float64) for x in at]
    for index, gradient in enumerate(gradients):
        assert np.isfinite(gradient).all()
        for _ in range(DIRECTIONS):
            v = rng.normal(size=point[index].shape)
            values = [function(*(x + side * STEP * v if i == index else x for i, x in enumerate(point))) for side in (1, -1)]
            wanted = float((dy.astype(np.float64) * (values[0] - values[1])).sum()) / (2 * STEP)
            found = float((gradient.reshape(v.shape).astype(np.float64) * v).sum())
            assert abs(found - wanted) <= tolerance * np.linalg.norm(gradient), f"input {index}: {found} instead of {wanted}"
