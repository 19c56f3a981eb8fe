"""Nothing that gnnplace reads is unpickled, and arrays take no more memory than their files state."""

import dataclasses
import gzip
import io
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from gnnplace.errors import GnnplaceError, InvalidGraph, InvalidInput
from gnnplace.graph.json_format import read_graph
from gnnplace.policy.checkpoint import checked_config, load_policy, restored_network, save_policy
from gnnplace.policy.network import PolicyConfig, build_policy
from gnnplace.running.feed import read_arrays, write_arrays
from gnnplace.running.session import Session
from gnnplace.training.run_state import read_state


class Bomb:
    """Unpickling it makes a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> object:
        return Path.touch, (self.target,)


def in_archive(path: Path, bomb: Bomb) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", pickle.dumps(bomb))


def pickled(path: Path, bomb: Bomb) -> None:
    path.write_bytes(pickle.dumps(bomb))


def policy_with(write: Callable[[Path, Bomb], object]) -> Callable[[Path, Bomb], None]:
    """Writes a policy with its card, then replaces the policy alone."""

    def both(path: Path, bomb: Bomb) -> None:
        save_policy(path, build_policy(0, PolicyConfig(hidden=4, rounds=1)), {})
        write(path, bomb)

    return both


READERS = {
    "inputs.npz": (read_arrays, r"is no \.npz file of plain arrays"),
    "policy.safetensors": (load_policy, "cannot be read as safetensors"),
    "state.pt": (read_state, "is no state of a training run"),
    "parts/manifest.json": (lambda path: Session(path.parents[1]), "expected JSON"),
}


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("inputs.npz", lambda path, bomb: np.savez(path, x=np.array([bomb], dtype=object))),
        ("inputs.npz", in_archive),
        ("inputs.npz", pickled),
        ("policy.safetensors", policy_with(pickled)),
        ("policy.safetensors", policy_with(lambda path, bomb: torch.save({"x": bomb}, path))),
        ("state.pt", lambda path, bomb: torch.save({"format": "gnnplace.training/1", "network": bomb}, path)),
        ("state.pt", pickled),
        ("parts/manifest.json", pickled),
    ],
)
def test_a_pickle_is_refused_and_not_run(name: str, write: Callable[[Path, Bomb], object], tmp_path: Path) -> None:
    path, target = tmp_path / "in" / name, tmp_path / "exploded"
    path.parent.mkdir(parents=True)
    write(path, Bomb(target))
    read, message = READERS[name]
    with pytest.raises(GnnplaceError, match=message):
        read(path)
    assert not target.exists()


def test_a_bomb_makes_a_file_when_it_is_unpickled(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Bomb(tmp_path / "exploded")))
    assert (tmp_path / "exploded").exists()


def test_arrays_of_any_name_survive_their_file(tmp_path: Path) -> None:
    arrays = {"file": np.ones(2), "../x": np.array(3), "text": np.array(["a", "bc"], dtype=object), "a/b": np.eye(2)}
    write_arrays(tmp_path / "out" / "y.npz", arrays)
    found = read_arrays(tmp_path / "out" / "y.npz")
    assert {name: value.tolist() for name, value in found.items()} == {k: v.tolist() for k, v in arrays.items()}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("shape", ["(99999999999,)", "(-1,)", "(3, 3)", "((2, 2"])
def test_an_array_with_a_wrong_header_is_refused_before_memory_is_allocated(shape: str, tmp_path: Path) -> None:
    target = io.BytesIO()
    np.savez(target, x=np.ones((2, 2), np.float32))
    with zipfile.ZipFile(target) as archive:
        content = archive.read("x.npy").replace(b"(2, 2)", shape.encode())
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", content)
    with pytest.raises(InvalidInput, match=r"is no \.npz file"):
        read_arrays(tmp_path / "x.npz")


def test_small_archives_that_unpack_to_much_are_refused(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros(2**27, np.uint8))
    with pytest.raises(InvalidInput, match="unpacks to"):
        read_arrays(tmp_path / "x.npz")
    with gzip.open(tmp_path / "graph.json.gz", "wb", 1) as file:
        for _ in range(257):
            file.write(b" " * 2**20)
    with pytest.raises(InvalidGraph, match="unpacks to more than 256 MiB"):
        read_graph(tmp_path / "graph.json.gz")


def test_a_card_of_a_huge_policy_is_refused_before_memory_is_allocated() -> None:
    sizes = dataclasses.asdict(PolicyConfig(hidden=4096, rounds=512))
    with pytest.raises(GnnplaceError, match="has the shape None"):
        restored_network(checked_config(sizes, "card"), {}, "card")
