"""Ray: the same protocols on many machines; delete it and all still works, only slower.

In reading order: `cluster.py` (the hosts that take part), `staff.py` (a worker for each slot of them), `pool.py` (items over these workers, each
counted once), `simulated.py` (batches of simulations), `measured.py` (executions), `priority.py` (of the processes that Ray starts), `training.py` (ranks of a training run),
`execution/` (a placed model whose devices sit on several hosts), `placing/` (the devices of several hosts as one topology), `raylets.py` (a
cluster on this machine, for tests and benches).
"""

from gnnplace.distributed.cluster import Host, connected, hosts, require_ray

__all__ = ["Host", "connected", "hosts", "require_ray"]
