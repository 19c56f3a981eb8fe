"""A placed model whose devices sit on several hosts: values go from host to host, and not through the program that asks.

In reading order: `parts_transfer.py` (parts and weights go to each host once), `host_worker.py` (the process of a host and what others tell
it), `host_process.py` (started, lost, started again), `host_pipeline.py` (requests under way on all hosts), `session.py`.

A host has one process with a thread per device, which is the local executor's `Worker` as it is, so that devices of a host hand values over in
memory as they do without a cluster. Between hosts a value is an argument of an actor's method: Ray puts what is large into its object store and
moves it from store to store. Ray's compiled graphs would run the steps of an actor in one fixed order, a request after the other: where a device
waits for another host in the middle of a request, the next one could not begin; a lost actor takes the whole graph with it; and in Ray 2.60 a
chain of ten methods that alternated between the actors of two local raylets gave no answer within its limit of ten seconds.
"""

from gnnplace.distributed.execution.host_pipeline import HostPipeline
from gnnplace.distributed.execution.session import DistributedSession

__all__ = ["DistributedSession", "HostPipeline"]
