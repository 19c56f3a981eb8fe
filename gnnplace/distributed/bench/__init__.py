"""`gnnplace bench ray`: evaluations per second of one host and of two, costs of messages, and a projection to 1,000 hosts.

In reading order: `costs.py` (measurements on a cluster of this machine), `growth.py` (a driver and many hosts, simulated with
these costs), `sessions.py` (a placed model over two hosts), `suite.py` (all of it).
"""

__all__: list[str] = []
