"""Downloads from a local server: complete, interrupted, tampered with and missing."""

import hashlib
import socket
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from smoothcert.data.download import SOURCES, DownloadSource, fetch_dataset
from smoothcert.errors import SmoothcertError, UsageError

CONTENT = bytes(range(256)) * 4096
MD5 = hashlib.md5(CONTENT).hexdigest()


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


def fetch(tmp_path, *addresses, md5=MD5, progress=None):
    return fetch_dataset("mnist", tmp_path, progress, {"mnist": DownloadSource(addresses, "mnist", {"a.gz": md5})})


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
    ("place", "md5", "message"),
    [
        ("cut", MD5, "could not be downloaded"),
        ("reset", MD5, "could not be downloaded.*reset"),
        ("missing", MD5, "Not Found"),
        ("good", "0" * 32, "expected a file with MD5 000"),
    ],
)
def test_never_half_a_file(server, tmp_path, place, md5, message):
    with pytest.raises(SmoothcertError, match=message):
        fetch(tmp_path, f"{server}/{place}/", md5=md5)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_no_network_says_which_files_go_where(tmp_path):
    with pytest.raises(SmoothcertError, match=r"put a.gz into .*mnist"):
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


def test_every_source_names_a_checksum():
    assert all(len(md5) == 32 for source in SOURCES.values() for md5 in source.files.values())
