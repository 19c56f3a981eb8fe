"""What tests that cause faults look for."""

import psutil


def measuring_processes() -> list[psutil.Process]:
    """The measuring processes of this one, dead ones that nobody buried included."""
    children = psutil.Process().children()
    return [c for c in children if c.status() == psutil.STATUS_ZOMBIE or "isolated_process" in " ".join(c.cmdline())]
