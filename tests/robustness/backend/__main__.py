"""`make bench-backend`."""

from tests.robustness.backend.suite import bench_backend
from tests.robustness.program import main

if __name__ == "__main__":  # a process that this one starts imports this file too
    main("backend", bench_backend)
