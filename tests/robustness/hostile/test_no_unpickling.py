"""Nothing that gnnplace reads is unpickled: a pickle that would write a file is refused, and the file is not there."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from gnnplace.errors import GnnplaceError, InvalidInput
from gnnplace.policy.checkpoint import load_policy, save_policy
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


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """The file that would be made."""
    return tmp_path / "exploded"


def test_the_bomb_is_one(target: Path) -> None:
    pickle.loads(pickle.dumps(Bomb(target)))
    assert target.exists()


@pytest.mark.parametrize("content", ["object array", "pickle as member", "pickle as file"])
def test_inputs(content: str, tmp_path: Path, target: Path) -> None:
    path = tmp_path / "inputs.npz"
    if content == "object array":
        np.savez(path, x=np.array([Bomb(target)], dtype=object))
    elif content == "pickle as member":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.npy", pickle.dumps(Bomb(target)))
    else:
        path.write_bytes(pickle.dumps(Bomb(target)))
    with pytest.raises(InvalidInput, match=r"is no \.npz file of plain arrays"):
        read_arrays(path)
    assert not target.exists()


def test_a_policy(tmp_path: Path, target: Path) -> None:
    path = tmp_path / "policy.safetensors"
    save_policy(path, build_policy(0, PolicyConfig(hidden=4, rounds=1)), {})
    path.write_bytes(pickle.dumps(Bomb(target)))
    with pytest.raises(GnnplaceError, match="cannot be read as safetensors"):
        load_policy(path)
    torch.save({"x": Bomb(target)}, path)
    with pytest.raises(GnnplaceError, match="cannot be read as safetensors"):
        load_policy(path)
    assert not target.exists()


def test_the_state_of_a_training_run(tmp_path: Path, target: Path) -> None:
    path = tmp_path / "state.pt"
    torch.save({"format": "gnnplace.training/1", "network": Bomb(target)}, path)
    with pytest.raises(GnnplaceError, match="is no state of a training run"):
        read_state(path)
    path.write_bytes(pickle.dumps(Bomb(target)))
    with pytest.raises(GnnplaceError, match="is no state of a training run"):
        read_state(path)
    assert not target.exists()


def test_a_placed_folder(tmp_path: Path, target: Path) -> None:
    parts = tmp_path / "placed" / "parts"
    parts.mkdir(parents=True)
    (parts / "manifest.json").write_bytes(pickle.dumps(Bomb(target)))
    with pytest.raises(GnnplaceError, match="expected JSON"):
        Session(parts.parent)
    assert not target.exists()


def test_arrays_come_back_whatever_they_are_called(tmp_path: Path) -> None:
    arrays = {"file": np.ones(2), "../x": np.array(3), "text": np.array(["a", "bc"], dtype=object), "a/b": np.eye(2)}
    write_arrays(tmp_path / "out" / "y.npz", arrays)
    found = read_arrays(tmp_path / "out" / "y.npz")
    assert {name: value.tolist() for name, value in found.items()} == {k: v.tolist() for k, v in arrays.items()}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("shape", ["(99999999999,)", "(-1,)", "(3, 3)"])
def test_an_array_that_claims_more_than_it_has_is_refused_before_memory_is_taken(shape: str, tmp_path: Path) -> None:
    target = io.BytesIO()
    np.savez(target, x=np.ones((2, 2), np.float32))
    with zipfile.ZipFile(target) as archive:
        content = archive.read("x.npy").replace(b"(2, 2)", shape.encode())
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", content)
    with pytest.raises(InvalidInput, match=r"is no \.npz file"):
        read_arrays(tmp_path / "x.npz")


def test_a_small_archive_that_unpacks_to_much_is_refused(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros(2**27, np.uint8))
    with pytest.raises(InvalidInput, match="unpacks to"):
        read_arrays(tmp_path / "x.npz")
