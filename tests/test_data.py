"""The idx reader against files packed by hand, and the download against a server on this machine."""

import gzip
import hashlib
import http.server
import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pooch
import pytest
from sklearn import datasets

from seqdec.data import digits, load_fashion_mnist, load_idx_folder, load_mnist, mnist, read_idx

REAL_MNIST = Path(os.environ.get("SEQDEC_DATA", "")) / "mnist"
PARTS = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def pack(code: int, letter: str, shape: tuple[int, ...], values: list) -> bytes:
    """An idx file as the format's description has it, without numpy."""
    header = struct.pack(">BBBB", 0, 0, code, len(shape)) + struct.pack(f">{len(shape)}I", *shape)
    return header + struct.pack(f">{len(values)}{letter}", *values)


def small_files(count: int = 3) -> dict[str, bytes]:
    """The four files of a data set of `count` training and two test images of 2 x 2 pixels."""
    return {
        PARTS[0]: pack(8, "B", (count, 2, 2), list(range(4 * count))),
        PARTS[1]: pack(8, "B", (count,), [i % 10 for i in range(count)]),
        PARTS[2]: pack(8, "B", (2, 2, 2), [9] * 8),
        PARTS[3]: pack(8, "B", (2,), [1, 0]),
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a small data set, half of its files gzipped."""
    for i, (name, content) in enumerate(small_files().items()):
        (tmp_path / (name + ".gz" * (i % 2))).write_bytes(gzip.compress(content) if i % 2 else content)
    return tmp_path


@pytest.mark.parametrize(
    ("code", "letter", "dtype", "values"),
    [
        (0x08, "B", np.uint8, [0, 1, 127, 128, 254, 255]),
        (0x09, "b", np.int8, [0, 1, 127, -128, -1, 5]),
        (0x0B, "h", np.int16, [0, 1, 256, -32768, -1, 32767]),
        (0x0C, "i", np.int32, [0, 1, 65536, -(2**31), -1, 2**31 - 1]),
        (0x0D, "f", np.float32, [0.0, 1.5, -2.25, 1e30, -1e-30, 3.0]),
        (0x0E, "d", np.float64, [0.0, 1.5, -2.25, 1e300, -1e-300, 0.1]),
    ],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_every_type_is_read(tmp_path: Path, code: int, letter: str, dtype: type, values: list, zipped: bool) -> None:
    content = pack(code, letter, (2, 3), values)
    path = tmp_path / "anything"
    path.write_bytes(gzip.compress(content) if zipped else content)
    array = read_idx(path)
    assert array.dtype == np.dtype(dtype) and array.dtype.isnative and array.shape == (2, 3)
    if letter in "fd":
        np.testing.assert_allclose(array.ravel(), values, rtol=1e-7)
    else:
        assert array.ravel().tolist() == values
    array[0, 0] = 1  # a copy, not a view of the file's bytes


GOOD = pack(8, "B", (2, 3), [1, 2, 3, 4, 5, 6])
ZIPPED = gzip.compress(GOOD * 100, mtime=0)  # else the names of tests hold the second of their collection


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (ZIPPED[:-20], "truncated or damaged"),
        (ZIPPED[:-8] + bytes(8), "truncated or damaged"),
        (b"", "it starts with nothing"),
        (b"\0\0\x0a\x01" + bytes(8), "not an idx file"),
        (GOOD[:7], "header of 12 bytes ends after 7"),
        (GOOD[:-1], r"shape \(2, 3\) needs 6 bytes; it holds 5"),
        (pack(8, "B", (2**32 - 1, 2**32 - 1), []), "needs 18446744065119617025 bytes; it holds 0"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{path}: .*{reason}.*Delete the file and copy or download it again"):
        read_idx(path)


def test_folder(folder: Path) -> None:
    (folder / "._train-images-idx3-ubyte").write_bytes(b"left by a file manager")
    data = load_idx_folder(folder)
    assert data.train.images.dtype == np.uint8 and data.train.labels.dtype == data.test.labels.dtype == np.int32
    np.testing.assert_array_equal(data.train.images, np.arange(12).reshape(3, 2, 2))
    assert data.train.labels.tolist() == [0, 1, 2] and data.test.labels.tolist() == [1, 0]
    assert (data.test.images == 9).all() and data.test.images.shape == (2, 2, 2)


def test_folder_with_other_names(folder: Path) -> None:
    for path in list(folder.iterdir()):
        path.rename(folder / f"emnist-letters-{path.name.replace('t10k', 'test').replace('-idx', '.idx')}")
    assert load_idx_folder(str(folder)).test.labels.tolist() == [1, 0]


def test_plain_file_goes_before_its_gzipped_copy(folder: Path) -> None:
    (folder / (PARTS[0] + ".gz")).write_bytes(b"damaged")
    assert len(load_idx_folder(folder).train.images) == 3


@pytest.mark.parametrize(
    ("name", "content", "error", "message"),
    [
        (PARTS[0], None, FileNotFoundError, "has no file for train-images: put train-images-idx.-ubyte"),
        (PARTS[3] + ".gz", None, FileNotFoundError, "has no file for t10k-labels"),
        ("old-" + PARTS[0], GOOD, ValueError, "several files for train-images: old-train-images.*keep one"),
        (PARTS[0], pack(8, "B", (4, 2, 2), [0] * 16), ValueError, r"4 images need as many integer labels.*\(3,\)"),
        (PARTS[0], pack(9, "b", (3, 2, 2), [0] * 12), ValueError, "images must be uint8.*int8"),
        (PARTS[0], pack(8, "B", (0, 2, 2), []), ValueError, r"n > 0; got uint8 \(0, 2, 2\)"),
        (PARTS[1] + ".gz", pack(13, "f", (3,), [0.0, 1.0, 2.0]), ValueError, "integer labels; got float32"),
        (PARTS[1] + ".gz", pack(9, "b", (3,), [0, -1, 2]), ValueError, "count from 0; the least is -1"),
    ],
)
def test_bad_folders_are_refused(folder: Path, name: str, content: bytes | None, error: type, message: str) -> None:
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    with pytest.raises(error, match=message):
        load_idx_folder(folder)


@pytest.mark.skipif(not REAL_MNIST.is_dir(), reason="needs MNIST under SEQDEC_DATA")
def test_real_mnist() -> None:
    data = load_mnist()
    assert data.train.images.shape == (60_000, 28, 28) and data.test.images.shape == (10_000, 28, 28)
    assert data.train.labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert np.bincount(data.train.labels).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert data.train.images.mean() == pytest.approx(0.1307 * 255, rel=1e-3)  # the constant used everywhere
    for name, digest in mnist.MNIST.sha256.items():
        if (REAL_MNIST / name).exists():
            assert hashlib.sha256((REAL_MNIST / name).read_bytes()).hexdigest() == digest


@pytest.mark.parametrize(("load", "name"), [(load_mnist, "mnist"), (load_fashion_mnist, "fashion-mnist")])
def test_other_data_under_the_name_are_refused(folder: Path, monkeypatch, load, name: str) -> None:
    with pytest.raises(ValueError, match=rf"is not {name}: train images must be \(60000, 28, 28\); got \(3, 2, 2\)"):
        load(folder)
    with pytest.raises(FileNotFoundError, match=r"no such folder: .*nowhere; put train-images"):
        load(folder / "nowhere")
    monkeypatch.setattr(mnist, "_download", None)  # a folder that is there is taken, or refused
    monkeypatch.setenv("SEQDEC_DATA", str(folder / "home"))
    home = folder / "home" / name
    home.mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match=f"home/{name} has no file for train-images"):
        load()
    for part, content in small_files().items():
        (home / part).write_bytes(content)
    with pytest.raises(ValueError, match=f"is not {name}"):
        load()


class Server(http.server.ThreadingHTTPServer):
    """Serves `files` from memory and counts what is asked for."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers from the server's files, else 404."""

    def do_GET(self) -> None:
        assert isinstance(self.server, Server)
        self.server.asked.append(self.path)
        content = self.server.files.get(self.path)
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        self.wfile.write(content or b"")

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def source(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> mnist.Source:
    """A small data set whose second mirror is sound; the first one has one wrong file and lacks the others."""
    monkeypatch.delenv("SEQDEC_DATA", raising=False)
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / "cache" / project)
    files = {f"{name}.gz": gzip.compress(content) for name, content in small_files().items()}
    server.files = {f"/good/{name}": content for name, content in files.items()}
    server.files[f"/bad/{PARTS[0]}.gz"] = b"<html>log in to this network</html>"
    sha256 = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    return mnist.Source("small", (f"{server.url}/bad/", f"{server.url}/good/"), sha256)


def test_download_falls_back_to_the_next_mirror(server: Server, source: mnist.Source, tmp_path: Path) -> None:
    folder = mnist._download(source)
    assert folder == tmp_path / "cache" / "seqdec" / "small"
    assert load_idx_folder(folder).train.labels.tolist() == [0, 1, 2]
    assert server.asked == [f"/{mirror}/{part}.gz" for part in PARTS for mirror in ("bad", "good")]
    server.asked.clear()
    mnist._download(source)
    assert server.asked == []  # all in the cache
    (folder / f"{PARTS[1]}.gz").write_bytes(b"damaged")
    mnist._download(source)
    assert server.asked == [f"/bad/{PARTS[1]}.gz", f"/good/{PARTS[1]}.gz"]
    assert load_idx_folder(folder).train.labels.tolist() == [0, 1, 2]


def test_download_is_tried_again(server: Server, source: mnist.Source, monkeypatch) -> None:
    retrieve, calls = pooch.retrieve, []

    def flaky(*args, **kwargs):
        calls.append(args)
        if len(calls) < 3:
            raise ConnectionResetError("reset by peer")
        return retrieve(*args, **kwargs)

    monkeypatch.setattr(pooch, "retrieve", flaky)
    source = source._replace(mirrors=source.mirrors[::-1])
    assert load_idx_folder(mnist._download(source)).test.labels.tolist() == [1, 0]
    assert server.asked[0] == f"/good/{PARTS[0]}.gz"  # the third attempt: the first mirror once more


def test_failed_download_says_what_to_put_where(server: Server, source: mnist.Source, monkeypatch) -> None:
    server.files = {}
    monkeypatch.setattr(mnist, "MNIST", source._replace(mirrors=(*source.mirrors, "http://127.0.0.1:9/")))
    with pytest.raises(FileNotFoundError) as caught:
        load_mnist()
    message = str(caught.value)
    assert (
        "set the environment variable SEQDEC_DATA to a folder and put these files into its subfolder small" in message
    )
    assert all(f"{part}.gz" in message for part in PARTS)
    assert f"{server.url}/bad/{PARTS[0]}.gz: HTTPError: 404" in message and "127.0.0.1:9" in message


@pytest.mark.parametrize("moved", [False, True], ids=["read", "by scikit-learn"])
def test_digits_are_those_of_scikit_learn(moved, monkeypatch):
    if moved:
        monkeypatch.setattr(digits, "_file", lambda: Path("/nowhere"))
    images, labels = digits.load_digits()
    wanted = datasets.load_digits()
    assert (images.dtype, labels.dtype) == (np.uint8, np.int32)
    np.testing.assert_array_equal(images, wanted.data)
    np.testing.assert_array_equal(labels, wanted.target)
