"""Ray: the same protocols on many machines; delete it and all still works, only slower.

In reading order: `cluster.py` (the hosts that take part), `staff.py` (a worker for each slot of them), `pool.py` (items over these workers, each
counted once), `simulated.py` (batches of simulations), `measured.py` (executions), `priority.py` (of the processes that Ray starts), `training.py` (ranks of a training run),
`execution/` (a placed model whose devices sit on several hosts), `placing/` (the devices of several hosts as one topology), `raylets.py` (a
cluster on this machine, for tests and benches).

How it grows, by `gnnplace bench ray` (notebooks/results/bench-ray.json; Ray 2.60.0, two raylets of one core on two cores of an AMD EPYC). Measured: two hosts
make 25.5 evaluations of 69 ms per second where one makes 13.9, 1.83 times as many (1.71 to 2.16 in six runs: the cores of this machine change their speed); an evaluation costs 3.1 ms
besides itself; an empty item is two messages and 1,323 bytes, takes 1.06 ms there and back, 0.55 ms of the driver's CPU and 0.76 ms of its time when there is
always one more; a turn of its loop takes 1.1 us more for each item that is out. Simulated with that, evaluations of 50 ms, a driver and one worker per host:

- 1, 10, 100 and 1,000 hosts with a message for each evaluation: 38, 376, 2,605 and 2,626 messages/s, 0.03, 0.3, 2.4 and 2.4 MB/s, 0.76 to 0.90 ms of the driver per
  evaluation, whose share of time is 2 %, 17 %, 100 % and 100 %; the hosts reach 94 %, 94 %, 65 % and 7 % of what they could do. The driver has no time left from 65 workers on.
- 64 evaluations in a message: 0.6, 6, 62 and 624 messages/s, 0.01 to 11 MB/s, 14 to 31 us of the driver per evaluation, its share at most 61 %; the hosts reach
  100 % everywhere. The driver has no time left from 4,208 workers on.

So messages have to be filled, as `simulated.py` does; executions are long enough to be sent one by one to some 400 hosts.
"""

from gnnplace.distributed.cluster import Host, connected, hosts, require_ray

__all__ = ["Host", "connected", "hosts", "require_ray"]
