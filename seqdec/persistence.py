"""Files written atomically, and checked when read.

Everything is written in a hidden temporary folder beside its target, then renamed: after a crash or on a full disk the
target is what it was. The next write removes what killed processes left. Tables (parquet) and arrays (safetensors)
carry a manifest of JSON values and the SHA-256 digest of manifest and data.
"""

import bz2
import codecs
import errno
import functools
import gc
import gzip
import hashlib
import importlib.metadata
import io
import json
import lzma
import os
import platform
import re
import shutil
import uuid
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from seqdec import plugins

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow
    from filelock import FileLock

_IN_USE: set[Path] = set()
_PACKAGES = ("seqdec", "jax", "jaxlib", "flax", "optax", "gymnasium", "numpy", "scipy", "pandas", "pyarrow")
_MANIFEST, _DIGEST = "seqdec", "seqdec.sha256"
_TEMPORARY = re.compile(r"\..+-[0-9a-f]{8}")
_WRITING = "writing.lock"
"""A file of each temporary folder, locked while its writer lives."""
_TEXT = (".csv", ".txt", ".tsv")


def _unzipped(content: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return b"".join(map(archive.read, archive.namelist()))


_PACKED: Mapping[str, Callable[[bytes], bytes]] = MappingProxyType(
    {
        ".gz": gzip.decompress,
        ".bz2": bz2.decompress,
        ".xz": lzma.decompress,
        ".zip": _unzipped,
    }
)
"""Suffixes of compressed files, and what decompresses their content."""
_TABLE = (".parquet", ".pq")
_ARRAYS = ".safetensors"
_MARKS = {"UTF-32": codecs.BOM_UTF32_LE, "UTF-16": codecs.BOM_UTF16_LE, "UTF-16BE": codecs.BOM_UTF16_BE}
"""Byte order marks; the first that fits counts."""
_OF_OTHERS = frozenset({
    *_TEXT, *_PACKED, *_TABLE, ".arrow", ".db", ".feather", ".h5", ".hdf5", ".html", ".joblib", ".json",
    ".jsonl", ".mat", ".npy", ".npz", ".ods", ".pdf", ".pickle", ".pkl", ".png", ".pt", ".pth", ".py",
    ".sqlite", ".sqlite3", ".svg", ".toml", ".xls", ".xlsx", ".xml", ".yaml", ".yml",
})  # fmt: skip
"""Suffixes of what is neither folder nor safetensors."""
_URL = re.compile("[A-Za-z][A-Za-z0-9+.-]+:/")
"""A URL in a path has one slash; Windows drives have one letter."""
_PARQUET, _SQLITE = b"PAR1", b"SQLite format 3\0"


def located(path: str | os.PathLike[str]) -> Path:
    """`path`, "~" expanded, absolute from the present working directory.

    Raises:
        TypeError: neither a str nor an os.PathLike of one.
        ValueError: empty, with a null character, a URL, or in an unknown user's home.
        FileNotFoundError: relative to a deleted working directory.
    """
    try:
        text = os.fspath(path)
    except TypeError:
        text = None
    if not isinstance(text, str):
        raise TypeError(f"a path must be a str or an os.PathLike such as pathlib.Path; got {path!r:.80}")
    if not text:
        raise ValueError("a path must not be empty; '.' is the working directory")
    if "\0" in text:
        raise ValueError(f"a path must not contain a null character; got {text!r:.80}")
    if _URL.match(text):
        shown = re.sub("/.*@", "//", text).partition("?")[0]  # without a password
        raise ValueError(
            f"a path must lead to a local file or folder; got the URL {shown!r:.80}: copy it to this machine"
        )
    try:
        return Path(text).expanduser().absolute()
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{text!r} is relative to a working directory that was deleted: go to another, or give an absolute path"
        ) from None
    except RuntimeError:  # pathlib knows no home
        raise ValueError(
            f"there is no home folder {Path(text).parts[0]!r}; for a file of that name, {f'./{text}'!r}"
        ) from None


def check_table_name(path: Path, remedy: str) -> None:
    """Raises ValueError, ending with the remedy, for a parquet file named otherwise."""
    suffix = path.suffix.lower()
    if suffix[1:2].isalpha() and suffix not in _TABLE:
        raise ValueError(
            f"{path} would be a parquet file with the suffix {path.suffix!r}: call it {path.stem}.parquet (known are "
            f"{', '.join(_TABLE)} and no suffix), or {remedy}"
        )


