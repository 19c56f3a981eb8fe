"""Reading and writing whole files. A file is complete or absent; what a killed process leaves is removed later."""

import errno
import fcntl
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gnnplace.errors import GnnplaceError

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of a full disk, quota or file."""
NO_WRITING = (errno.EROFS, errno.EACCES, errno.EPERM)
"""Error numbers of a place that cannot be written."""
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_TRIES = 1000  # of opening a file that others remove; some folders, such as /proc, never have it
_FILE, _FOLDER = os.O_RDWR | os.O_CREAT, os.O_RDONLY | os.O_DIRECTORY
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def check_target(path: Path, is_folder: bool = False) -> None:
    """Raises OSError, which names the path, where no file or no folder can be written; for use before long work, as it changes nothing."""
    if is_folder and path.exists() and not path.is_dir():
        raise FileExistsError(errno.EEXIST, "is a file; choose another name for the folder", str(path))
    if not is_folder and (not path.name or path.is_dir()):
        raise IsADirectoryError(errno.EISDIR, "is a folder; name a file", str(path))
    there = next((parent for parent in path.absolute().parents if parent.exists()), path)
    if not there.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "is a file, so that nothing can be in it", str(there))
    filled = path if path.is_dir() else there
    if not os.access(filled, os.W_OK | os.X_OK):
        number = errno.EROFS if os.statvfs(filled).f_flag & os.ST_RDONLY else errno.EACCES
        raise OSError(number, os.strerror(number), str(path))


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """An empty temporary file beside `path`, which replaces `path` if the block ends without an error.

    The temporary file has a fixed name and is locked: other writers of the same file wait, and a file that a killed process
    left is used again.

    Raises:
        OSError: the file cannot be written; the error names `path`.
    """
    check_target(path)
    temporary = path.with_name(f".{path.name}.tmp")
    with _held(temporary, _FILE, path) as handle:
        try:
            os.ftruncate(handle, 0)
            yield temporary
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


@contextmanager
def new_folder(path: Path, last: str, removes: Iterable[Path] | None = None) -> Iterator[Path]:
    """An empty folder to fill, whose files move to `path` if the block ends without an error.

    The file `last` is removed first and written last, so the folder is complete exactly while that file exists.

    Args:
        path: The folder, which need not exist.
        last: Name of a file that the block writes.
        removes: Older files and folders in `path` that are removed; None: all of them. Files with the name of a new one are replaced.

    Raises:
        OSError: the folder cannot be written, or a folder is where a file belongs; the error names `path`.
    """
    check_target(path, is_folder=True)
    with scratch_folder(path) as scratch:
        fresh, old = scratch / "new", scratch / "old"
        fresh.mkdir()
        old.mkdir()
        yield fresh
        if not path.exists():
            fresh.rename(path)
            return
        older = {*path.iterdir()} - {scratch} if removes is None else {file for file in removes if file.exists()}
        if removes is not None:
            _check_kinds(fresh, path)
        if (path / last).exists():
            (path / last).rename(old / last)
        for number, file in enumerate(older - {path / last}):
            file.rename(old / str(number))
        _merge(fresh, path, last)


def _check_kinds(fresh: Path, path: Path) -> None:
    """Raises FileExistsError where a file in `fresh` has the name of a folder in `path`, or the reverse."""
    for new in fresh.iterdir():
        there = path / new.name
        if there.exists() and new.is_dir() != there.is_dir():
            kind = "a folder" if there.is_dir() else "no folder"
            raise FileExistsError(errno.EEXIST, f"is {kind}; move it, or choose another folder", str(there))
        if there.is_dir():
            _check_kinds(new, there)


def _merge(fresh: Path, path: Path, last: str = "") -> None:
    """Moves the content of `fresh` to the folder `path`, the file `last` at the end; files with other names stay."""
    for file in sorted(fresh.iterdir(), key=lambda file: file.name == last):
        target = path / file.name
        if target.is_dir():
            _merge(file, target)
        else:
            file.replace(target)


@contextmanager
def scratch_folder(path: Path) -> Iterator[Path]:
    """An empty folder on the file system of `path` for the duration of the block.

    It lies inside `path` if that is a folder, else beside it, and is locked as in `new_file`.

    Raises:
        OSError: the folder cannot be made; the error names `path`.
    """
    folder = path / ".gnnplace.tmp" if path.is_dir() else path.with_name(f".{path.name}.tmp")
    with _held(folder, _FOLDER, path):
        try:
            for left in folder.iterdir():
                shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A new folder in the system's temporary folder; folders that killed processes left there are removed."""
    parent = Path(tempfile.gettempdir())
    for left in parent.glob("gnnplace-*.tmp"):
        _remove_abandoned(left)
    with _about(parent):
        folder = Path(tempfile.mkdtemp(prefix="gnnplace-", suffix=".tmp", dir=parent))
    with _held(folder, _FOLDER, parent, 0o700):
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def taking_turns(path: Path) -> Iterator[None]:
    """A block that only one process at a time enters for the same `path`; others wait.

    Raises:
        OSError: the folder of `path` cannot be written; the error names `path`.
    """
    lock = path.with_name(f".{path.name}.lock")
    with _held(lock, _FILE, path):
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


