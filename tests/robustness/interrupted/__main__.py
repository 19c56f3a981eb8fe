"""`make bench-interrupted`."""

from tests.robustness.interrupted.suite import bench_interrupted
from tests.robustness.program import main

if __name__ == "__main__":  # a process that this one starts imports this file too
    main("interrupted", bench_interrupted)
