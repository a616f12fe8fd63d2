"""What the server sends of the application: files from the package, and nothing else."""

from __future__ import annotations

import gzip
import json
import re
from importlib import resources

import pytest

from commonplace.web import pages
from server.harness import Running

PUBLIC = ["/viewer", "/viewer/", "/viewer/memories", "/viewer/memories/an-id", "/setup"]
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:;"
    " connect-src 'self'; manifest-src 'self'; worker-src 'self'; frame-src 'self';"
    " base-uri 'none'; form-action 'self'; frame-ancestors 'none';"
    " require-trusted-types-for 'script'"
)


def test_the_root_leads_to_the_viewer(server: Running) -> None:
    answer = server.client().request("GET", "/")
    assert (answer.status, answer.header("location")) == (302, "/viewer")


@pytest.mark.parametrize("path", PUBLIC)
def test_every_page_is_the_application_under_the_strict_policy(server: Running, path: str) -> None:
    for method in ("GET", "HEAD"):
        answer = server.client().request(method, path)
        assert answer.status == 200
        assert answer.header("content-type") == "text/html; charset=utf-8"
        assert answer.header("content-security-policy") == POLICY
        assert answer.header("x-frame-options") == "DENY"
    assert answer.header("etag")
    assert server.client().request("POST", path, {}).status == 405


def test_a_file_is_sent_once(server: Running) -> None:
    client = server.client()
    for packed in ("gzip", "identity", "gzip;q=0"):
        asked = {"accept-encoding": packed}
        first = client.request("GET", "/viewer/assets/app.js", headers=asked)
        assert first.status == 200
        assert (first.header("content-encoding") == "gzip") is (packed == "gzip")
        body = gzip.decompress(first.body) if packed == "gzip" else first.body
        assert body == (resources.files("commonplace.web") / "static" / "app.js").read_bytes()
        known = {**asked, "if-none-match": f'"other", {first.header("etag")}'}
        again = client.request("GET", "/viewer/assets/app.js", headers=known)
        assert (again.status, again.body) == (304, b"")
        other = client.request("GET", "/viewer/assets/app.js", headers={"if-none-match": '"x"'})
        assert other.status == 200


@pytest.mark.parametrize(
    "name",
    ["nothing.js", "../pages.py", "%2e%2e/pages.py", "..%2f__init__.py", "/etc/passwd", "rooms/",
     "rooms", "", "app.js/", "APP.JS", "app.js%00"],
)  # fmt: skip
def test_no_other_file_is_served(server: Running, name: str) -> None:
    answer = server.client().request("GET", f"/viewer/assets/{name}")
    assert answer.status in (400, 404) or answer.body.startswith(b"<!doctype html>")


def test_nothing_is_asked_of_other_servers() -> None:
    """No address of another server in any file; SVG's namespace is a name."""
    for name, asset in pages.assets().items():
        if asset.compressed is not None:
            text = asset.body.decode().replace("http://www.w3.org/2000/svg", "")
            assert not re.search(r"https?://[a-z0-9]|[\"'(]//[a-z]", text), name


def test_nothing_parses_a_text_as_html() -> None:
    for name, asset in pages.assets().items():
        if name.endswith(".js"):
            found = re.findall(
                r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\(|"
                r"new Function|srcdoc|createContextualFragment",
                asset.body.decode(),
            )
            assert found == [], name


def test_the_manifest_and_its_icons_are_there(server: Running) -> None:
    client = server.client()
    for path in ("/manifest.json", "/viewer/manifest.json"):
        manifest = json.loads(client.request("GET", path).body)
    assert (manifest["start_url"], manifest["display"]) == ("/viewer", "standalone")
    assert {(icon["sizes"], icon["purpose"]) for icon in manifest["icons"]} == {
        ("192x192", "any"), ("512x512", "any"), ("192x192", "maskable"), ("512x512", "maskable"),
    }  # fmt: skip
    for icon in manifest["icons"]:
        answer = client.request("GET", icon["src"])
        size = int.from_bytes(answer.body[16:20])
        assert (answer.header("content-type"), f"{size}x{size}") == ("image/png", icon["sizes"])
    assert client.request("GET", "/favicon.ico").header("content-type") == "image/x-icon"


def test_the_worker_keeps_every_file_and_no_data(server: Running) -> None:
    client = server.client()
    sent = client.request("GET", "/sw.js")
    assert sent.body == client.request("GET", "/viewer/sw.js").body
    told = json.loads(re.match(rb"const SHELL = (.*);\n", sent.body)[1])  # type: ignore[index]
    assert len(told["version"]) == 16
    assert set(told["files"]) > {"/viewer", "/viewer/assets/app.js", "/viewer/assets/style.css"}
    for file in told["files"]:
        assert client.request("GET", file).status == 200
        assert not file.startswith(("/api", "/graph", "/ws", "/session"))


def test_a_link_on_another_site_leads_to_a_page_and_to_no_data(server: Running) -> None:
    headers = {
        "sec-fetch-site": "cross-site",
        "sec-fetch-mode": "navigate",
        "sec-fetch-dest": "document",
    }
    client = server.client()
    for path in ("/", *PUBLIC):
        assert client.request("GET", path, headers=headers).status in (200, 302)
        framed = {**headers, "sec-fetch-dest": "iframe"}
        assert client.request("GET", path, headers=framed).status == 403
    for path in ("/api/console/me", "/session"):
        assert client.request("GET", path, headers=headers).status == 403
