"""`gnnplace.DistributedSession`: a placed model on the hosts of a cluster, behind the methods of `onnxruntime.InferenceSession`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from gnnplace.distributed.execution.host_pipeline import HostPipeline
from gnnplace.running.session import Session

__all__ = ["DistributedSession"]


class DistributedSession(Session):
    """A `gnnplace.Session` whose devices, such as `host1/cpu:0`, are on the hosts of a Ray cluster.

    All methods and errors are those of `Session`, but run options are refused. Each host loads its own parts, once. A process
    that is lost is started again, and what was under way is run again; where a host is gone, every request fails with
    `ProcessLost`, which names its devices. State of a training loop stays in the object store of its host.

    >>> with DistributedSession("placed", ray="10.0.0.1:6379") as session:  # doctest: +SKIP
    ...     (answer,) = session.run(None, {"x": image})
    """

    def __init__(
        self,
        placed: str | Path,
        ray: str = "auto",
        max_in_flight: int | None = None,
        custom_ops: Sequence[str | Path] = (),
    ) -> None:
        """Connects, and loads all parts onto their hosts.

        Args:
            placed: The folder that `place` wrote, or its `placed.onnx`.
            ray: Address of the cluster; see `gnnplace.distributed.connected`.
            max_in_flight: Requests that are under way at once, by default two per device.
            custom_ops: Shared libraries with operators that ONNX Runtime does not have, on this machine.

        Raises:
            InvalidPlacement: there is no placed model, or a broken one.
            InvalidTopology: a device is on no host of the cluster.
            GnnplaceError: as `Session`; or there is no cluster.
        """
        super().__init__(placed, max_in_flight, custom_ops, partial(HostPipeline, ray))
