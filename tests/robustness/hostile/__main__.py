"""`make bench-hostile`."""

from tests.robustness.hostile.suite import bench_hostile
from tests.robustness.program import main

if __name__ == "__main__":  # a process that this one starts imports this file too
    main("hostile", bench_hostile)
