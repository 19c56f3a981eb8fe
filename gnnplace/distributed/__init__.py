"""Ray, as a plug-in that `api` finds by name: nothing else imports it, and without this folder all else works.

In reading order:

- `cluster.py`: the connection to a cluster, its hosts, and the versions that decide whether a host takes part;
- `workers.py`: one Ray actor per slot of every host;
- `pool.py`: items over these workers, each counted exactly once;
- `calls.py`: function calls and files for hosts;
- `evaluators.py`: simulations and executions by such a pool;
- `training.py`: the ranks of a training run;
- `host_devices.py`: the devices of several hosts as one topology, and the links between hosts;
- `host_worker.py`: the process of one host of a placed model;
- `execution.py`: `gnnplace.DistributedSession`, a placed model on several hosts;
- `plugin.py`: the functions that `api` and benches call, the only file that they load;
- `bench/`: the bench of Ray itself;
- `raylets.py`: a cluster on this machine, for tests and benches.
"""

from gnnplace.distributed.cluster import Host, connected, hosts, require_ray

__all__ = ["Host", "connected", "hosts", "require_ray"]
