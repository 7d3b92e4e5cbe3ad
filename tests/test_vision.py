"""Readers and downloads of the published image sets, on small synthetic copies of their formats."""

import gzip
import hashlib
import io
import multiprocessing
import tarfile
import threading
from collections import defaultdict
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch

from paper_lib.data import vision
from paper_lib.data.vision import DataError, Download, Missing, Part, Rejected, Source

IDX_FILES = {
    "x_train": ("train-images-idx3-ubyte", (12, 4, 3)),
    "y_train": ("train-labels-idx1-ubyte", (12,)),
    "x_test": ("t10k-images-idx3-ubyte", (5, 4, 3)),
    "y_test": ("t10k-labels-idx1-ubyte", (5,)),
}


def idx_bytes(array: np.ndarray) -> bytes:
    """An IDX file written from its description: zero, zero, type 8, axes, big-endian lengths, bytes."""
    lengths = b"".join(int(n).to_bytes(4, "big") for n in array.shape)
    return b"\x00\x00\x08" + bytes([array.ndim]) + lengths + array.astype(np.uint8).tobytes()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PAPER_LIB_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {key: rng.integers(0, 10, shape).astype(np.uint8) for key, (_, shape) in IDX_FILES.items()}


@pytest.fixture
def idx(arrays: dict[str, np.ndarray]) -> Source:
    """An IDX set that nobody publishes."""
    parts = {
        key: Part("idx", (file,), shape, hashlib.sha256(idx_bytes(arrays[key])).hexdigest())
        for key, (file, shape) in IDX_FILES.items()
    }
    downloads = tuple(
        Download((f"http://first.invalid/{p.files[0]}.gz", f"http://second.invalid/{p.files[0]}.gz"), (key,))
        for key, p in parts.items()
    )
    return Source("tiny", "tiny", parts, downloads, tuple("0123456789"))


def place(folder: Path, arrays: dict[str, np.ndarray], gz: bool) -> Path:
    (folder / "tiny").mkdir(parents=True)
    for key, (file, _) in IDX_FILES.items():
        content = idx_bytes(arrays[key])
        (folder / "tiny" / (f"{file}.gz" if gz else file)).write_bytes(gzip.compress(content) if gz else content)
    return folder / "tiny"


