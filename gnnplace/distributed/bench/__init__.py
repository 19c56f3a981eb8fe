"""`gnnplace bench ray`: evaluations per second of one host and of two, costs of messages, and a projection to 1,000 hosts.

In reading order: `costs.py` (measurements on a cluster of this machine), `suite.py` (these, a placed model over two hosts, and
a driver with many hosts, simulated with these costs).
"""

__all__: list[str] = []