def check_arrays_name(path: Path) -> None:
    """Raises ValueError for a safetensors file named otherwise."""
    if path.suffix.lower() in _OF_OTHERS:
        raise ValueError(
            f"{path} would be a file of safetensors with the suffix {path.suffix!r} of another kind: call it "
            f"{path.stem}{_ARRAYS}"
        )


def check_folder_name(folder: Path) -> None:
    """Raises ValueError for a new folder named as a file."""
    if folder.suffix.lower() in (_ARRAYS, *_OF_OTHERS) and not folder.exists():
        raise ValueError(
            f"{folder} would be a folder with the suffix {folder.suffix!r} of a file: call it {folder.with_suffix('')}"
        )


def write_file(path: Path, write: Callable[[Path], Any]) -> None:
    """Create or replace the file at `path`, or at the end of its link, by what `write` writes to a temporary path.

    Raises OSError, also where `path` is no file.
    """
    with _replacing(path) as (target, temporary):
        known = target if target.exists() else temporary
        mode = known.stat().st_mode  # as it was, or of the process's umask, which not every library respects
        write(temporary)
        temporary.chmod(mode)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, target)


def check_replaceable(path: Path) -> None:
    """Raises OSError if `write_file` could not write `path`."""
    with _replacing(path):
        pass


@contextmanager
def _replacing(path: Path) -> Iterator[tuple[Path, Path]]:
    """The file that `path` leads to, and an empty temporary one beside it."""
    target = Path(os.path.realpath(path))
    with _beside(target, path) as temporary:
        if os.path.lexists(target) and not target.is_file():
            raise OSError(f"it is {_kind(target)}; give the path of a file")
        temporary.touch()
        yield target, temporary


