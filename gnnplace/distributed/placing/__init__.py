"""The devices of several hosts as one topology: what each host says it has, and what is probed between them.

In reading order: `remote_call.py` (a function run on a host), `host_links.py` (what sending costs), `host_devices.py` (the topology).
"""

from gnnplace.distributed.placing.host_devices import HostDevices, HostsTopology, devices_on_hosts, names_hosts
from gnnplace.distributed.placing.host_links import probe_host_links
from gnnplace.distributed.placing.remote_call import called_on_all, sent_file, written_files

__all__ = [
    "HostDevices",
    "HostsTopology",
    "called_on_all",
    "devices_on_hosts",
    "names_hosts",
    "probe_host_links",
    "sent_file",
    "written_files",
]
