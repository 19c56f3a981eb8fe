"""Names of real devices, valid and invalid."""

import pytest

from gnnplace.devices.real_names import RealDevice, all_core_sessions, means_real_devices, parse_real, split_names
from gnnplace.errors import InvalidTopology


@pytest.mark.parametrize(
    "device",
    [
        RealDevice("cpu:12", cores=(12,)),
        RealDevice("cpu:2-4", cores=(2, 3, 4)),
        RealDevice("cpu:6+2-3[parallel=1,spinning=0]", cores=(2, 3, 6), options={"parallel": "1"}),
        RealDevice("h/cpu:0-1[spinning=1]", cores=(0, 1), options={"spinning": "1"}, host="h"),
        RealDevice("cpu:0[memory=2GiB]", cores=(0,), memory_bytes=2**31),
        RealDevice("cuda:1", "CUDAExecutionProvider", "1"),
        RealDevice("cuda:0[memory=500MB]", "CUDAExecutionProvider", "0", memory_bytes=500_000_000),
        RealDevice("cuda:0[sms=66]", "CUDAExecutionProvider", "0", sms=66),
        RealDevice("cuda:0[ sms = 66, slice = 1 ]", "CUDAExecutionProvider", "0", sms=66, slice=1),
        RealDevice(
            "cuda:3[cores=1,own_stream=1,do_copy=0]",
            "CUDAExecutionProvider",
            "3",
            (1,),
            own_stream=True,
            options={"do_copy": "0"},
        ),
        RealDevice("ep:OpenVINO:CPU", "OpenVINOExecutionProvider", "CPU"),
        RealDevice("ep:OpenVINOExecutionProvider:GPU.0", "OpenVINOExecutionProvider", "GPU.0"),
        RealDevice(
            "ep:OpenVINO:CPU[cores=0-1,threads=2,memory=1GiB]",
            "OpenVINOExecutionProvider",
            "CPU",
            (0, 1),
            2**30,
            options={"threads": "2"},
        ),
    ],
    ids=lambda device: device.name,
)
def test_a_name_states_provider_device_and_options(device: RealDevice) -> None:
    assert parse_real(device.name) == device


def test_only_devices_that_compute_on_cores_are_on_the_host() -> None:
    names = ["cpu:0", "ep:OpenVINO:CPU", "cuda:0", "ep:OpenVINO:GPU"]
    assert [parse_real(name).on_host for name in names] == [True, True, False, False]
    assert [parse_real(name).family for name in names] == ["cpu", "ep", "cuda", "ep"]
    assert [parse_real(name).gpu for name in names] == [None, None, 0, None]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cpu:x", "'cpu:x' does not exist on this machine; write cpu:K"),
        ("cpu:3-1", "'cpu:3-1' is an empty set of cores"),
        ("cpu:0[sms=3]", "a core has no option 'sms'"),
        ("cpu:0[cores=1]", "a core has no option 'cores'"),
        ("cpu:0[spinning=1]", "a core has no option 'spinning'; it has memory"),
        ("cpu:0-1[spinning=on]", "spinning=on is no whole number"),
        ("cpu:0+3-1", "is an empty set of cores"),
        ("cpu:0[]", "'' is no option"),
        ("cuda:0[sms]", "'sms' is no option; write key=value"),
        ("cuda:0[enable_cuda_graph=1]", "enable_cuda_graph cannot be set: a CUDA graph replays one set of buffers"),
        ("cuda:1[device_id=0]", "device_id cannot be set: it is in the device's name"),
        ("ep:Tensorrt:0[trt_cuda_graph_enable=1]", "trt_cuda_graph_enable cannot be set: a CUDA graph replays"),
        ("ep:NvTensorRTRTX:0[enable_cuda_graph=True]", "enable_cuda_graph cannot be set: a CUDA graph replays"),
        ("ep:Tensorrt:0[device_id=1]", "device_id cannot be set: it is in the device's name"),
        ("cuda:0[peer=1]", "peer cannot be set: values cross from GPU to GPU through the host"),
        ("cuda:0[sms=6,sms=6]", "'sms=6' is no option; write key=value, each key once"),
        ("cuda:0[sms=many]", "sms=many is no whole number"),
        ("cuda:0[sms=0]", "a slice needs its streaming multiprocessors"),
        ("cuda:0[slice=1]", "a slice needs its streaming multiprocessors, for example sms=66"),
        ("cuda:0[memory=much]", "memory='much' is no amount of bytes"),
        ("cuda:0[memory=1GiB", "does not exist"),
        ("cuda:0[cores=a]", "cores=a is no set of cores"),
        ("ep:OpenVINO", "does not exist"),
        ("ep:OpenVINO:", "does not exist"),
        ("ep:CUDA:0", "this provider has names of its own; write cpu:K or cuda:K"),
        ("k40:0", "does not exist on this machine"),
    ],
)
def test_an_invalid_name_is_refused_in_one_line(name: str, message: str) -> None:
    with pytest.raises(InvalidTopology) as error:
        parse_real(name)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_list_is_split_at_commas_outside_brackets() -> None:
    found = split_names("cpu:0,cuda:0[sms=66,slice=0], ep:OpenVINO:CPU[a=1,b=2] ,cpu:1")
    assert found == ["cpu:0", "cuda:0[sms=66,slice=0]", "ep:OpenVINO:CPU[a=1,b=2]", "cpu:1"]
    assert split_names("cpu:0,") == ["cpu:0", ""]


def test_only_names_of_real_devices_mean_real_devices() -> None:
    assert [means_real_devices(text) for text in ("cpu:0", "cuda:0", "ep:A:0", "cpux4", "k40x4")] == [
        True, True, True, False, False,
    ]  # fmt: skip


def test_all_cores_of_each_host_have_four_sessions() -> None:
    found = all_core_sessions(["cpu:3", "cuda:0", "cpu:1[memory=1GiB]", "h/cpu:0-1", "i/cpu:0"])
    assert found[::2] == ["cpu:1+3", "cpu:1+3[parallel=1]", "h/cpu:0-1", "h/cpu:0-1[parallel=1]"]
    assert all(parse_real(name).spinning for name in found[1::2])
