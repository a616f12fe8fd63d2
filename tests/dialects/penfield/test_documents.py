"""Documents: every format, its chunks as memories, and files that mean harm."""

from __future__ import annotations

import io
import json
import sys
import zipfile
import zlib
from pathlib import Path

import docx
import httpx
import pypdf
import pytest
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

from commonplace.errors import InvalidInput
from commonplace.server.request import MOST_CONTAINERS, MOST_DEPTH
from commonplace.text import files
from penfield.test_rest import MISSING, data, failure, relate, store

WORDS = "The lighthouse keeper lights the lantern at dusk."
EVIL = '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "lol"><!ENTITY b "&a;&a;&a;&a;&a;">\
<!ENTITY c SYSTEM "file:///etc/passwd">]>'


def pdf(text: str) -> bytes:
    writer = pypdf.PdfWriter()
    page = writer.add_blank_page(300, 300)
    font = DictionaryObject({
        NameObject("/Type"): NameObject("/Font"), NameObject("/Subtype"): NameObject("/Type1"),
        NameObject("/BaseFont"): NameObject("/Helvetica"),
    })  # fmt: skip
    fonts = DictionaryObject({NameObject("/F1"): font})
    page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
    stream = DecodedStreamObject()
    stream.set_data(f"BT /F1 12 Tf 10 100 Td ({text}) Tj ET".encode())
    page[NameObject("/Contents")] = writer._add_object(stream)
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def word(text: str) -> bytes:
    document = docx.Document()
    document.add_heading("The keeper", 1)
    document.add_paragraph(text)
    table = document.add_table(1, 2)
    table.cell(0, 0).text, table.cell(0, 1).text = "left", "right"
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def packed(members: dict[str, bytes | str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def epub(page: str, container: str = "") -> bytes:
    return packed({
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": container or
        '<container><rootfiles><rootfile full-path="OEBPS/book.opf"/></rootfiles></container>',
        "OEBPS/book.opf": '<package><manifest><item id="one" href="one.xhtml"/></manifest>'
        '<spine><itemref idref="one"/></spine></package>',
        "OEBPS/one.xhtml": page,
    })  # fmt: skip


PAGE = f"<html><head><title>x</title><script>bad()</script></head><body><h1>Keeper</h1>\
<p>{WORDS}</p></body></html>"
FORMATS: dict[str, bytes] = {
    "a.txt": WORDS.encode(),
    "a.md": f"# Keeper\n\n{WORDS}".encode(),
    "a.html": PAGE.encode(),
    "a.json": json.dumps({"text": WORDS}).encode(),
    "a.csv": f"who,what\nkeeper,{WORDS}".encode(),
    "a.yaml": f"text: {WORDS}".encode(),
    "a.py": f"# {WORDS}".encode(),
    "a.js": f"// {WORDS}".encode(),
    "a.ts": f"// {WORDS}".encode(),
    "a.pdf": pdf(WORDS),
    "a.docx": word(WORDS),
    "a.epub": epub(PAGE),
}


def upload(rest: httpx.Client, name: str, content: bytes, **form: str) -> httpx.Response:
    return rest.post("/documents/upload", files={"file": (name, content)}, data=form)


@pytest.mark.parametrize("name", FORMATS)
def test_the_words_of_every_format_are_found(rest: httpx.Client, name: str) -> None:
    made = data(upload(rest, name, FORMATS[name], metadata='{"shelf": 3}'), 201)
    assert made.keys() == {
        "id", "filename", "file_type", "content_type", "file_size", "content_hash", "status",
        "chunk_count", "metadata", "created_at", "updated_at",
    }  # fmt: skip
    assert (made["filename"], made["metadata"]) == (name, {"shelf": 3})
    assert made["chunk_count"] >= 1
    body = {"query": "lighthouse keeper lantern", "source_types": ["document_upload"]}
    found = data(rest.post("/search/hybrid", json=body))
    item = found["items"][0]
    assert WORDS in item["content"].replace("\n", " ")
    assert item["source_type"] == "document_upload"
    assert item["trust"] == "external"
    assert (item["chunk_index"], item["total_chunks"]) == (0, made["chunk_count"])
    assert "bad()" not in json.dumps(found)


def test_a_chunk_comes_with_its_neighbours(rest: httpx.Client) -> None:
    text = " ".join(f"Sentence {i} tells of harbour{i} and nothing else." for i in range(60))
    made = data(upload(rest, "long.txt", text.encode()), 201)
    assert made["chunk_count"] > 4
    body = {"query": "harbour30", "include_neighbors": 1}
    item = data(rest.post("/search/hybrid", json=body))["items"][0]
    assert item["content"] in item["content_with_context"]
    assert item["content_with_context"] in text
    assert len(item["content_with_context"]) > len(item["content"])
    bare = data(rest.post("/search/hybrid", json={**body, "include_neighbors": 0}))["items"][0]
    assert bare["content_with_context"] == bare["content"]
    vector = data(rest.post("/search/vector", json=body))["items"][0]
    assert vector["total_chunks"] == made["chunk_count"]


def test_the_same_file_again_is_the_one_that_is_there(rest: httpx.Client) -> None:
    first = data(upload(rest, "a.txt", b"the same"), 201)
    again = data(upload(rest, "b.txt", b"the same"), 201)
    assert again["id"] == first["id"]
    assert again["metadata"]["duplicate_upload"] is True
    assert "duplicate_upload" not in first["metadata"]
    assert data(rest.get("/documents"))["pagination"]["total"] == 1


def test_documents_are_listed_read_downloaded_and_deleted(rest: httpx.Client) -> None:
    html = FORMATS["a.html"]
    made = data(upload(rest, "päge.html", html), 201)
    other = data(upload(rest, "b.txt", b"other"), 201)
    assert [one["id"] for one in data(rest.get("/documents"))["items"]] == [
        other["id"], made["id"],
    ]  # fmt: skip
    path = f"/documents/{made['id']}"
    assert "chunks" not in data(rest.get(path))
    (chunk,) = data(rest.get(path, params={"include_chunks": True}))["chunks"]
    assert chunk["metadata"] == {"document_id": made["id"], "filename": "päge.html"}
    assert data(rest.get("/search/stats"))["total_documents"] == 2
    response = rest.get(f"{path}/download")
    assert response.content == html
    assert response.headers["content-disposition"].startswith("attachment;")
    assert "p%C3%A4ge.html" in response.headers["content-disposition"]
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["content-security-policy"] == "sandbox; default-src 'none'"
    failure(rest.post(f"{path}/reprocess"), 501, "NOT_IMPLEMENTED")
    link = relate(rest, chunk["id"], store(rest, "a note")["id"])["id"]
    assert rest.delete(path).status_code == 204
    for gone in (path, f"{path}/download"):
        failure(rest.get(gone), 404, "RES_DOCUMENT_NOT_FOUND")
    failure(rest.delete(path), 404, "RES_DOCUMENT_NOT_FOUND")
    failure(rest.get(f"/memories/{chunk['id']}"), 404, "RES_MEMORY_NOT_FOUND")
    failure(rest.get(f"/relationships/{link}"), 404, "RES_NOT_FOUND")
    assert data(rest.post("/search/hybrid", json={"query": "lighthouse"}))["items"] == []
    assert data(upload(rest, "again.html", html), 201)["id"] != made["id"]
    failure(rest.get(f"/documents/{MISSING}"), 404, "RES_DOCUMENT_NOT_FOUND")


def test_an_artifact_is_no_document(rest: httpx.Client) -> None:
    body = {"path": "/a.txt", "content": "x"}
    artifact = data(rest.post("/artifacts", json=body), 201)["artifact_id"]
    failure(rest.get(f"/documents/{artifact}"), 404, "RES_DOCUMENT_NOT_FOUND")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.exe", b"MZ"), ("a.doc", b"\xd0\xcf\x11\xe0"), ("noextension", b"text"),
        ("a.txt", b""), ("a.txt", b"  \n"), ("a.txt", b"\xff\xfe\x00"), ("a.txt", b"a\x00b"),
        ("a.pdf", b"no pdf"), ("a.pdf", b"%PDF-1.4 broken"), ("a.docx", b"PK\x03\x04broken"),
        ("a.docx", packed({"a.txt": "no document"})), ("a.epub", packed({"a.txt": "no book"})),
        ("..", b"x"), ("a.svg", b"<svg/>"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_422_and_leaves_nothing(
    rest: httpx.Client, name: str, content: bytes
) -> None:
    assert upload(rest, name, content).status_code == 422
    assert data(rest.get("/documents"))["items"] == []
    assert data(rest.get("/memories"))["items"] == []


def test_the_old_word_format_is_refused_with_what_to_do(rest: httpx.Client) -> None:
    word = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)
    for name in ("letter.doc", "LETTER.DOC"):
        told = failure(upload(rest, name, word), 422, "VAL_VALIDATION_FAILED")
        assert "Save it as .docx." in told["message"]
        assert told["field_errors"].keys() == {"file"}
    assert data(rest.get("/documents"))["items"] == []


def test_the_form_must_hold_a_file(rest: httpx.Client) -> None:
    response = rest.post("/documents/upload", files={"other": ("a.txt", b"x")})
    failure(response, 422, "VAL_FIELD_REQUIRED")
    response = upload(rest, "a.txt", b"text", metadata="[1]")
    failure(response, 422, "VAL_FIELD_INVALID")
    response = rest.post("/documents/upload", json={"file": "x"})
    assert response.status_code == 415


@pytest.mark.parametrize(
    "body",
    [
        b"x",
        b"--x\r\n" + b"A: b\r\n" * 10_000,
        b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n' * 11 + b"--x--\r\n",
        b"--x\r\nContent-Disposition: form-data\r\n\r\n1\r\n--x--\r\n",
    ],
)
def test_a_form_that_cannot_be_read_is_refused_in_the_format_of_the_contract(
    rest: httpx.Client, body: bytes
) -> None:
    kind = {"content-type": "multipart/form-data; boundary=x"}
    response = rest.post("/documents/upload", content=body, headers=kind)
    failure(response, 400, "VAL_VALIDATION_FAILED")


def test_metadata_may_have_as_many_objects_as_any_body(rest: httpx.Client) -> None:
    def sent(lists: int) -> httpx.Response:
        return upload(rest, "a.txt", b"text", metadata='{"a":[' + "[]," * (lists - 1) + "[]]}")

    assert sent(MOST_CONTAINERS - 1).status_code == 413
    deep = "[" * MOST_DEPTH + "]" * MOST_DEPTH
    told = upload(rest, "a.txt", b"text", metadata=f'{{"a":{deep}}}')
    assert told.status_code == 400 and f"{MOST_DEPTH} levels" in told.text
    assert data(rest.get("/documents"))["items"] == []
    data(sent(MOST_CONTAINERS - 2), 201)


def test_twenty_megabytes_fit_and_no_more(rest: httpx.Client) -> None:
    line = b"\n" * (20 * 1024 * 1024 - 4)
    assert data(upload(rest, "a.txt", b"text" + line), 201)["file_size"] == 20 * 1024 * 1024
    failure(upload(rest, "b.txt", b"text" + line + b"x"), 413, "VAL_FIELD_TOO_LONG")
    failure(upload(rest, "c.txt", b"x" * (22 * 1024 * 1024)), 413, "VAL_FIELD_TOO_LONG")


BOMBS: dict[str, tuple[str, dict[str, bytes | str], str]] = {
    "one huge member": ("a.docx", {"word/document.xml": b"0" * (60 * 1024 * 1024)}, "too large"),
    "a high ratio": ("a.epub", {"a": b"0" * 20_000_000}, "too large"),
    "many members": ("a.epub", {f"f{i}": b"x" for i in range(1_001)}, "more than 1,000"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_archives_that_unpack_to_too_much_are_refused(name: str) -> None:
    file, members, wrong = BOMBS[name]
    with pytest.raises(InvalidInput, match=wrong):
        files.text_of(file, packed(members))


def test_a_member_packed_twice_is_refused() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive, pytest.warns(UserWarning):
        archive.writestr("a", "one")
        archive.writestr("a", "two")
    with pytest.raises(InvalidInput, match="same name"):
        files.text_of("a.epub", out.getvalue())


def test_entities_in_a_book_name_no_package() -> None:
    evil = EVIL + '<x><rootfile full-path="&c;"/>&b;</x>'
    with pytest.raises(InvalidInput, match=r"package document is missing|invalid XML"):
        files.text_of("a.epub", epub(PAGE, container=evil))


def test_a_page_that_unpacks_to_too_much_is_refused() -> None:
    bomb = zlib.compress(b"(x) Tj " * 20_000_000)
    head = f"<< /Length {len(bomb)} /Filter /FlateDecode >>\nstream\n".encode()
    plain = pdf("x")
    start, stop = plain.index(b"<<\n/Length"), plain.index(b"endstream")
    content = plain[:start] + head + bomb + b"\n" + plain[stop:]
    with pytest.raises(InvalidInput):
        files.text_of("a.pdf", content)


def test_a_page_of_nested_brackets_is_refused() -> None:
    with pytest.raises(InvalidInput, match="damaged"):
        files.text_of("a.pdf", pdf("x").replace(b"(x)", b"(x)" + b"[" * 20_000))


def test_external_entities_are_never_read() -> None:
    document = packed({
        **{name: zipfile.ZipFile(io.BytesIO(FORMATS["a.docx"])).read(name)
           for name in zipfile.ZipFile(io.BytesIO(FORMATS["a.docx"])).namelist()
           if name != "word/document.xml"},
        "word/document.xml": EVIL + '<w:document xmlns:w="http://schemas.openxmlformats.org/'
        'wordprocessingml/2006/main"><w:body><w:p><w:r><w:t>seen &c; &b;</w:t></w:r></w:p>'
        "</w:body></w:document>",
    })  # fmt: skip
    text, _ = files.text_of("a.docx", document)
    assert text.startswith("seen")
    assert "root:" not in text and "lollol" not in text


def test_a_member_that_climbs_out_is_never_written(tmp_path: Path) -> None:
    content = packed({"../../evil.txt": "x", "META-INF/container.xml": "<x/>"})
    with pytest.raises(InvalidInput):
        files.text_of("a.epub", content)
    assert list(tmp_path.parent.glob("**/evil.txt")) == []


def test_a_reader_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = (sys.executable, "-c", "import time; time.sleep(30)")
    monkeypatch.setattr(files, "COMMAND", endless)
    monkeypatch.setattr(files, "TIMEOUT", 0.3)
    with pytest.raises(InvalidInput, match="too long"):
        files.text_of("a.html", b"<p>x")
