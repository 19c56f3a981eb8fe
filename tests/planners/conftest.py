"""Torch on one thread, as for the policy's tests."""

from tests.policy.conftest import one_thread

__all__ = ["one_thread"]
