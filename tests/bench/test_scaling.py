"""The bench of kernels with one thread and with two."""

import numpy as np
import pytest

from gnnplace.bench.scaling import scaling_summary, serial_share


def test_shares_and_the_meeting_of_threads_are_recovered_from_made_up_kernels() -> None:
    def kernels(share: float, one: np.ndarray) -> np.ndarray:
        return np.stack([one, one * (share + (1 - share) / 2) + 5e-6], axis=1)

    long, short = np.geomspace(0.1, 1.0, 9), np.geomspace(1e-7, 1e-6, 9)
    assert serial_share(kernels(0.3, long)) == pytest.approx(0.3, abs=1e-3)
    assert serial_share(kernels(0.3, short)) is None
    summary = scaling_summary({"Conv": kernels(0.1, long), "Relu": kernels(0.0, short), "Concat": kernels(1.0, long)})
    assert summary["serial_convolution"] == pytest.approx(0.1, abs=1e-3)
    assert summary["serial_other"] is None  # Concat runs on one thread
    assert summary["sync_s"] == pytest.approx(5e-6, rel=1e-3)
    assert summary["kernels"] == 27