def write_json(path: Path, content: Any) -> None:
    """Write `content` as indented JSON. Raises OSError."""
    text = json.dumps(content, indent=2) + "\n"
    write_file(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_table(path: Path, table: "pd.DataFrame", manifest: Mapping[str, Any] | None = None) -> None:
    """Write a table as parquet, with a manifest of JSON values. Raises OSError."""
    import pyarrow
    from pyarrow import parquet

    seconds = table.columns[table.dtypes == "datetime64[s]"]
    table = table.astype(dict.fromkeys(seconds, "datetime64[ms]"))  # parquet has no seconds
    content, text = pyarrow.Table.from_pandas(table), json.dumps(manifest or {})
    signature = {_MANIFEST: text, _DIGEST: _digest(text, _columns(content))}
    signed = content.replace_schema_metadata({**(content.schema.metadata or {}), **signature})

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:  # pyarrow takes no path that is not UTF-8
            parquet.write_table(signed, file)

    write_file(path, write)


def is_text_table(path: Path) -> bool:
    """Whether a file is named as a text table, such as "log.csv", "LOG.TXT" or "log.csv.gz"."""
    return unpacked_name(path).endswith(_TEXT)


def unpacked_name(path: Path) -> str:
    """The name in lower case, without the suffix of a compression."""
    name = path.name.lower()
    return name.removesuffix(next(filter(name.endswith, _PACKED), ""))


def read_any_table(path: Path) -> "tuple[pd.DataFrame, dict[str, Any]]":
    """Table and manifest of a parquet file or, by its name, of a text file with a header, perhaps compressed.

    Raises FileNotFoundError, and ValueError for what is damaged or of another kind.
    """
    _check_present(path)
    if not path.stat().st_size:
        raise ValueError(f"{path} is empty: write the table again")
    if is_text_table(path):
        return _read_text_table(path), {}
    with path.open("rb") as file:
        start = file.read(len(_SQLITE))
    if start == _SQLITE:
        raise ValueError(f"{path} is a database: read the log of an OnlineAgent with seqdec.service.read_log")
    if not start.startswith(_PARQUET) and path.suffix.lower() != ".parquet":
        raise ValueError(
            f"{path} is neither a parquet file nor, by its name, a text file: convert it to parquet or to text with "
            f"commas ({', '.join(_TEXT)}; also compressed, as {', '.join(_PACKED)})"
        )
    return read_table(path, foreign=True)


def _read_text_table(path: Path) -> "pd.DataFrame":
    import pandas as pd

    # pandas reads decimal numbers to the last bit by itself from 3.1 on.
    version = tuple(int(part) for part in pd.__version__.split(".")[:2])
    exact: Any = {"float_precision": "round_trip"} if version < (3, 1) else {}
    try:
        with reading(path):
            table = pd.read_csv(path, sep="\t" if unpacked_name(path).endswith(".tsv") else ",", **exact)
    except ValueError as error:
        if isinstance(error.__cause__, UnicodeDecodeError):
            raise ValueError(_not_utf8(path, error.__cause__.object)) from error
        raise
    names = "".join(map(str, table.columns)).encode("utf-8", "replace")
    if b"\0" in names:  # half of each ASCII character in UTF-16
        raise ValueError(_not_utf8(path, names))
    return table


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, perhaps compressed, by its name.

    Raises OSError, and ValueError with the remedy for another encoding or a damaged file.
    """
    content, name = path.read_bytes(), path.name.lower()
    unpack = next((unpack for suffix, unpack in _PACKED.items() if name.endswith(suffix)), bytes)
    with reading(path):
        content = unpack(content)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(_not_utf8(path, content)) from None


def _not_utf8(path: Path, content: bytes) -> str:
    mark = next((name for name, start in _MARKS.items() if content.startswith(start)), None)
    found = mark or ("UTF-16LE" if b"\0" in content else None)
    return (
        f"{path} is not text in UTF-8{f' but in {found}' if found else ''}: save it as UTF-8, or convert it, as "
        f"iconv -f {found or 'WINDOWS-1252'} -t UTF-8 does{'' if found else ' for most files of Windows'}"
    )


def read_table(path: Path, *, foreign: bool = False) -> "tuple[pd.DataFrame, dict[str, Any]]":
    """Table and manifest of `write_table`; `foreign`: any parquet file, else without a manifest.

    Raises FileNotFoundError, and ValueError for what is damaged or foreign.
    """
    from pyarrow import parquet

    _check_present(path)
    with reading(path), path.open("rb") as file:  # pyarrow takes no path that is not UTF-8
        content = parquet.read_table(file)
        metadata = content.schema.metadata or {}
        if foreign and _MANIFEST.encode() not in metadata:
            return content.to_pandas(), {}
        facts = {key.decode(): value.decode() for key, value in metadata.items() if key.startswith(b"seqdec")}
        return content.to_pandas(), _verified(facts, _columns(content))


def manifest_of(schema: "pyarrow.Schema") -> dict[str, Any]:
    """The manifest in the schema of a parquet file, unchecked; empty in a foreign file."""
    return json.loads((schema.metadata or {}).get(_MANIFEST.encode(), b"{}"))


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray], manifest: Mapping[str, Any]) -> None:
    """Write arrays by name as safetensors, with a manifest of JSON values.

    Raises OSError, and ValueError for a dtype that safetensors lacks.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    whole, text = {name: np.asarray(array, order="C") for name, array in arrays.items()}, json.dumps(manifest)
    metadata = {_MANIFEST: text, _DIGEST: _digest(text, sorted(whole.items()))}

    def write(temporary: Path) -> None:
        try:
            save_file(whole, temporary, metadata)
        except SafetensorError as error:  # safetensors' form of an OSError
            raise OSError(str(error)) from error

    write_file(path, write)


def read_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and manifest of `write_arrays`.

    Raises FileNotFoundError, and ValueError for what is damaged or foreign.
    """
    from safetensors import safe_open

    _check_present(path)
    with reading(path), safe_open(path, "numpy") as file:
        arrays = {name: file.get_tensor(name) for name in sorted(file.keys())}
        return arrays, _verified(file.metadata() or {}, arrays.items())


def _columns(table: "pyarrow.Table") -> Iterator[tuple[str, np.ndarray]]:
    """Columns by name, and the types in the file."""
    yield "pandas", np.frombuffer((table.schema.metadata or {}).get(b"pandas", b""), np.uint8)
    schema = str(table.schema.remove_metadata())  # parquet has one type of text for the levels of categorical columns
    yield "schema", np.array(schema.replace("<values=large_string,", "<values=string,"))
    for name, column in zip(table.column_names, table.columns, strict=True):
        values = column.to_numpy()
        yield name, np.array(list(map(str, values)), np.str_) if values.dtype == object else values


def _digest(text: str, items: Iterable[tuple[str, np.ndarray]]) -> str:
    """SHA-256 of a manifest and of names, dtypes, shapes and values."""
    digest = hashlib.sha256(text.encode())
    for name, array in items:
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _verified(metadata: Mapping[str, str], items: Iterable[tuple[str, np.ndarray]]) -> dict[str, Any]:
    """The manifest, checked by its digest."""
    if _MANIFEST not in metadata or _DIGEST not in metadata:
        raise ValueError("it has no manifest or no checksum, so seqdec did not write it")
    if _digest(metadata[_MANIFEST], items) != metadata[_DIGEST]:
        raise ValueError("its checksum is wrong")
    return json.loads(metadata[_MANIFEST])


def _check_present(path: Path) -> None:
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is {_kind(path)}; give the path of a file{' in it' if path.is_dir() else ''}")
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")


@contextmanager
def reading(path: Path, remedy: str = "restore it from a copy or create it again") -> Iterator[None]:
    """Errors of parsers become ValueErrors with file and remedy; OSErrors such as permission stay."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise type(error)(error.errno, f"cannot read {path}: {error.strerror}") from error
        reason = str(error).strip() or type(error).__name__
        raise ValueError(f"{path} is damaged ({reason.splitlines()[0]}); {remedy}") from error


def check_format(path: Path, manifest: Mapping[str, Any], known: str) -> None:
    """Raises ValueError for a manifest of another format than `known`, "name version"."""
    found = manifest.get("format")
    if found == known:
        return
    if isinstance(found, str) and found.rpartition(" ")[0] == known.rpartition(" ")[0]:
        writer = manifest.get("versions", {}).get("seqdec", "unknown")
        raise ValueError(f"{path} has the format {found!r}, not {known!r}; read it with the seqdec of version {writer}")
    raise ValueError(f"{path} is not a {known!r}: its manifest says {found!r}")


def read_json(path: Path) -> Any:
    """The content of a JSON file. Raises ValueError if damaged, else OSError."""
    text = read_text(path)
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def file_identity(path: Path) -> tuple[int, ...] | None:
    """What changes whenever the file `path` is written; None without one."""
    if not path.is_file():
        return None
    try:
        with path.open("rb") as file:  # of a network file system, only what is opened is known to be the newest
            found = os.fstat(file.fileno())
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def check_writable(folder: Path) -> None:
    """Create `folder`, and try to write there. Raises OSError."""
    with _beside(folder / "writable", folder) as temporary:
        temporary.touch()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep others from using `folder`, and clear it.

    Raises FileExistsError if another process, or a live object of this one, uses it, OSError where it has no locks.
    """
    remedy = "close() what uses it, such as the OnlineAgent of an earlier notebook cell"
    with _exclusive(folder, folder.resolve() / ".lock", remedy):
        clear(folder.iterdir())
        yield


def locked_file(path: Path | None, patience: float = 0.0, *, stays: bool = False) -> ExitStack:
    """Keep others that lock it from the file `path`, existing or not, until the end of a `with`; None: no file.

    `stays`: the file of the lock is kept, so that many may wait for it.

    Raises FileExistsError if it is in use for longer than `patience` seconds, OSError if `write_file` could not write.
    """
    held = ExitStack()
    if path is not None:
        lock = _locked_file(path, patience, stays)
        lock.__enter__()
        held.callback(lock.__exit__, None, None, None)  # an exception of the caller may take no traceback
    return held


@contextmanager
def _locked_file(path: Path, patience: float, stays: bool) -> Iterator[None]:
    check_replaceable(path)
    target = Path(os.path.realpath(path))
    lock = target.with_name(f".{target.name}.lock")
    with _exclusive(path, lock, "wait for the other thread", patience):
        try:
            yield
        finally:
            if not stays:
                with suppress(OSError):  # Windows removes no open file
                    lock.unlink()


def claim(path: Path, held: ExitStack) -> str:
    """A new name beside the file `path`, which `is_claimed` until the end of `held` or of this process."""
    folder, lock = _temporary(Path(os.path.realpath(path)))
    held.callback(_discard, folder, lock)
    return folder.name


def is_claimed(path: Path, name: str) -> bool:
    """Whether the process that has this name by `claim` lives; within `locked_file`, which clears what others left."""
    return Path(os.path.realpath(path)).with_name(name).is_dir()


@contextmanager
def _exclusive(path: Path, place: Path, remedy: str, patience: float = 0.0) -> Iterator[None]:
    """Hold the lock at `place`, which keeps `path`; `remedy`: what to do where this process holds it."""
    from filelock import FileLock

    process, lock = os.getpid(), FileLock(place, mode=0o600, thread_local=False)  # another thread may release it
    if not _acquired(lock, patience) and place in _IN_USE:
        gc.collect()  # garbage in a cycle of references uses nothing
        _acquired(lock, 0)
    if not lock.is_locked:
        user = f"this process: {remedy}" if place in _IN_USE else "another process: wait for it"
        raise FileExistsError(f"{path} is in use by {user}, or choose another {'folder' if path.is_dir() else 'file'}")
    _IN_USE.add(place)
    try:
        yield
    finally:
        if os.getpid() == process:  # a forked process has a copy of what holds the lock
            _IN_USE.discard(place)
            lock.release()


def _acquired(lock: "FileLock", patience: float) -> bool:
    from filelock import Timeout

    place = Path(lock.lock_file)
    try:
        lock.acquire(timeout=patience)
        while not place.exists():  # its last holder removed it meanwhile
            lock.release()
            lock.acquire(timeout=patience)
    except Timeout:
        pass
    except (OSError, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OSError(f"cannot lock {place}: {reason}; choose a place on a file system with locks") from error
    return lock.is_locked


def remove(path: Path) -> None:
    """Delete the file `path`, if any, and what interrupted writes left."""
    target = Path(os.path.realpath(path))  # as `write_file`
    target.unlink(missing_ok=True)
    _clear_beside(target)


def is_temporary(path: Path) -> bool:
    """Whether `path` is named as a temporary folder."""
    return _TEMPORARY.fullmatch(path.name) is not None


def clear(paths: Iterable[Path]) -> None:
    """Remove temporary folders of ended processes among `paths`."""
    from filelock import FileLock

    for folder in paths:
        if not is_temporary(folder) or not folder.is_dir():
            continue
        with suppress(OSError):
            folder.rmdir()  # empty where its writer was killed before it could lock it
        if (folder / _WRITING).is_file():
            lock = FileLock(folder / _WRITING, mode=0o600)
            with suppress(OSError, NotImplementedError):  # a Timeout, which is an OSError: its writer is alive
                lock.acquire(timeout=0)
                _discard(folder, lock)


def as_json(value: Any) -> Any:
    """`value` by JSON and back: tuples become lists, paths strings, other objects their repr."""
    return json.loads(json.dumps(value, default=lambda other: str(other) if isinstance(other, Path) else repr(other)))


def versions() -> dict[str, str]:
    """Versions of packages, loaded plug-ins, Python, platform and JAX's first device."""
    packages = {name: version(name) for name in _PACKAGES} | plugins.versions()
    device = jax.devices()[0]
    return packages | {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": f"{device.platform}: {device.device_kind}",
    }


@functools.cache
def version(package: str) -> str:
    """The installed version of a package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


@contextmanager
def _beside(path: Path, named: Path) -> Iterator[Path]:
    """A path in a temporary folder beside `path`; OSErrors name `named`."""
    try:
        _make_folder(path.parent)
        _clear_beside(path)
        folder, lock = _temporary(path)
        try:
            yield folder / path.name
        finally:
            _discard(folder, lock)
    except OSError as error:
        raise type(error)(f"cannot write {named}: {error.strerror or error}") from error


def _make_folder(folder: Path) -> None:
    """Make a folder and its parents. Raises OSError that names what is in the way."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        for place in (folder, *folder.parents):
            if os.path.lexists(place) and not place.is_dir():
                raise type(error)(f"{place} is {_kind(place)}, not a folder") from error
        raise


def _kind(path: Path) -> str:
    if path.is_dir():
        return "a folder"
    if path.is_file():
        return "a file"
    return "a pipe or a device" if path.exists() else "a symbolic link that leads nowhere"


def _temporary(path: Path) -> "tuple[Path, FileLock]":
    from filelock import FileLock, Timeout

    while True:
        folder = path.parent / f".{path.name}-{uuid.uuid4().hex[:8]}"
        folder.mkdir()
        lock = FileLock(folder / _WRITING, mode=0o600)
        # Another process may take the folder for abandoned before it is locked.
        try:
            with suppress(NotImplementedError):  # the file system has no locks, so that nobody can claim the folder
                lock.acquire(timeout=0)
            if folder.is_dir():
                return folder, lock
        except (Timeout, FileNotFoundError, FileExistsError):
            continue
        except OSError:  # such as too many open files
            with suppress(OSError):
                folder.rmdir()
            raise


def _discard(folder: Path, lock: "FileLock") -> None:
    """Remove a temporary folder, its locked file last and before the release: nobody else gets the lock."""
    with suppress(OSError):
        for item in sorted(folder.iterdir(), key=lambda item: item.name == _WRITING):
            with suppress(OSError):  # Windows removes no open file
                item.unlink()
    lock.release()
    shutil.rmtree(folder, ignore_errors=True)


def _clear_beside(path: Path) -> None:
    with suppress(OSError):
        clear(item for item in path.parent.iterdir() if item.name.startswith(f".{path.name}-"))
