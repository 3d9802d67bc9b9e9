"""What several files of tests share."""

import http.server
import threading

import pytest

from pcshrink.data.cifar10 import prepare as preparing


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """Neither the official address nor npm answer, unless a test says so."""
    monkeypatch.setattr(preparing, "OFFICIAL_URL", "http://127.0.0.1:9/cifar.tar.gz")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


@pytest.fixture
def own_cache(tmp_path_factory, monkeypatch):
    """What is remembered of shards goes to a folder of the test's own."""
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    return cache


@pytest.fixture
def serve(monkeypatch):
    """Serve one answer at the official address."""
    servers = []

    def start(body, length=None, status=200):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(status)
                if length != "none":
                    self.send_header("Content-Length", str(length or len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setattr(preparing, "OFFICIAL_URL", f"http://127.0.0.1:{server.server_port}/cifar.tar.gz")

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()
