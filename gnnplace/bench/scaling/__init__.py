"""How many evaluations a second more hosts give, what one costs besides itself, and what follows for 1,000 hosts.

In reading order: `work.py` (what the workers do), `costs.py` (what is measured on a cluster of this machine), `growth.py` (the driver and
many hosts, simulated with these costs), `sessions.py` (a placed model over two hosts), `suite.py` (all of it).
"""

__all__: list[str] = []
