"""Every reader on files that are cut or have flipped bits: a valid result, or a ValueError that names the file."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pooch
import pytest

from reproduction.data import load_cifar10, load_snelson
from seqdec import data
from seqdec.data import digits, kuairec
from seqdec.data.kuairec_synthetic import write_kuairec
from tests.tables import write_open_bandit, write_tables

TRIES = 60


class Reader(NamedTuple):
    """A reader and the small file that is damaged."""

    write: Callable[[Path], Any]
    """(new folder) writes the files"""
    file: str
    """in the folder"""
    read: Callable[[Path], Any]
    """(folder)"""
    cuts: bool = True
    """Whether a file that lacks its last bytes is always refused: text that may end anywhere is not."""


def _folder(write: Callable[[Path], Any]) -> Callable[[Path], Any]:
    def into(place: Path) -> None:
        place.mkdir()
        write(place)

    return into


def _snelson_text(place: Path) -> None:
    for name in ("train_inputs", "train_outputs"):
        np.savetxt(place / name, np.random.default_rng(0).normal(size=200))


def _excerpt(place: Path) -> None:
    np.savez_compressed(place / "train_first4000.npz", x=np.zeros((8, 32, 32, 3), np.uint8), y=np.arange(8))


def _cifar(place: Path) -> None:
    for name in (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"):
        (place / name).write_bytes(bytes(2 * 3073))


def _idx(place: Path) -> None:
    for half, count in (("train", 3), ("t10k", 2)):
        for part, array in (("images", np.ones((count, 2, 2), np.uint8)), ("labels", np.ones(count, np.uint8))):
            header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
            (place / f"{half}-{part}").write_bytes(header + array.tobytes())


def _kuairec(place: Path) -> None:
    write_kuairec(place, users=4, videos=12, seed=0)


def _exposures(place: Path) -> None:
    rows = (f"{user},{video},{0.1 + (user + video) % 7}\n" for user in range(3) for video in range(12))
    (place / "random_exposures.txt").write_text("".join(rows))


TABLES = {
    "mushroom": "agaricus-lepiota.data",
    "adult": "adult.data",
    "statlog": "shuttle.trn",
    "covertype": "covtype.data.gz",
    "census": "USCensus1990.data.txt",
    "stocks": "raw_stock_contexts",
    "jester": "jester_data_40jokes_19181users.npy",
}
READERS = {
    **{name: Reader(write_tables, file, getattr(data, f"load_{name}")) for name, file in TABLES.items()},
    "open bandit": Reader(write_open_bandit, "bts_all/all.csv", lambda place: data.load_open_bandit("bts", place)),
    "items": Reader(write_open_bandit, "bts_all/item_context.csv", lambda place: data.load_open_bandit("bts", place)),
    "snelson": Reader(_folder(_snelson_text), "train_inputs", load_snelson, cuts=False),
    "snelson npz": Reader(
        _folder(lambda place: np.savez(place / "snelson.npz", x_train=np.ones(9), y_train=np.ones(9))),
        "snelson.npz",
        load_snelson,
    ),
    "cifar": Reader(_folder(_cifar), "data_batch_3.bin", load_cifar10),
    "cifar excerpt": Reader(_folder(_excerpt), "train_first4000.npz", load_cifar10),
    "idx": Reader(_folder(_idx), "train-images", data.load_idx_folder),
    "small matrix": Reader(
        _kuairec, "small_matrix.csv", lambda place: data.load_kuairec(place, size=2, cache=False), cuts=False
    ),
    "daily features": Reader(
        _kuairec, kuairec.FEATURES, lambda place: data.load_kuairec(place, size=2, cache=False), cuts=False
    ),
    "exposures": Reader(
        _folder(_exposures),
        "random_exposures.txt",
        lambda place: data.load_random_exposures(place / "random_exposures.txt", size=2),
        cuts=False,
    ),
}


def arrays(result: Any) -> Iterator[np.ndarray]:
    """All arrays of numbers in a result."""
    if isinstance(result, np.ndarray):
        yield result
    for part in result if isinstance(result, tuple) else ():
        yield from arrays(part)


def read(reader: Reader, place: Path, content: bytes) -> bool:
    """Whether the reader takes this content. What it takes is finite; what it refuses, it refuses as it should."""
    file = place / reader.file
    file.write_bytes(content)
    try:
        result = reader.read(place)
    except ValueError as error:
        refusal = error
    else:
        assert all(np.isfinite(array).all() for array in arrays(result) if array.dtype.kind == "f")
        return True
    known = (file.name, str(place), "kuairec")
    assert type(refusal) is ValueError and any(name in str(refusal) for name in known), refusal
    return False


@pytest.fixture(params=READERS)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Reader, Path, bytes]:
    reader = READERS[request.param]
    place = tmp_path / "files"
    reader.write(place)
    content = (place / reader.file).read_bytes()
    assert read(reader, place, content)
    return reader, place, content


@pytest.mark.sampled(2)
def test_cut_files(case: tuple[Reader, Path, bytes]) -> None:
    reader, place, content = case
    rng = random.Random(0)
    lengths = [0, 1, len(content) - 1, *(rng.randrange(len(content)) for _ in range(TRIES))]
    taken = [length for length in lengths if read(reader, place, content[:length])]
    whole_lines = [length for length in taken if content[length - 1 : length] == b"\n"]
    assert taken == whole_lines or not reader.cuts
    assert not read(reader, place, b"")


@pytest.mark.sampled(4)
def test_flipped_bits(case: tuple[Reader, Path, bytes]) -> None:
    reader, place, content = case
    rng = random.Random(0)
    for _ in range(TRIES):
        damaged = bytearray(content)
        damaged[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        read(reader, place, bytes(damaged))


@pytest.mark.parametrize("name", ["mushroom", "adult", "open bandit", "census", "statlog", "stocks"])
def test_a_short_row_is_refused_with_its_line(name: str, tmp_path: Path) -> None:
    reader = READERS[name]
    reader.write(tmp_path / "files")
    file = tmp_path / "files" / reader.file
    lines = file.read_bytes().splitlines(keepends=True)
    lines[4] = lines[4][: len(lines[4]) // 2] + b"\n"
    file.write_bytes(b"".join(lines))
    with pytest.raises(ValueError, match=rf"{file.name}.*line 5"):
        reader.read(tmp_path / "files")


def test_a_damaged_cache_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / "cache")
    _kuairec(tmp_path / "files")
    expected = data.load_kuairec(tmp_path / "files", size=2)
    (cached,) = (tmp_path / "cache" / "kuairec").iterdir()
    whole = cached.read_bytes()
    for content in (b"", whole[:-1], whole[:-9] + b"x" + whole[-8:]):
        cached.write_bytes(content)
        with pytest.warns(RuntimeWarning, match=f"the cache is made anew from the CSV files: {cached} is damaged"):
            found = data.load_kuairec(tmp_path / "files", size=2)
        np.testing.assert_array_equal(found.rewards, expected.rewards)
    np.testing.assert_array_equal(data.load_kuairec(tmp_path / "files", size=2).rewards, expected.rewards)


def test_a_date_that_its_timestamp_contradicts(tmp_path: Path) -> None:
    _kuairec(tmp_path)
    file = tmp_path / "small_matrix.csv"
    lines = file.read_text().splitlines()
    row = next(index for index, line in enumerate(lines[1:], 1) if ",1598" in line)
    lines[row] = lines[row].replace(",1598", ",598")
    file.write_text("\n".join(lines))
    with pytest.raises(ValueError, match=r"small_matrix.csv, columns user_id, date and timestamp: block .* is older"):
        data.load_kuairec(tmp_path, size=2, cache=False)


def test_damaged_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = digits._file().read_bytes()
    monkeypatch.setattr(digits, "_file", lambda: tmp_path / "digits.csv.gz")
    (tmp_path / "digits.csv.gz").write_bytes(content[:-100])
    with pytest.raises(ValueError, match=r"digits\.csv\.gz is damaged .*; install scikit-learn again"):
        data.load_digits()
