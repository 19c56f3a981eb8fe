"""Random numbers of distributions that NumPy's generator lacks."""

import numpy as np


def log_uniform(rng: np.random.Generator, least: float, most: float) -> float:
    """A positive number whose logarithm is uniform, so that small ones are as likely as large ones.

    >>> 2.0 <= log_uniform(np.random.default_rng(0), 2.0, 500.0) <= 500.0
    True
    """
    return float(np.exp(rng.uniform(np.log(least), np.log(most))))
