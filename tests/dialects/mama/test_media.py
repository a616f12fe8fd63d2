"""Uploads and media over real HTTP: limits, types, images, and how they are served."""

from __future__ import annotations

import io
import json
import os
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from commonplace.dialects.mama.platform import media, service

from .conftest import Web, serving

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 40


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setattr(service, "UPLOADS_PER_MINUTE", 1_000)
    with serving(tmp_path / "data", None, body_bytes=30_000_000) as made:
        yield made


def upload(web: Web, name: str, data: bytes, kind: str | None = None) -> httpx.Response:
    part: Any = (name, data) if kind is None else (name, data, kind)
    return web.client.post(web.url + "/api/upload", files={"file": part})


def refused(response: httpx.Response, status: int, code: str) -> None:
    assert response.status_code == status, response.text
    assert response.json()["code"] == code


def archive(*names: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        for name in names:
            made.writestr(name, "x")
    return out.getvalue()


def picture(size: tuple[int, int], form: str, **more: Any) -> bytes:
    """An image of noise, which no format makes small."""
    out = io.BytesIO()
    Image.effect_noise(size, 90).convert("RGB").save(out, form, **more)
    return out.getvalue()


def test_a_file_is_uploaded_and_served(web: Web) -> None:
    answer = upload(web, "photo.PNG", PNG, "image/png")

    told = answer.json()
    assert told.keys() == {"success", "filename", "mediaUrl", "size", "contentType"}
    assert re.fullmatch(r"\d{13}_photo\.png", told["filename"])
    assert told["mediaUrl"] == f"/api/media/{told['filename']}"
    assert (told["success"], told["size"], told["contentType"]) == (True, len(PNG), "image/png")
    served = web.get(told["mediaUrl"])
    assert served.content == PNG
    assert served.headers["content-type"] == "image/png"
    assert served.headers["content-disposition"].startswith("inline")
    assert served.headers["x-content-type-options"] == "nosniff"
    assert served.headers["content-security-policy"] == "sandbox; default-src 'none'"
    down = web.get(f"/api/media/download/{told['filename']}")
    assert down.content == PNG
    assert down.headers["content-type"] == "application/octet-stream"
    assert down.headers["content-disposition"].startswith("attachment")
    copy = web.library.path / "mama" / "workspace" / "media" / "inbound" / told["filename"]
    assert copy.read_bytes() == PNG


def test_it_survives_a_restart_and_the_loss_of_its_copy(tmp_path: Path) -> None:
    with serving(tmp_path / "data", None) as first:
        name = upload(first, "a.txt", b"text").json()["filename"]
        (first.library.path / "mama" / "workspace" / "media" / "inbound" / name).unlink()
    with serving(tmp_path / "data", None) as again:
        assert again.get(f"/api/media/{name}").content == b"text"


GOOD = [
    ("a.jpg", b"\xff\xd8\xff\xe0", "image/jpeg"), ("a.jpeg", b"\xff\xd8\xff\xe0", "image/jpg"),
    ("a.gif", b"GIF89a", "image/gif"), ("a.webp", b"RIFF\0\0\0\0WEBP", "image/webp"),
    ("a.svg", b"<svg xmlns='http://www.w3.org/2000/svg'/>", "image/svg+xml"),
    ("a.pdf", b"%PDF-1.7", "application/pdf"), ("a.txt", "Grüße".encode(), "text/plain"),
    ("a.csv", b"a,b\n1,2", "text/csv"), ("a.md", b"# Hi", "text/markdown"),
    ("a.md", b"# Hi", "text/x-markdown"), ("a.md", b"# Hi", "text/plain"),
    ("a.html", b"<p>", "text/html"), ("a.htm", b"<p>", "text/html"),
    ("a.json", b"{}", "application/json"), ("a.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", None),
    ("a.xls", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "application/vnd.ms-excel"),
    ("a.ppt", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "application/octet-stream"),
    ("a.docx", archive("word/document.xml"), None), ("a.xlsx", archive("xl/a.xml"), None),
    ("a.pptx", archive("ppt/a.xml"), None), ("a.zip", archive("a"), "application/zip"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "data", "kind"), GOOD)
def test_types_that_agree_are_accepted(name: str, data: bytes, kind: str | None) -> None:
    assert media.check_upload(name, kind or "", data) == name.rpartition(".")[2]


BAD = [
    ("a.exe", b"MZ", "application/octet-stream"), ("a", b"x", "text/plain"),
    ("a.txt", b"MZ\0\0", "text/plain"), ("a.txt", b"\xff\xfe", "text/plain"),
    ("a.png", b"\xff\xd8\xff", "image/png"), ("a.png", PNG, "text/html"),
    ("a.txt", b"x", "image/png"), ("a.svg", b"<p>", "image/svg+xml"),
    ("a.json", b"{", "application/json"), ("a.docx", archive("xl/a"), None),
    ("a.docx", b"PK\x03\x04 broken", None), ("a.webp", b"RIFF\0\0\0\0WAVE", "image/webp"),
    ("a.txt.exe", b"x", "text/plain"), (".txt", b"x", "text/plain"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "data", "kind"), BAD)
def test_types_that_do_not_agree_are_refused(
    web: Web, name: str, data: bytes, kind: str | None
) -> None:
    refused(upload(web, name, data, kind or ""), 415, "UNSUPPORTED_TYPE")
    assert not (web.library.path / "mama" / "workspace").exists()


def test_a_secret_in_a_text_is_in_no_copy_of_it(web: Web) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"
    told = upload(web, "notes.txt", f"token = {secret}\n".encode()).json()
    served = web.get(told["mediaUrl"]).content
    copy = web.library.path / "mama" / "workspace" / "media" / "inbound" / told["filename"]
    assert secret.encode() not in served and b"[masked" in served
    assert copy.read_bytes() == served and told["size"] == len(served)


def test_names_are_made_safe(web: Web) -> None:
    told = upload(web, "../../ünsafe name;.txt", b"x").json()
    assert re.fullmatch(r"\d{13}__nsafe_name_\.txt", told["filename"])
    long = upload(web, "a" * 150 + ".txt", b"x").json()["filename"]
    assert re.fullmatch(r"\d{13}_a{100}\.txt", long)


def test_no_file_is_refused(web: Web) -> None:
    kind = {"content-type": "multipart/form-data; boundary=x"}
    unread = web.client.post(web.url + "/api/upload", content=b"x", headers=kind)
    refused(unread, 400, "BAD_REQUEST")
    refused(web.client.post(web.url + "/api/upload", files={"other": ("a.txt", b"x")}), 400,
            "BAD_REQUEST")  # fmt: skip
    refused(web.client.post(web.url + "/api/upload", json={}), 400, "BAD_REQUEST")


def test_twenty_megabytes_are_accepted_and_one_byte_more_is_not(web: Web) -> None:
    data = b"x" * 20_971_520
    told = upload(web, "a.txt", data).json()
    assert told["size"] == 20_971_520
    assert web.get(told["mediaUrl"]).content == data
    refused(upload(web, "a.txt", data + b"x"), 413, "TOO_LARGE")


def test_the_limit_of_uploads_covers_any_minute() -> None:
    clock = iter([*range(10), 59, 59, 60, 60])
    limit = service.UploadLimit(lambda: next(clock))
    assert [limit.take("one") for _ in range(10)] == [0] * 10
    assert (limit.take("one"), limit.take("other")) == (1, 0)
    assert (limit.take("one"), limit.take("one")) == (0, 1), "the second one was a second later"


def test_ten_uploads_a_minute_are_accepted(tmp_path: Path) -> None:
    with serving(tmp_path / "data", None) as web:
        for number in range(10):
            answer = upload(web, "a.txt" if number else "a.exe", b"x")
            assert answer.status_code == (200 if number else 415), "refused ones count"
        over = upload(web, "a.txt", b"x")
        refused(over, 429, "RATE_LIMITED")
        assert int(over.headers["retry-after"]) > 0


# Images


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
def test_a_large_image_is_made_smaller_in_its_own_format(web: Web, form: str) -> None:
    data = picture((1600, 1200), form, **({"quality": 100} if form != "PNG" else {}))
    assert len(data) > 512_000
    told = upload(web, f"a.{form.lower()}".replace("jpeg", "jpg"), data).json()

    result = web.get(told["mediaUrl"]).content
    assert told["size"] == len(result) < len(data)
    with Image.open(io.BytesIO(result)) as image:
        assert (image.format, image.size) == (form, (1024, 768))


@pytest.mark.parametrize("mode", ["P", "L"])
def test_what_is_transparent_stays_transparent(web: Web, mode: str) -> None:
    image = Image.frombytes("L", (1600, 1200), os.urandom(1600 * 1200)).point(lambda v: max(v, 1))
    image.paste(0, (0, 0, 800, 1200))
    if mode == "P":
        image = image.copy()
        image.putpalette([value for gray in range(256) for value in (gray, gray, gray)])
    out = io.BytesIO()
    image.save(out, "PNG", transparency=0)
    result = web.get(upload(web, "a.png", out.getvalue()).json()["mediaUrl"]).content
    with Image.open(io.BytesIO(result)) as smaller:
        alpha = smaller.convert("RGBA").getchannel("A")
    assert (alpha.getpixel((100, 100)), alpha.getpixel((900, 100))) == (0, 255)


def test_orientation_is_applied_and_metadata_dropped(web: Web) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    exif[0x010E] = "secret place"
    data = picture((1600, 800), "JPEG", quality=100, exif=exif)
    result = web.get(upload(web, "a.jpg", data).json()["mediaUrl"]).content
    with Image.open(io.BytesIO(result)) as image:
        assert image.size == (512, 1024)
        assert not image.getexif()
    assert b"secret place" not in result


def test_a_small_image_stays_as_it_is(web: Web) -> None:
    data = picture((300, 300), "PNG")
    assert len(data) <= 512_000
    assert web.get(upload(web, "a.png", data).json()["mediaUrl"]).content == data


@pytest.mark.parametrize(
    ("form", "padding"), [("PNG", 512_001), ("PNG", 0), ("GIF", 0), ("WEBP", 0)]
)
def test_an_image_with_too_many_pixels_is_refused(web: Web, form: str, padding: int) -> None:
    out = io.BytesIO()
    Image.new("L", (10_000, 5_001)).save(out, form)
    assert len(out.getvalue()) < 512_000, "small, but for what is added"
    data = out.getvalue() + b"\0" * padding
    refused(upload(web, f"bomb.{form.lower()}", data), 413, "TOO_LARGE")


def test_an_image_with_as_many_pixels_as_allowed_is_accepted(web: Web) -> None:
    out = io.BytesIO()
    Image.new("1", (10_000, 5_000)).save(out, "PNG")
    assert len(out.getvalue()) < 512_000
    assert upload(web, "large.png", out.getvalue()).status_code == 200


def test_a_damaged_image_is_refused(web: Web) -> None:
    refused(upload(web, "a.png", PNG + b"\0" * 600_000), 400, "VALIDATION_ERROR")


# Serving


@pytest.mark.parametrize(("name", "data"), [("a.svg", b"<svg><script/></svg>"), ("a.html", b"<p>")])
def test_what_could_run_as_a_script_is_downloaded(web: Web, name: str, data: bytes) -> None:
    served = web.get(upload(web, name, data).json()["mediaUrl"])
    assert served.headers["content-disposition"].startswith("attachment")
    assert served.headers["content-security-policy"].startswith("sandbox")


@pytest.mark.parametrize("name", ["missing.txt", "..", "%2e%2e%2fconfig.yaml", "a%5cb", "%2fetc"])
def test_other_names_are_not_found(web: Web, name: str) -> None:
    assert web.get(f"/api/media/{name}").status_code == 404


def test_what_an_agent_made_comes_before_what_was_uploaded(web: Web) -> None:
    name = upload(web, "a.txt", b"inbound").json()["filename"]
    outbound = web.library.path / "mama" / "workspace" / "media" / "outbound"
    outbound.mkdir(parents=True)
    (outbound / name).write_bytes(b"outbound")
    assert web.get(f"/api/media/{name}").content == b"outbound"


def test_the_audit_has_no_content(web: Web) -> None:
    from commonplace.engine.history import audit

    upload(web, "a.txt", b"private content")
    with web.library.lease("default") as space:
        rows = audit.listing(space.store, limit=10)
    row = next(row for row in rows if row.tool == "upload_media")
    assert "private" not in json.dumps(row.arguments) and "cHJpdm" not in json.dumps(row.arguments)
