"""Ray: the same protocols on many machines; delete it and all still works, only slower.

In reading order: `cluster.py` (the hosts that take part), `staff.py` (a worker for each slot of them), `pool.py` (items over these workers, each
counted once), `simulated.py` (batches of simulations), `measured.py` (executions), `priority.py` (of the processes that Ray starts), `training.py` (ranks of a training run),
`execution/` (a placed model whose devices sit on several hosts), `placing/` (the devices of several hosts as one topology), `raylets.py` (a
cluster on this machine, for tests and benches).

How it grows, by `gnnplace bench ray` (notebooks/results/bench-ray.json; Ray 2.60.0, two raylets of one core on two cores of an AMD EPYC). Measured: two hosts
make 27.8 evaluations of 61 ms per second where one makes 15.6, 1.79 times as many (the median of three runs: 1.71, 1.79, 1.90); an evaluation costs 2.9 ms besides itself; an empty
item is two messages and 1,251 bytes, takes 0.98 ms there and back, 0.42 ms of the driver's CPU and 0.53 ms of its time when there is always one more; a turn of
its loop takes 1.0 us more for each item that is out. Simulated with that, evaluations of 50 ms, a driver and one worker per host:

- 1, 10, 100 and 1,000 hosts with a message for each evaluation: 38, 378, 3,515 and 3,734 messages/s, 0.03, 0.3, 3.1 and 3.3 MB/s, 0.54 to 0.69 ms of the driver per
  evaluation, whose share of time is 1 %, 13 %, 100 % and 100 %; the hosts reach 95 %, 95 %, 88 % and 9 % of what they could do. The driver has no time left from 93 workers on.
- 64 evaluations in a message: 0.6, 6, 62 and 624 messages/s, 0.01 to 11 MB/s, 11 to 26 us of the driver per evaluation, its share at most 53 %; the hosts reach
  100 % everywhere. The driver has no time left from 5,987 workers on.

So messages have to be filled, as `simulated.py` does; executions are long enough to be sent one by one to some 500 hosts.
"""

from gnnplace.distributed.cluster import Host, connected, hosts, require_ray

__all__ = ["Host", "connected", "hosts", "require_ray"]
