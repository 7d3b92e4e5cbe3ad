"""Readers of MNIST, Fashion-MNIST, CIFAR-10 and CIFAR-100 in their publishers' formats, accepted by content.

Files lie in the folder that the environment variable ``PAPER_LIB_DATA`` names, else in the platform's cache, one
subfolder a set. IDX files (gzipped or not) are accepted by the SHA-256 of their uncompressed bytes. The binary versions
of CIFAR are accepted by the SHA-256 of the sorted SHA-256 digests of their records, which does not depend on the order
of the records. A download goes to a temporary folder beside its destination, is checked there, and is moved into place
file by file by an atomic rename, so that nothing half-written is ever read and two processes may fetch at once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from paper_lib.checks import one_of

FOLDER_VARIABLE = "PAPER_LIB_DATA"


class VisionData(NamedTuple):
    """Images and labels in the stored order.

    Attributes:
        x_train: ``(n, channels, height, width)`` uint8.
        y_train: ``(n,)`` int64 class.
        x_test: as ``x_train``.
        y_test: as ``y_train``.
        class_names: name of each class.
    """

    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    class_names: tuple[str, ...]


class DataError(Exception):
    """Files are missing, not what they should be, or cannot be fetched; the message says what to do."""


class Missing(DataError):
    """A file is not there."""


class Rejected(DataError):
    """A file's content is not the publisher's."""


@dataclass(frozen=True)
class Part:
    """Files that are accepted together.

    Attributes:
        kind: ``idx`` (one IDX file, gzipped or not), ``records`` (CIFAR's binary files) or ``names`` (a line a class).
        files: file names without ``.gz``.
        shape: of the array read: all IDX axes; ``(records, bytes)``; ``(classes,)``.
        digest: SHA-256 of the uncompressed IDX file; of the sorted digests of the records; of the names joined by
            newlines.
    """

    kind: str
    files: tuple[str, ...]
    shape: tuple[int, ...]
    digest: str


@dataclass(frozen=True)
class Download:
    """One file to fetch.

    Attributes:
        urls: mirrors in the order in which they are tried.
        parts: names of the parts that it brings.
        md5: of the archive, as published; None for a gzipped IDX file, which is checked by its content alone.
    """

    urls: tuple[str, ...]
    parts: tuple[str, ...]
    md5: str | None = None


@dataclass(frozen=True)
class Source:
    """A published data set.

    Attributes:
        name: as in ``NAMES``.
        folder: its subfolder of the data folder.
        parts: ``x_train y_train x_test y_test`` (IDX) or ``train test names`` (CIFAR).
        downloads: where the parts come from.
        class_names: where no ``names`` part holds them.
    """

    name: str
    folder: str
    parts: Mapping[str, Part]
    downloads: tuple[Download, ...]
    class_names: tuple[str, ...] = ()


def _idx_source(
    name: str, mirrors: tuple[str, ...], digests: Mapping[str, str], class_names: tuple[str, ...]
) -> Source:
    files = {
        "x_train": ("train-images-idx3-ubyte", (60000, 28, 28)),
        "y_train": ("train-labels-idx1-ubyte", (60000,)),
        "x_test": ("t10k-images-idx3-ubyte", (10000, 28, 28)),
        "y_test": ("t10k-labels-idx1-ubyte", (10000,)),
    }
    parts = {key: Part("idx", (file,), shape, digests[key]) for key, (file, shape) in files.items()}
    downloads = tuple(Download(tuple(f"{m}{file}.gz" for m in mirrors), (key,)) for key, (file, _) in files.items())
    return Source(name, name, parts, downloads, class_names)


def _cifar_source(name: str, folder: str, md5: str, parts: Mapping[str, Part]) -> Source:
    url = f"https://www.cs.toronto.edu/~kriz/{name}-binary.tar.gz"
    return Source(name, folder, parts, (Download((url,), tuple(parts), md5),))


SOURCES: Mapping[str, Source] = {
    source.name: source
    for source in (
        _idx_source(
            "mnist",
            ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
            {
                "x_train": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
                "y_train": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
                "x_test": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
                "y_test": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            },
            tuple("0123456789"),
        ),
        _idx_source(
            "fashion-mnist",
            (
                "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
                "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
            ),
            {
                "x_train": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
                "y_train": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
                "x_test": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
                "y_test": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
            },
            ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
        ),
        _cifar_source(
            "cifar-10",
            "cifar-10-batches-bin",
            "c32a1d4ab5d03f1284b67883e8d87530",
            {
                "train": Part(
                    "records",
                    tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
                    (50000, 3073),
                    "55a61f79a40ece2ceda9fb5f9f7078f6ea2fc4952489cef56682bcf92cfcc260",
                ),
                "test": Part(
                    "records",
                    ("test_batch.bin",),
                    (10000, 3073),
                    "325704b01eb92e1e2a6215ae6a916bb7db7de054af0c496be1c7be2e0fcfbf5f",
                ),
                "names": Part(
                    "names",
                    ("batches.meta.txt",),
                    (10,),
                    "bb3914949cecedee6d1257f7f5fdb8f43fa3b2c8095fd1763161caf1b873fe59",
                ),
            },
        ),
        _cifar_source(
            "cifar-100",
            "cifar-100-binary",
            "03b5dce01913d631647c71ecec9e9cb8",
            {
                "train": Part(
                    "records",
                    ("train.bin",),
                    (50000, 3074),
                    "7077d87fc363f92dbf1245f13ba80561d7b33a96c79ad57168d49dc172aaa92b",
                ),
                "test": Part(
                    "records",
                    ("test.bin",),
                    (10000, 3074),
                    "96adb3db8da7632dbb350559a17b9f585fab5b17675de5fc8f6761384196b294",
                ),
                "names": Part(
                    "names",
                    ("fine_label_names.txt",),
                    (100,),
                    "fbe8ad23bbaf24969898a386833b49c3aaf6ad1119d43f7b41cdea1b3416d578",
                ),
            },
        ),
    )
}
NAMES = tuple(SOURCES)


def data_folder() -> Path:
    """The folder that ``PAPER_LIB_DATA`` names, else the platform's cache."""
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return Path(named).expanduser()
    import platformdirs

    return platformdirs.user_cache_path("paper_lib", appauthor=False) / "data"


def load(name: str | Source) -> VisionData:
    """A data set from the data folder, its content checked.

    Args:
        name: one of ``NAMES`` (or a ``Source`` of one's own).

    Raises:
        DataError: a file is missing or is not the publisher's; the message says which and how to get it.
    """
    source = _source(name)
    folder = data_folder() / source.folder
    try:
        parts = {key: READERS[part.kind](folder, part) for key, part in source.parts.items()}
    except (DataError, OSError) as error:
        kind = type(error) if isinstance(error, DataError) else DataError
        raise kind(f"{source.name}: {error}\n{how_to_get(source, folder)}") from error
    if "names" in parts:
        x, y = zip(*(_pixels_and_labels(parts[split]) for split in ("train", "test")), strict=True)
        return VisionData(x[0], y[0], x[1], y[1], parts["names"])
    x_train, x_test = (torch.from_numpy(parts[key]).unsqueeze(1) for key in ("x_train", "x_test"))
    y_train, y_test = (torch.from_numpy(parts[key]).long() for key in ("y_train", "y_test"))
    return VisionData(x_train, y_train, x_test, y_test, source.class_names)


def digits() -> VisionData:
    """Scikit-learn's 1,797 handwritten digits, 8 x 8 pixels: no download.

    Their 17 grey levels are spread over 0 to 255. Every fifth image of a class is a test image, so the split is
    stratified and needs no random numbers.

    >>> data = digits()
    >>> tuple(data.x_train.shape), tuple(data.x_test.shape), int(data.x_train.max())
    ((1442, 1, 8, 8), (355, 1, 8, 8), 255)
    """
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    x = torch.from_numpy(np.rint(images * (255 / 16)).astype(np.uint8)).view(-1, 1, 8, 8)
    y = torch.from_numpy(labels).long()
    place_in_class = (torch.nn.functional.one_hot(y).cumsum(0) - 1).gather(1, y[:, None])[:, 0]
    test = place_in_class % 5 == 4
    return VisionData(x[~test], y[~test], x[test], y[test], tuple("0123456789"))


class PartStatus(NamedTuple):
    """Where one part of a data set stands.

    Attributes:
        part: such as ``x_train`` or ``test``.
        folder: where they are looked for.
        state: ``missing``; ``present`` (content not looked at); ``verified``; ``fetched`` (now, and verified);
            ``rejected``.
        detail: size on disk, or why it was rejected or counts as missing.
    """

    part: str
    folder: Path
    state: str
    detail: str


def status(name: str | Source) -> list[PartStatus]:
    """Which parts of a data set are there, by file names alone."""
    source = _source(name)
    folder = data_folder() / source.folder
    rows = []
    for key, part in source.parts.items():
        found = {file: _existing(folder, file, part.kind) for file in part.files}
        absent = [file for file, paths in found.items() if not paths]
        size = sum(paths[0].stat().st_size for paths in found.values() if paths)
        state, detail = ("missing", f"no {', '.join(absent)}") if absent else ("present", f"{size:,} bytes")
        rows.append(PartStatus(key, folder, state, detail))
    return rows


def verify(name: str | Source) -> list[PartStatus]:
    """``status`` after reading each part that is there and checking its content."""
    source = _source(name)
    rows = []
    for row in status(source):
        if row.state == "present":
            part = source.parts[row.part]
            try:
                READERS[part.kind](row.folder, part)
                row = row._replace(state="verified")
            except (DataError, OSError) as error:
                row = row._replace(state="rejected", detail=str(error))
        rows.append(row)
    return rows


def fetch(name: str | Source, progress: bool = False) -> list[PartStatus]:
    """Download what is missing or rejected, and say where each part stands.

    Args:
        name: one of ``NAMES`` (or a ``Source`` of one's own).
        progress: draw a progress bar on stderr.

    Raises:
        DataError: the folder cannot be written, or no mirror served the right content; the message lists every URL with
            what went wrong there.
    """
    source = _source(name)
    folder = data_folder() / source.folder
    good = {row.part for row in verify(source) if row.state == "verified"}
    for download in source.downloads:
        if not good.issuperset(download.parts):
            _fetch(source, download, folder, progress)
    rows = verify(source)
    return [row._replace(state="fetched") if row.state == "verified" and row.part not in good else row for row in rows]


def _fetch(source: Source, download: Download, folder: Path, progress: bool) -> None:
    """One download from the first mirror that serves the right content, checked before it is moved into place."""
    failures = []
    name = "archive.tar.gz" if download.md5 else f"{source.parts[download.parts[0]].files[0]}.gz"
    for url in download.urls:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            scratch = TemporaryDirectory(dir=folder, prefix=".fetch-", suffix=".part")
        except OSError as error:
            raise DataError(
                f"{source.name}: cannot write to {folder}: {error}\n{how_to_get(source, folder)}"
            ) from error
        with scratch:
            inside = Path(scratch.name)
            try:
                _download(url, inside / name, progress)
                files = _unpack(source, download, inside / name)
                for key in download.parts:
                    READERS[source.parts[key].kind](inside, source.parts[key])
            except (DataError, OSError) as error:
                failures.append(f"{url}: {error}".replace(f"{inside}{os.sep}", "").replace(str(inside), "archive"))
                continue
            try:
                for file in files:
                    os.replace(file, folder / file.name)
            except OSError as error:
                raise DataError(f"{source.name}: cannot write to {folder}: {error}") from error
            return
    tried = "\n".join(f"    {failure}" for failure in failures)
    raise DataError(f"{source.name}: no URL served what was expected; tried\n{tried}\n{how_to_get(source, folder)}")


def _download(url: str, path: Path, progress: bool) -> None:
    import pooch

    # Without "identity" a server may gzip what is gzipped already, or undo it, and requests would hide that.
    fetch_to = pooch.HTTPDownloader(
        progressbar=progress, chunk_size=2**16, timeout=30, headers={"Accept-Encoding": "identity"}
    )
    fetch_to(url, str(path), None)


def _unpack(source: Source, download: Download, path: Path) -> list[Path]:
    """The files that a download brings, beside it: itself, or those members of the archive that the parts name.

    Only regular members with exactly the expected names are read, and they are written under names of our own, so that
    an archive cannot write anywhere else.
    """
    if download.md5 is None:
        return [path]
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if found != download.md5:
        raise Rejected(f"expected an archive with MD5 {download.md5}, found {found} ({path.stat().st_size:,} bytes)")
    wanted = {f"{source.folder}/{file}": file for key in download.parts for file in source.parts[key].files}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                file = wanted.get(member.name.removeprefix("./"))
                content = archive.extractfile(member) if file and member.isreg() else None
                if content is not None:
                    with (path.parent / file).open("wb") as target:
                        shutil.copyfileobj(content, target)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise Rejected(f"the archive cannot be unpacked ({error})") from error
    return [path.parent / file for file in wanted.values()]


def how_to_get(source: Source, folder: Path) -> str:
    """How to place the files by hand, where they were looked for and, last, the command that fetches them."""
    urls = "\n".join(f"    {url}" for download in source.downloads for url in download.urls)
    archive = any(download.md5 for download in source.downloads)
    by_hand = f"unpack the archive's {source.folder} folder as" if archive else "put the files, gzipped or not, into"
    absent = "" if folder.is_dir() else ", which is not there"
    return (
        f"  By hand: {by_hand} {folder}; they are published at\n{urls}\n"
        f"  Searched: {folder}{absent} (the folder is {FOLDER_VARIABLE}, else the platform's cache)\n"
        f"  To fetch: paper-lib data fetch {source.name}"
    )


def _source(name: str | Source) -> Source:
    return name if isinstance(name, Source) else SOURCES[one_of("data set", name, NAMES)]


def _existing(folder: Path, file: str, kind: str) -> list[Path]:
    """``FILE`` and, for IDX, ``FILE.gz``, as far as they are there."""
    names = (file, f"{file}.gz") if kind == "idx" else (file,)
    return [folder / name for name in names if (folder / name).exists()]


def _pixels_and_labels(records: np.ndarray) -> tuple[Tensor, Tensor]:
    """CIFAR's records end in the (fine) label and 3 x 32 x 32 pixels, channel by channel."""
    x = torch.from_numpy(np.ascontiguousarray(records[:, -3072:])).view(-1, 3, 32, 32)
    return x, torch.from_numpy(records[:, -3073]).long()


def _read_idx(folder: Path, part: Part) -> np.ndarray:
    """The array of the first acceptable one of ``FILE`` and ``FILE.gz``."""
    (file,) = part.files
    paths = _existing(folder, file, part.kind)
    if not paths:
        raise Missing(f"{folder / file} (or {file}.gz) is missing")
    errors = []
    for path in paths:
        try:
            return _parse_idx(path, part)
        except Rejected as error:
            errors.append(str(error))
    raise Rejected("; ".join(errors))


def _parse_idx(path: Path, part: Part) -> np.ndarray:
    header = bytes([0, 0, 8, len(part.shape)]) + np.array(part.shape, ">u4").tobytes()
    size = len(header) + int(np.prod(part.shape))
    content = path.read_bytes()
    if not content:
        raise Rejected(f"{path}: expected {size:,} bytes of IDX, found an empty file")
    if content.startswith(b"\x1f\x8b"):
        content = _gunzip(path, content, size)
    if content[:4] != header[:4]:
        raise Rejected(f"{path}: expected the IDX magic {header[:4].hex()} (or gzip's), found {content[:4].hex()}")
    shape = tuple(np.frombuffer(content[4 : len(header)].ljust(len(header) - 4, b"\0"), ">u4").tolist())
    if shape != part.shape:
        raise Rejected(f"{path}: expected shape {part.shape}, found {shape}")
    if len(content) != size:
        found = f"at least {len(content):,}" if len(content) > size else f"{len(content):,}"
        raise Rejected(f"{path}: expected {size:,} uncompressed bytes, found {found}")
    _check_digest(str(path), "SHA-256 of the uncompressed content", part, hashlib.sha256(content).hexdigest())
    # A bytearray makes the array writable, as torch wants it.
    return np.frombuffer(bytearray(content), np.uint8, offset=len(header)).reshape(part.shape)


def _gunzip(path: Path, content: bytes, size: int) -> bytes:
    """At most ``size + 1`` uncompressed bytes: a file that lies about its size cannot fill the memory."""
    stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        plain = stream.decompress(content, size + 1)
    except zlib.error as error:
        raise Rejected(f"{path}: expected a gzip file, found bytes that do not decompress ({error})") from error
    if not stream.eof and len(plain) <= size:
        raise Rejected(f"{path}: expected {size:,} uncompressed bytes, found a gzip file cut off after {len(plain):,}")
    return plain


def _read_records(folder: Path, part: Part) -> np.ndarray:
    """CIFAR's records ``(records, bytes)``, file after file."""
    records = np.empty(part.shape, np.uint8)
    for file, rows in zip(part.files, np.split(records, len(part.files)), strict=True):
        path = folder / file
        if not path.exists():
            raise Missing(f"{path} is missing")
        size = path.stat().st_size
        if size != rows.nbytes:
            raise Rejected(
                f"{path}: expected {rows.nbytes:,} bytes ({len(rows):,} records of {part.shape[1]:,}), found {size:,}"
            )
        with path.open("rb") as stream:
            if stream.readinto(rows.reshape(-1)) != rows.nbytes:
                raise Rejected(f"{path}: it changed while it was read")
    flat, width = memoryview(records.reshape(-1)), part.shape[1]
    digests = sorted(hashlib.sha256(flat[i : i + width]).digest() for i in range(0, len(flat), width))
    where = f"{folder}: {', '.join(part.files)}"
    _check_digest(where, "order-free SHA-256 of the records", part, hashlib.sha256(b"".join(digests)).hexdigest())
    return records


def _read_names(folder: Path, part: Part) -> tuple[str, ...]:
    (file,) = part.files
    path = folder / file
    if not path.exists():
        raise Missing(f"{path} is missing")
    names = tuple(path.read_bytes().decode("ascii", "replace").split())
    if len(names) != part.shape[0]:
        raise Rejected(f"{path}: expected {part.shape[0]} class names, found {len(names)}")
    found = hashlib.sha256("\n".join(names).encode()).hexdigest()
    _check_digest(str(path), "SHA-256 of the names joined by newlines", part, found)
    return names


def _check_digest(where: str, what: str, part: Part, found: str) -> None:
    if found != part.digest:
        raise Rejected(f"{where}: expected {what} {part.digest}, found {found}")


READERS = {"idx": _read_idx, "records": _read_records, "names": _read_names}
