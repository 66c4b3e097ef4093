"""Atomic file writes: everything is written under a temporary name beside its target, then renamed."""

import importlib.metadata
import json
import os
import platform
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

if TYPE_CHECKING:
    import pandas as pd

_PACKAGES = ("seqdec", "jax", "jaxlib", "flax", "optax", "gymnasium", "numpy", "scipy", "pandas", "pyarrow")
_TABLE, _MANIFEST = "steps.parquet", "manifest.json"


def write_file(path: Path, write: Callable[[Path], Any]) -> None:
    """Create or replace the file `path` by what `write` writes to a temporary path. Raises OSError if it cannot."""
    with _beside(path) as temporary:
        write(temporary)
        os.replace(temporary, path)


def write_json(path: Path, content: Any) -> None:
    """Write `content` as indented JSON. Raises OSError when `path` cannot be written."""
    text = json.dumps(content, indent=2) + "\n"
    write_file(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_folder(folder: Path, table: "pd.DataFrame", manifest: dict[str, Any]) -> None:
    """Write a table (parquet) and its manifest (JSON) as `folder`, replacing those of an earlier call.

    Raises FileExistsError when `folder` holds anything else, and OSError when it cannot be written.
    """
    if folder.exists() and not (folder.is_dir() and {item.name for item in folder.iterdir()} <= {_TABLE, _MANIFEST}):
        raise FileExistsError(f"{folder} exists and is not a saved run; choose another folder")
    with _beside(folder) as temporary:
        temporary.mkdir()
        table.to_parquet(temporary / _TABLE, index=False)
        write_json(temporary / _MANIFEST, manifest)
        if folder.exists():
            retired = _hidden(folder)
            os.rename(folder, retired)
            os.rename(temporary, folder)
            shutil.rmtree(retired)
        else:
            os.rename(temporary, folder)


def read_folder(folder: Path) -> "tuple[pd.DataFrame, dict[str, Any]]":
    """The table and manifest in `folder`. Raises FileNotFoundError where there are none, ValueError where damaged."""
    import pandas as pd

    if not (folder / _TABLE).is_file() or not (folder / _MANIFEST).is_file():
        raise FileNotFoundError(f"{folder} holds no saved run: {_TABLE} and {_MANIFEST} are expected in it")
    try:
        return pd.read_parquet(folder / _TABLE), read_json(folder / _MANIFEST)
    except (ValueError, OSError) as error:
        raise ValueError(f"the run saved in {folder} is damaged: {error}") from error


def read_json(path: Path) -> Any:
    """The content of a JSON file. Raises ValueError when it is not JSON, OSError when it cannot be read."""
    return json.loads(path.read_text(encoding="utf-8"))


def check_writable(folder: Path) -> None:
    """Create `folder` and a file in it, which is deleted. Raises OSError if that fails."""
    write_file(folder / "writable", lambda temporary: temporary.touch())
    (folder / "writable").unlink()


def as_json(value: Any) -> Any:
    """`value` after a round trip through JSON: tuples become lists, and objects without a JSON form their repr."""
    return json.loads(json.dumps(value, default=repr))


def versions() -> dict[str, str]:
    """Versions that a result depends on: packages, Python, platform and JAX's first device."""
    packages = {name: _version(name) for name in _PACKAGES}
    device = jax.devices()[0]
    return packages | {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": f"{device.platform}: {device.device_kind}",
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _hidden(path: Path) -> Path:
    """An unused hidden name beside `path`."""
    return path.parent / f".{path.name}-{uuid.uuid4().hex[:8]}"


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """A temporary name beside `path`, deleted on exit. OSErrors are raised again with `path` in the message."""
    temporary = _hidden(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
    except OSError as error:
        raise type(error)(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            with suppress(OSError):
                temporary.unlink()
