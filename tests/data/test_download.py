"""Downloads from a local server: complete, interrupted, tampered with and missing."""

import hashlib
import socket
import stat
import struct
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from smoothcert.data.download import SOURCES, DownloadSource, KnownFile, fetch_dataset, unpack_arrays
from smoothcert.dataset_names import DOWNLOADABLE
from smoothcert.errors import SmoothcertError, UsageError

CONTENT = bytes(range(256)) * 4096
KNOWN = KnownFile(len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path.startswith("/missing/"):
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        broken = self.path.startswith(("/cut/", "/reset/"))
        self.wfile.write(CONTENT[: len(CONTENT) // 2] if broken else CONTENT)
        if self.path.startswith("/reset/"):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as instance:
        threading.Thread(target=instance.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{instance.server_port}"
        instance.shutdown()


def fetch(tmp_path, *addresses, known=KNOWN, progress=None):
    return fetch_dataset("mnist", tmp_path, progress, {"mnist": DownloadSource(addresses, "mnist", {"a.gz": known})})


def test_a_whole_file_arrives_with_progress(server, tmp_path):
    seen = []
    (path,) = fetch(tmp_path, f"{server}/good/", progress=lambda *event: seen.append(event))
    assert path.read_bytes() == CONTENT
    assert seen[-1] == ("a.gz", len(CONTENT), len(CONTENT))
    seen.clear()
    fetch(tmp_path, "http://127.0.0.1:9/", progress=lambda *event: seen.append(event))
    assert not seen, "what is there and right is not fetched again"


@pytest.mark.parametrize("place", ["missing", "cut", "reset"])
def test_a_second_address_is_tried(server, tmp_path, place):
    (path,) = fetch(tmp_path, f"{server}/{place}/", f"{server}/good/")
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("place", "known", "message"),
    [
        ("cut", KNOWN, "could not be downloaded"),
        ("reset", KNOWN, "could not be downloaded.*reset"),
        ("missing", KNOWN, "Not Found"),
        ("good", KnownFile(len(CONTENT), "0" * 64), "expected a file with SHA-256 000"),
        ("good", KnownFile(len(CONTENT), "0" * 32), "expected a file with MD5 000"),
        ("good", KnownFile(1000, KNOWN.checksum), "expected a file of 1,000 bytes, but got more"),
        ("good", KnownFile(2 * len(CONTENT), KNOWN.checksum), "could not be downloaded"),
    ],
)
def test_never_half_a_file(server, tmp_path, place, known, message):
    with pytest.raises(SmoothcertError, match=message):
        fetch(tmp_path, f"{server}/{place}/", known=known)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_no_network_says_which_files_go_where(tmp_path):
    with pytest.raises(SmoothcertError, match=r"download a.gz, copy to .*mnist"):
        fetch(tmp_path, "http://127.0.0.1:9/")


def test_a_damaged_file_is_fetched_again(server, tmp_path):
    (path,) = fetch(tmp_path, f"{server}/good/")
    path.write_bytes(b"damaged")
    fetch(tmp_path, f"{server}/good/")
    assert path.read_bytes() == CONTENT


def test_what_cannot_be_fetched(tmp_path):
    with pytest.raises(UsageError, match="registered users"):
        fetch_dataset("imagenet", tmp_path)
    with pytest.raises(UsageError, match="part of the package"):
        fetch_dataset("mnist-mini", tmp_path)
    with pytest.raises(UsageError, match="did you mean 'cifar10'"):
        fetch_dataset("cifar11", tmp_path)


def test_every_source_is_encrypted_and_names_sizes_and_checksums():
    for source in SOURCES.values():
        assert all(address.startswith("https://") for address in source.addresses)
        for known in source.files.values():
            assert known.size > 0
            assert len(known.checksum) == {"sha256": 64, "md5": 32}[known.algorithm]


@pytest.mark.parametrize("kind", ["link", "above", "absolute", "two slashes", "fifo"])
@pytest.mark.parametrize("suffix", [".tar", ".zip"])
def test_archives_hold_plain_files_only(tmp_path, kind, suffix):
    names = {"above": "../evil.npy", "absolute": "/evil.npy", "two slashes": f"/{tmp_path}/evil.npy"}
    archive, name = tmp_path / f"set{suffix}", names.get(kind, "set/a.npy")
    if suffix == ".zip":
        member = zipfile.ZipInfo(name)
        member.external_attr = {"link": stat.S_IFLNK, "fifo": stat.S_IFIFO}.get(kind, stat.S_IFREG) << 16
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr(member, b"/etc/passwd")
    else:
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = {"link": tarfile.SYMTYPE, "fifo": tarfile.FIFOTYPE}.get(kind, tarfile.REGTYPE), "x"
        with tarfile.open(archive, "w") as tar:
            tar.addfile(entry)
    with pytest.raises(SmoothcertError, match="expected (only )?regular files"):
        unpack_arrays(archive, tmp_path / "set")
    assert sorted(path.name for path in tmp_path.iterdir()) == [archive.name], "nothing else is left"


def test_the_names_without_torch_are_those_of_the_sources():
    assert sorted(DOWNLOADABLE) == sorted(SOURCES)