@contextmanager
def _held(path: Path, flags: int, requested: Path, mode: int = 0o777) -> Iterator[int]:
    """A descriptor of `path`, which is created if absent, and locked until the block or the process ends.

    Errors of writing, also those of the block, name `requested`.
    """
    with _about(requested):
        path.parent.mkdir(parents=True, exist_ok=True)
        tries_left = _TRIES
        while True:
            try:
                if flags == _FOLDER:
                    path.mkdir(mode, exist_ok=True)
                handle = os.open(path, flags | os.O_NOFOLLOW, mode & 0o666)
            except FileNotFoundError:
                tries_left -= 1
                if tries_left and path.parent.is_dir():
                    continue  # the previous holder has just removed it
                raise
            try:
                _lock(handle)
                if _is_at(path, handle):
                    yield handle
                    return
            finally:
                os.close(handle)


def _lock(handle: int) -> None:
    """Locks a descriptor; file systems without locks are ignored."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def _is_at(path: Path, handle: int) -> bool:
    """True if the open file still has this name; a previous holder may have moved or removed it."""
    try:
        return os.path.samestat(path.stat(follow_symlinks=False), os.fstat(handle))
    except FileNotFoundError:
        return False


def _remove_abandoned(folder: Path) -> None:
    """Removes a temporary folder unless a process holds it."""
    with suppress(OSError):
        handle = os.open(folder, _FOLDER | os.O_NOFOLLOW)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(handle)


@contextmanager
def _about(path: Path) -> Iterator[None]:
    """Makes errors of writing name `path` instead of a temporary file or no file."""
    try:
        yield
    except OSError as error:
        named = Path(error.filename) if isinstance(error.filename, str) else None
        writes = named is None or named.is_relative_to(path.parent)
        if error.errno in NO_ROOM or (error.errno in NO_WRITING and writes):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def write_text(path: Path, text: str) -> None:
    """Writes `text` to `path` atomically."""
    with new_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_json(path: Path, error: type[GnnplaceError]) -> Any:
    """The parsed JSON of a file.

    Raises:
        error: the file is missing or is not valid JSON; the message has the place.
    """
    try:
        text = path.read_bytes()
    except OSError as problem:
        raise error(f"{path}: cannot be read ({problem.strerror}); check the path") from None
    except ValueError as problem:  # characters that no file system allows
        raise error(f"{str(path)!r}: is no path ({problem})") from None
    return parsed_json(text, str(path), error)


def parsed_json(content: bytes, where: str, error: type[GnnplaceError]) -> Any:
    """The value of a JSON text in UTF-8 with integers of at most 64 bits and strings that can be encoded again.

    Raises:
        error: the content is not such a text; the message begins with `where`.
    """
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise error(f"{where}: is no text file; expected JSON") from None
    try:
        value = json.loads(text, parse_int=_whole_number)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise error(f"{where}: a text holds half of a surrogate pair, which is no character; write it anew") from None
    except (ValueError, RecursionError) as problem:
        raise error(f"{where}: is no valid JSON ({problem}); the file may be cut off") from None
    return value


def _whole_number(digits: str) -> int:
    if len(digits) < 19:
        return int(digits)
    if len(digits) > 20 or not -(2**63) <= int(digits) < 2**63:
        raise ValueError(f"the number {digits[:20]}... does not fit in 64 bits")
    return int(digits)


def read_json_lines(path: Path, error: type[GnnplaceError]) -> list[Any]:
    """The values of a file with one JSON value per line; none if the file is absent.

    An incomplete last line, left by a killed process, is ignored and stays in the file.

    Raises:
        error: another line is not JSON; the message has its number.
    """
    if not path.exists():
        return []
    *whole, _ = path.read_bytes().split(b"\n")
    values = []
    for number, line in enumerate(whole, start=1):
        try:
            values.append(json.loads(line))
        except ValueError as problem:
            raise error(f"{path}: line {number} is no valid JSON ({problem}); delete it or the file") from None
    return values


def write_json_lines(path: Path, values: Iterable[Any]) -> None:
    """Writes one JSON value per line to `path` atomically."""
    write_text(path, "".join(json.dumps(value) + "\n" for value in values))


def append_json_line(path: Path, value: Any) -> None:
    """Appends a line with a JSON value; on a full disk the file stays as it was.

    Raises:
        OSError: the file cannot be written; the error names `path`.
    """
    line = memoryview((json.dumps(value) + "\n").encode())
    with _about(path), path.open("ab", buffering=0) as file:
        before = file.seek(0, os.SEEK_END)
        try:
            while line:
                line = line[file.write(line) :]
        except BaseException:
            file.truncate(before)
            raise


def file_inside(folder: Path, name: str) -> Path | None:
    """The path of a file name in a document; None if it leaves `folder`: absolute, by `..` or by a link."""
    try:
        path = folder / name
        end = path.resolve()
        inside = end.is_relative_to(folder.resolve()) and not end.is_symlink()  # Python 3.13 returns circular links
        path.is_file()  # raises for names that no file can have
    except (OSError, ValueError, RuntimeError):  # invalid names and circular links
        return None
    return path if inside and not Path(name).is_absolute() and ".." not in Path(name).parts else None


def cache_folder() -> Path:
    """The folder of built models and measured costs: `$GNNPLACE_CACHE`, else in the user's cache folder."""
    if stated := os.environ.get("GNNPLACE_CACHE"):
        return Path(stated)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gnnplace"
