"""Devices that share cores never compute at the same time, and older requests come first."""

import time
from threading import Event, Lock, Thread

from gnnplace.running.exclusive import Gate, rivals_of

SETS = ["cpu:0", "cpu:1", "cpu:0-1", "cpu:2", "cpu:1-2"]


def test_a_provider_on_the_same_cores_and_slices_of_a_gpu_are_rivals() -> None:
    assert rivals_of(["cpu:0", "cpu:2"]) == {}
    assert rivals_of(["cpu:0", "ep:OpenVINO:CPU[cores=0-1]"])["cpu:0"] == ("ep:OpenVINO:CPU[cores=0-1]",)
    whole, one, two = "cuda:0", "cuda:0[sms=4]", "cuda:0[sms=4,slice=1]"
    assert rivals_of([whole, one, two, "cuda:1"]) == {whole: (one, two), one: (whole,), two: (whole,)}
    assert rivals_of(["a/cpu:0", "b/cpu:0"]) == {}


def test_no_two_rivals_compute_at_the_same_time() -> None:
    rivals = rivals_of(SETS)
    gate, lock, running, most = Gate(rivals), Lock(), list[str](), 0

    def work(device: str) -> None:
        nonlocal most
        for request in range(60):
            with gate.turn(device, request, 0):
                with lock:
                    assert not set(rivals[device]) & set(running)
                    running.append(device)
                    most = max(most, len(running))
                time.sleep(1e-4)
                with lock:
                    running.remove(device)

    failures: list[BaseException] = []

    def guarded(device: str) -> None:
        try:
            work(device)
        except BaseException as error:
            failures.append(error)

    threads = [Thread(target=guarded, args=(device,)) for device in rivals]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert most >= 2  # devices apart from each other do


def test_the_oldest_request_goes_first_and_one_that_waits_keeps_no_third_device_from_computing() -> None:
    gate, inside, leave = Gate(rivals_of(SETS)), Event(), Event()
    log: list[str] = []

    def hold() -> None:
        with gate.turn("cpu:0", 0, 0):
            inside.set()
            leave.wait()

    def enter(device: str, request: int) -> None:
        with gate.turn(device, request, 0):
            log.append(device)

    threads = [Thread(target=hold)]
    threads[0].start()
    inside.wait()
    both = Thread(target=enter, args=("cpu:0-1", 1))
    both.start()
    while not gate._waiting:
        time.sleep(1e-3)
    enter("cpu:1", 2)  # passes the older one, which lacks core 0
    leave.set()
    both.join()
    assert log == ["cpu:1", "cpu:0-1"]