def cifar_records(n: int, label_bytes: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    records = rng.integers(0, 256, (n, label_bytes + 3072)).astype(np.uint8)
    records[:, :label_bytes] = np.arange(n)[:, None] % 3 + 7 * np.arange(label_bytes)
    return records


def order_free(records: np.ndarray) -> str:
    return hashlib.sha256(b"".join(sorted(hashlib.sha256(r.tobytes()).digest() for r in records))).hexdigest()


CIFAR_TRAIN, CIFAR_TEST = cifar_records(6, 1, 0), cifar_records(4, 1, 1)
CIFAR_CONTENT = {
    "batch_1.bin": CIFAR_TRAIN[:3].tobytes(),
    "batch_2.bin": CIFAR_TRAIN[3:].tobytes(),
    "test.bin": CIFAR_TEST.tobytes(),
    "meta.txt": b"cat\ndog\nfrog\n\n",
}


@pytest.fixture
def cifar() -> Source:
    parts = {
        "train": Part("records", ("batch_1.bin", "batch_2.bin"), (6, 3073), order_free(CIFAR_TRAIN)),
        "test": Part("records", ("test.bin",), (4, 3073), order_free(CIFAR_TEST)),
        "names": Part("names", ("meta.txt",), (3,), hashlib.sha256(b"cat\ndog\nfrog").hexdigest()),
    }
    download = Download(("http://archive.invalid/tiny.tar.gz",), ("train", "test", "names"), "0" * 32)
    return Source("tiny-cifar", "tiny-bin", parts, (download,))


def place_cifar(folder: Path, content: dict[str, bytes] = CIFAR_CONTENT) -> Path:
    (folder / "tiny-bin").mkdir(parents=True)
    for file, data in content.items():
        (folder / "tiny-bin" / file).write_bytes(data)
    return folder / "tiny-bin"


# --- reading


@pytest.mark.parametrize("gz", [False, True])
def test_idx_is_read_as_written(folder, arrays, idx, gz):
    place(folder, arrays, gz)
    data = vision.load(idx)
    np.testing.assert_array_equal(data.x_train[:, 0].numpy(), arrays["x_train"])
    np.testing.assert_array_equal(data.y_test.numpy(), arrays["y_test"])
    assert data.x_test.shape == (5, 1, 4, 3)
    assert data.x_train.dtype == torch.uint8 and data.y_train.dtype == torch.int64
    assert [row.state for row in vision.status(idx)] == ["present"] * 4
    assert [row.state for row in vision.verify(idx)] == ["verified"] * 4


def test_a_good_file_is_found_beside_a_broken_one(folder, arrays, idx):
    tiny = place(folder, arrays, gz=True)
    (tiny / "train-images-idx3-ubyte").write_bytes(b"broken")
    np.testing.assert_array_equal(vision.load(idx).x_train[:, 0].numpy(), arrays["x_train"])


def test_cifar_is_read_channel_by_channel_in_any_order(folder, cifar):
    tiny = place_cifar(folder)
    data = vision.load(cifar)
    record = CIFAR_TRAIN[4]
    assert data.y_train[4] == record[0]
    assert data.x_train[4, 2, 5, 7] == record[1 + 2 * 1024 + 5 * 32 + 7]
    assert data.class_names == ("cat", "dog", "frog")
    shuffled = CIFAR_TRAIN[[5, 0, 3, 1, 4, 2]]
    (tiny / "batch_1.bin").write_bytes(shuffled[:3].tobytes())
    (tiny / "batch_2.bin").write_bytes(shuffled[3:].tobytes())
    assert torch.equal(vision.load(cifar).x_train, data.x_train[[5, 0, 3, 1, 4, 2]])


def test_of_two_label_bytes_the_second_is_the_class(folder):
    train, test = cifar_records(4, 2, 0), cifar_records(2, 2, 1)
    place_cifar(folder, {"train.bin": train.tobytes(), "test.bin": test.tobytes(), "fine.txt": b"a b c"})
    parts = {
        "train": Part("records", ("train.bin",), train.shape, order_free(train)),
        "test": Part("records", ("test.bin",), test.shape, order_free(test)),
        "names": Part("names", ("fine.txt",), (3,), hashlib.sha256(b"a\nb\nc").hexdigest()),
    }
    data = vision.load(Source("tiny-100", "tiny-bin", parts, ()))
    assert data.y_train.tolist() == train[:, 1].tolist() != train[:, 0].tolist()
    assert data.x_test[0, 0, 0, 0] == test[0, 2]


def test_digits_are_split_within_each_class():
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    data = vision.digits()
    assert data.x_train.shape[1:] == (1, 8, 8) and data.x_train.dtype == torch.uint8
    counts = np.bincount(labels)
    assert torch.bincount(data.y_test).tolist() == (counts // 5).tolist()
    rows = torch.cat([data.x_train, data.x_test]).flatten(1).double().numpy() * 16 / 255
    assert sorted(map(tuple, rows.round().tolist())) == sorted(map(tuple, images.tolist()))


# --- refusing


def flip_last_bit(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


IMAGES = "train-images-idx3-ubyte"
GOOD = idx_bytes(np.random.default_rng(0).integers(0, 10, (12, 4, 3)))  # the same draws as ``arrays["x_train"]``
BROKEN = {
    "empty": (b"", "found an empty file"),
    "wrong magic": (b"\x00\x00\x0d\x03" + GOOD[4:], r"magic 00000803 .*found 00000d03"),
    "a web page": (b"<html>404</html>", r"found 3c68746d"),
    "three bytes": (GOOD[:3], "magic"),
    "header cut": (GOOD[:9], r"expected shape \(12, 4, 3\), found"),
    "wrong shape": (idx_bytes(np.zeros((12, 3, 4))), r"expected shape \(12, 4, 3\), found \(12, 3, 4\)"),
    "truncated": (GOOD[:-10], "expected 160 uncompressed bytes, found 150"),
    "too long": (GOOD + b"x", "expected 160 uncompressed bytes, found at least 161"),
    "corrupt": (flip_last_bit(GOOD), "expected SHA-256 of the uncompressed content .*, found"),
    "gzip cut": (gzip.compress(GOOD)[:-20], "gzip file cut off"),
    "gzip corrupt": (gzip.compress(GOOD)[:30] + b"\xff" * 30, "do not decompress|cut off"),
    "gzip bomb": (gzip.compress(GOOD + bytes(10_000_000)), "found at least 161"),
}


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("gz", [False, True])
def test_a_broken_idx_file_is_refused_by_name(folder, arrays, idx, case, gz):
    tiny = place(folder, arrays, gz)
    content, found = BROKEN[case]
    path = tiny / (f"{IMAGES}.gz" if gz else IMAGES)
    path.write_bytes(content)
    with pytest.raises(Rejected, match=found) as error:
        vision.load(idx)
    said = str(error.value)
    assert str(path) in said and "paper-lib data fetch tiny" in said and "By hand" in said
    assert all(url in said for download in idx.downloads for url in download.urls)
    (rejected,) = [row for row in vision.verify(idx) if row.state == "rejected"]
    assert rejected.part == "x_train" and str(path) in rejected.detail


@pytest.mark.parametrize(
    "file, content, found",
    [
        ("batch_2.bin", b"", r"expected 9,219 bytes \(3 records of 3,073\), found 0"),
        ("batch_2.bin", CIFAR_TRAIN[3:].tobytes()[:-1], "found 9,218"),
        ("batch_2.bin", flip_last_bit(CIFAR_TRAIN[3:].tobytes()), "order-free SHA-256"),
        ("batch_2.bin", CIFAR_TRAIN[:3].tobytes(), "order-free SHA-256"),
        ("test.bin", None, "test.bin is missing"),
        ("meta.txt", b"cat\ndog\n", "expected 3 class names, found 2"),
        ("meta.txt", b"cat\nfrog\ndog\n", "SHA-256 of the names"),
        ("meta.txt", b"\xff\xfe", "expected 3 class names"),
    ],
)
def test_a_broken_cifar_file_is_refused_by_name(folder, cifar, file, content, found):
    tiny = place_cifar(folder)
    (tiny / file).unlink()
    if content is not None:
        (tiny / file).write_bytes(content)
    with pytest.raises(DataError, match=found) as error:
        vision.load(cifar)
    assert file in str(error.value) and "unpack the archive's tiny-bin folder" in str(error.value)


def test_a_missing_file_says_how_to_get_it(folder, arrays, idx):
    tiny = place(folder, arrays, gz=True)
    (tiny / f"{IMAGES}.gz").unlink()
    with pytest.raises(Missing) as error:
        vision.load(idx)
    for word in (IMAGES, str(tiny), "PAPER_LIB_DATA", "paper-lib data fetch tiny", "http://second.invalid/"):
        assert word in str(error.value)
    assert [row.state for row in vision.status(idx)] == ["missing", "present", "present", "present"]


def test_a_folder_in_place_of_a_file_is_an_error_of_ours(folder, arrays, idx):
    tiny = place(folder, arrays, gz=False)
    (tiny / IMAGES).unlink()
    (tiny / IMAGES).mkdir()
    with pytest.raises(DataError, match=IMAGES):
        vision.load(idx)
    assert vision.verify(idx)[0].state == "rejected"


def test_an_unknown_name_gets_a_near_match():
    with pytest.raises(ValueError, match="did you mean 'fashion-mnist'"):
        vision.load("fashion_mnist")


def test_the_data_folder_falls_back_to_the_cache(monkeypatch, tmp_path):
    platformdirs = pytest.importorskip("platformdirs")
    monkeypatch.delenv("PAPER_LIB_DATA", raising=False)
    assert vision.data_folder().is_relative_to(platformdirs.user_cache_path("paper_lib", appauthor=False))
    monkeypatch.setenv("PAPER_LIB_DATA", str(tmp_path))
    assert vision.data_folder() == tmp_path


# --- fetching


class Mirror(ThreadingHTTPServer):
    """A local server whose paths serve, refuse, cut the connection half-way, or wait there for a second client."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pages: dict[str, tuple[str, bytes]] = {}
        self.asked: list[str] = []
        self.both_here = defaultdict(lambda: threading.Barrier(2))

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}{path}"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        how, body = self.server.pages.get(self.path, ("refuse", b""))
        self.send_response(403 if how == "refuse" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        half = len(body) // 2
        self.wfile.write(body[:half])
        if how == "together":
            self.server.both_here[self.path].wait(60)
        if how != "cut":
            self.wfile.write(body[half:])

    def log_message(self, *args):
        pass


@pytest.fixture
def mirror():
    server = Mirror()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def serve_idx(mirror: Mirror, idx: Source, arrays: dict[str, np.ndarray]) -> Source:
    """The set with two mirrors, of which ``/b/`` serves every file."""
    downloads = []
    for key, part in idx.parts.items():
        file = f"{part.files[0]}.gz"
        mirror.pages[f"/b/{file}"] = ("serve", gzip.compress(idx_bytes(arrays[key])))
        downloads.append(Download((mirror.url(f"/a/{file}"), mirror.url(f"/b/{file}")), (key,)))
    return replace(idx, downloads=tuple(downloads))


def tar(content: dict[str, bytes], links: dict[str, str] | None = None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, data in content.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
    return buffer.getvalue()


def serve_cifar(mirror: Mirror, cifar: Source, archive: bytes) -> Source:
    mirror.pages["/tiny.tar.gz"] = ("serve", archive)
    md5 = hashlib.md5(archive).hexdigest()
    return replace(cifar, downloads=(replace(cifar.downloads[0], urls=(mirror.url("/tiny.tar.gz"),), md5=md5),))


def files_under(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_fetch_goes_on_to_the_mirror_that_serves(folder, arrays, idx, mirror):
    source = serve_idx(mirror, idx, arrays)
    images = mirror.pages[f"/b/{IMAGES}.gz"][1]
    mirror.pages[f"/a/{IMAGES}.gz"] = ("cut", images)
    mirror.pages["/a/train-labels-idx1-ubyte.gz"] = ("serve", images)  # right bytes of the wrong file
    mirror.pages["/a/t10k-images-idx3-ubyte.gz"] = ("serve", b"<html>please log in</html>")
    assert [row.state for row in vision.fetch(source)] == ["fetched"] * 4
    assert torch.equal(vision.load(source).x_train[:, 0], torch.from_numpy(arrays["x_train"]))
    assert files_under(folder) == {"tiny"} | {f"tiny/{p.files[0]}.gz" for p in idx.parts.values()}
    asked = len(mirror.asked)
    assert [row.state for row in vision.fetch(source)] == ["verified"] * 4
    assert len(mirror.asked) == asked == 8


def test_fetch_replaces_only_what_is_broken(folder, arrays, idx, mirror):
    source = serve_idx(mirror, idx, arrays)
    tiny = place(folder, arrays, gz=True)
    (tiny / f"{IMAGES}.gz").write_bytes(b"")
    assert [row.state for row in vision.fetch(source)] == ["fetched", "verified", "verified", "verified"]
    assert mirror.asked == [f"/a/{IMAGES}.gz", f"/b/{IMAGES}.gz"]


@pytest.mark.parametrize(
    "how, body, found", [("refuse", b"", "403"), ("cut", GOOD, "Incomplete"), ("serve", b"lie", "magic")]
)
def test_fetch_lists_every_url_and_leaves_nothing_behind(folder, arrays, idx, mirror, how, body, found):
    source = serve_idx(mirror, idx, arrays)
    mirror.pages[f"/b/{IMAGES}.gz"] = (how, body)
    with pytest.raises(DataError, match="no URL served what was expected") as error:
        vision.fetch(source)
    tried = str(error.value).partition("By hand")[0]
    for url in source.downloads[0].urls:
        (line,) = [line for line in tried.splitlines() if url + ":" in line]
        assert len(line) > len(url) + 6
    assert found in tried and "By hand" in str(error.value)
    assert files_under(folder) == {"tiny"}


def test_an_unreachable_mirror_is_one_failure_and_a_mirror_may_name_files_its_own_way(folder, arrays, idx, mirror):
    downloads = []
    for key in idx.parts:  # served uncompressed, under a name of the mirror's own
        mirror.pages[f"/get?id={key}"] = ("serve", idx_bytes(arrays[key]))
        downloads.append(Download(("http://127.0.0.1:9/file.gz", mirror.url(f"/get?id={key}")), (key,)))
    source = replace(idx, downloads=tuple(downloads))
    assert [row.state for row in vision.fetch(source)] == ["fetched"] * 4
    assert vision.load(source).y_test.tolist() == arrays["y_test"].tolist()


def test_fetch_unpacks_the_expected_members_and_nothing_else(folder, cifar, mirror):
    content = {f"./tiny-bin/{file}": data for file, data in CIFAR_CONTENT.items()}
    others = {"../escaped.bin": b"x", "/tmp/escaped.bin": b"x", "tiny-bin/../../escaped.bin": b"x", "other.txt": b"x"}
    source = serve_cifar(mirror, cifar, tar(others | content))
    assert [row.state for row in vision.fetch(source)] == ["fetched"] * 3
    assert files_under(folder.parent) == {"data", "data/tiny-bin"} | {f"data/tiny-bin/{f}" for f in CIFAR_CONTENT}
    assert torch.equal(vision.load(source).y_test, torch.from_numpy(CIFAR_TEST[:, 0]).long())


def test_an_archive_that_links_or_lacks_a_file_is_refused(folder, cifar, mirror, tmp_path):
    (tmp_path / "secret").write_bytes(CIFAR_CONTENT["test.bin"])
    content = {f"tiny-bin/{file}": data for file, data in CIFAR_CONTENT.items() if file != "test.bin"}
    source = serve_cifar(mirror, cifar, tar(content, {"tiny-bin/test.bin": str(tmp_path / "secret")}))
    with pytest.raises(DataError, match=r"tiny.tar.gz: test.bin is missing"):
        vision.fetch(source)
    assert files_under(folder) == {"tiny-bin"}


@pytest.mark.parametrize("lie", ["cut", "other", "not an archive", "cut inside"])
def test_a_lying_archive_is_refused(folder, cifar, mirror, lie):
    whole = tar({f"tiny-bin/{file}": data for file, data in CIFAR_CONTENT.items()})
    source = serve_cifar(mirror, cifar, whole)
    if lie == "cut":
        mirror.pages["/tiny.tar.gz"] = ("cut", whole)
    elif lie == "other":
        mirror.pages["/tiny.tar.gz"] = ("serve", tar({"tiny-bin/test.bin": b"x"}))
    else:  # even where the checksum holds
        source = serve_cifar(mirror, cifar, b"not an archive" if lie == "not an archive" else whole[: len(whole) // 2])
    expected = {"other": "expected an archive with MD5", "not an archive": "cannot be unpacked", "cut": "Incomplete"}
    with pytest.raises(DataError, match=expected.get(lie, "cannot be unpacked")):
        vision.fetch(source)
    assert files_under(folder) == {"tiny-bin"}


def test_an_unwritable_folder_is_named(tmp_path, monkeypatch, arrays, idx, mirror):
    (tmp_path / "file").write_bytes(b"a file where the folder should be")
    monkeypatch.setenv("PAPER_LIB_DATA", str(tmp_path / "file"))
    with pytest.raises(DataError, match="cannot write to") as error:
        vision.fetch(serve_idx(mirror, idx, arrays))
    assert str(tmp_path / "file" / "tiny") in str(error.value)
    assert mirror.asked == []


def test_two_processes_may_fetch_at_once(folder, arrays, idx, cifar, mirror):
    sources = [
        serve_idx(mirror, idx, arrays),
        serve_cifar(mirror, cifar, tar({f"tiny-bin/{file}": data for file, data in CIFAR_CONTENT.items()})),
    ]
    for path, (_, body) in mirror.pages.items():
        mirror.pages[path] = ("together", body)
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=vision.fetch, args=(source,)) for source in sources for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert [worker.exitcode for worker in workers] == [0] * 4
    for source in sources:
        assert {row.state for row in vision.verify(source)} == {"verified"}
    assert not [name for name in files_under(folder) if ".part" in name]


# --- the real thing


@pytest.mark.real_data
@pytest.mark.parametrize("name", vision.NAMES)
def test_the_published_sets(name):
    absent = [row.detail for row in vision.status(name) if row.state == "missing"]
    if absent:
        pytest.skip(f"{name} is not in {vision.data_folder()}: {'; '.join(absent)}")
    data = vision.load(name)
    train = 60000 if "mnist" in name else 50000
    size = (1, 28, 28) if "mnist" in name else (3, 32, 32)
    classes = 100 if name == "cifar-100" else 10
    assert data.x_train.shape == (train, *size) and data.x_test.shape == (10000, *size)
    assert len(data.class_names) == len(data.y_train.unique()) == len(data.y_test.unique()) == classes
    if name == "mnist":  # the first labels, known from any tutorial
        assert data.y_train[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    else:
        assert data.y_test.bincount().tolist() == [10000 // classes] * classes
