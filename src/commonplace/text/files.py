"""Extract the text of an uploaded file.

The first bytes of a file must match its extension. Formats that need a parser are read in a
separate process with limited memory and time, because a malicious file may exhaust both. That
process is `python -m commonplace.text.files KIND`.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

from commonplace.errors import CommonplaceError, InvalidInput

MOST_BYTES = 20 * 1024 * 1024
MOST_MEMBERS = 1_000
MOST_UNPACKED_BYTES = 50 * 1024 * 1024
MOST_COMPRESSION_RATIO = 100
MOST_CHARS = 2_000_000
MOST_PAGES = 2_000
CPU_SECONDS = 20
MEMORY_BYTES = 1024 * 1024 * 1024
# environment variables for the parser process, without any secrets
ENVIRONMENT = ("PATH", "SYSTEMROOT")
TIMEOUT = CPU_SECONDS + 5.0
PARSERS = 4  # how many parser processes run at the same time
WAIT_SECONDS = 10.0  # how many seconds to wait for a free parser process
COMMAND = (sys.executable, "-I", "-m", "commonplace.text.files")

PLAIN_TYPES = {
    "txt": "text/plain", "md": "text/markdown", "json": "application/json", "csv": "text/csv",
    "yaml": "application/yaml", "yml": "application/yaml", "py": "text/x-python",
    "js": "text/javascript", "ts": "text/typescript",
}  # fmt: skip
PARSED_TYPES = {
    "pdf": "application/pdf",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "epub": "application/epub+zip",
    "html": "text/html",
    "htm": "text/html",
}
KNOWN_TYPES = {**PLAIN_TYPES, **PARSED_TYPES}
_parsers = threading.BoundedSemaphore(PARSERS)


class TooBusy(CommonplaceError):
    """Raised if too many files are being read at the same time; nothing was done."""

    code = "BUSY"


class Unreadable(ValueError):
    """Raised if a file cannot be read, with the reason for its sender."""


def extension_of(name: str) -> str:
    """Return the extension in lower case, without its dot."""
    _, dot, extension = name.rpartition(".")
    return extension.lower() if dot else ""


def kind_of(name: str, data: bytes) -> str:
    """Return the kind of a file, which is its extension.

    Raise InvalidInput if the kind is not supported, or the first bytes are not those of this kind.
    """
    extension = extension_of(name)
    if extension not in KNOWN_TYPES:
        said = f".{extension}" if extension else "no extension"
        hint = (
            "Save it as .docx." if extension == "doc" else f"Supported: {', '.join(KNOWN_TYPES)}."
        )
        raise InvalidInput(f"A file with {said} cannot be read.", hint=hint, field="file")
    begins = {"pdf": b"%PDF-", "docx": b"PK\x03\x04", "epub": b"PK\x03\x04"}.get(extension)
    fits = data[:1024].find(begins) >= 0 if extension == "pdf" and begins else (
        data.startswith(begins) if begins else b"\x00" not in data[:65_536])  # fmt: skip
    if not fits:
        raise InvalidInput(
            f"The content of the file is not that of a .{extension} file.", field="file"
        )
    return "html" if extension == "htm" else extension


def text_of(name: str, data: bytes) -> tuple[str, str]:
    """Return the text and media type of a file; raise InvalidInput if it cannot be read."""
    if len(data) > MOST_BYTES:
        raise InvalidInput(f"The file is larger than {MOST_BYTES:,} bytes.", field="file")
    kind = kind_of(name, data)
    text = _extract_in_process(kind, data) if kind in PARSED_TYPES else _decode_text(data)
    text = text.replace("\x00", "").replace("\r\n", "\n").strip()
    text = text.encode("utf-8", "replace").decode()
    if not text:
        raise InvalidInput("The file contains no text.", field="file")
    if len(text) > MOST_CHARS:
        raise InvalidInput(f"The file contains more than {MOST_CHARS:,} characters.", field="file")
    return text, KNOWN_TYPES[kind]


def _decode_text(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInput(
            "The file is not UTF-8 text.", hint="Save it as UTF-8.", field="file"
        ) from None


def _extract_in_process(kind: str, data: bytes) -> str:
    """Return the text that a separate process extracts from the file."""
    if not _parsers.acquire(timeout=WAIT_SECONDS):
        raise TooBusy("Too many files are being read.", hint="Try again in a minute.")
    try:
        ran = subprocess.run(  # noqa: S603 - our own module, a kind of our own table
            [*COMMAND, kind],
            input=data,
            capture_output=True,
            timeout=TIMEOUT,
            check=False,
            env={name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
        )
    except subprocess.TimeoutExpired:
        raise InvalidInput("Reading the file takes too long.", field="file") from None
    finally:
        _parsers.release()
    try:
        said = json.loads(ran.stdout)
    except ValueError:
        raise InvalidInput(
            "The file cannot be read: its parser ran out of memory or time.", field="file"
        ) from None
    if "text" not in said:
        raise InvalidInput(str(said.get("wrong", "The file cannot be read.")), field="file")
    return str(said["text"])


# --- in the parser process -----------------------------------------------------------------------


def read_pdf(data: bytes) -> str:
    """Return the text of each page."""
    import logging

    import pypdf

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    reader = pypdf.PdfReader(io.BytesIO(data))
    if reader.is_encrypted and not reader.decrypt(""):
        raise Unreadable("The file is encrypted.")
    if len(reader.pages) > MOST_PAGES:
        raise Unreadable(f"The file has more than {MOST_PAGES:,} pages.")
    return _join_parts(page.extract_text() for page in reader.pages)


def read_docx(data: bytes) -> str:
    """Return the paragraphs and the cells of tables, in their order."""
    import docx
    from docx.table import Table

    unzip(data)
    document = docx.Document(io.BytesIO(data))

    def parts() -> Iterator[str]:
        for block in document.iter_inner_content():
            if isinstance(block, Table):
                for row in block.rows:
                    yield " | ".join(cell.text for cell in row.cells)
            else:
                style = block.style.name if block.style is not None else ""
                level = style.removeprefix("Heading ") if style else ""
                mark = "#" * int(level) + " " if level in "123456" and level else ""
                yield mark + block.text

    return _join_parts(parts())


def read_epub(data: bytes) -> str:
    """Return the pages of the book in their reading order."""
    members = unzip(data)
    container = _parse_xml(members.get("META-INF/container.xml", b""))
    roots = container.xpath("//*[local-name()='rootfile']/@full-path")
    if not roots or roots[0] not in members:
        raise Unreadable("The file is not an EPUB: its package document is missing.")
    package = _parse_xml(members[roots[0]])
    folder = roots[0].rpartition("/")[0]
    items = {
        item.get("id"): item.get("href")
        for item in package.xpath("//*[local-name()='manifest']/*[local-name()='item']")
    }
    order = package.xpath("//*[local-name()='spine']/*[local-name()='itemref']/@idref")
    pages = (items.get(identity) for identity in order)
    return _join_parts(
        read_html(members[path])
        for page in pages
        if page and (path := _resolve_member(folder, page)) in members
    )


def _resolve_member(folder: str, name: str) -> str:
    from posixpath import join, normpath
    from urllib.parse import unquote

    return normpath(join(folder, unquote(name.partition("#")[0])))


def read_html(data: bytes) -> str:
    """Return the visible text of a page, with headings marked."""
    import lxml.html

    parser = lxml.html.HTMLParser(encoding="utf-8", no_network=True, huge_tree=False)
    root = lxml.html.document_fromstring(data, parser=parser) if data.strip() else None
    if root is None:
        return ""
    for element in root.xpath("//script|//style|//noscript|//template|//head|//comment()"):
        if element.getparent() is not None:
            element.drop_tree()
    lines: list[str] = []
    blocks = "//h1|//h2|//h3|//h4|//h5|//h6|//p|//li|//pre|//blockquote|//td|//th|//dt|//dd|//div"
    for element in root.xpath(blocks):
        element.tail = f"\n{element.tail or ''}"
        if element.tag in ("h1", "h2", "h3", "h4", "h5", "h6"):
            element.text = f"\n{'#' * int(element.tag[1])} {(element.text or '').lstrip()}"
        else:
            element.text = f"\n{element.text or ''}"
    for line in root.text_content().split("\n"):
        lines.append(" ".join(line.split()))
    return "\n".join(line for line in lines if line)


READERS: dict[str, Callable[[bytes], str]] = {
    "pdf": read_pdf,
    "docx": read_docx,
    "epub": read_epub,
    "html": read_html,
}


def _parse_xml(data: bytes) -> Any:
    """Parse XML without fetching or expanding entities."""
    from lxml import etree

    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, dtd_validation=False,
        huge_tree=False,
    )  # fmt: skip
    try:
        return etree.fromstring(data, parser=parser)
    except etree.XMLSyntaxError:
        raise Unreadable("The file contains invalid XML.") from None


def unzip(data: bytes) -> dict[str, bytes]:
    """Return the members of a zip file; raise Unreadable if there are too many or they are too
    large.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        infos = archive.infolist()
        if len(infos) > MOST_MEMBERS:
            raise Unreadable(f"The file contains more than {MOST_MEMBERS:,} members.")
        members: dict[str, bytes] = {}
        room = min(MOST_UNPACKED_BYTES, MOST_COMPRESSION_RATIO * max(len(data), 1))
        for info in infos:
            if info.is_dir():
                continue
            if info.filename in members:
                raise Unreadable("The file contains two members of the same name.")
            with archive.open(info) as member:  # The size in the header may be wrong.
                content = member.read(room + 1)
            room -= len(content)
            if room < 0:
                raise Unreadable("The file is too large when it is unpacked.")
            members[info.filename] = content
    return members


def _join_parts(parts: Iterator[str]) -> str:
    """Join the parts; raise Unreadable if they have too many characters."""
    found, size = [], 0
    for part in parts:
        size += len(part) + 1
        if size > MOST_CHARS:
            raise Unreadable(f"The file contains more than {MOST_CHARS:,} characters.")
        found.append(part)
    return "\n".join(found)


def confine_process() -> None:
    """Limit memory and CPU time, and forbid writing files, where the system can enforce it."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def main(kind: str) -> None:
    """Read a file from standard input, and write its text or an error as JSON."""
    data = sys.stdin.buffer.read(MOST_BYTES + 1)
    out = sys.stdout
    confine_process()
    said: dict[str, str]
    try:
        said = {"text": READERS[kind](data)}
    except Unreadable as error:
        said = {"wrong": str(error)}
    except Exception:  # Any error of a parser means that the file is faulty.
        said = {"wrong": f"The file is damaged, or is not a .{kind} file."}
    out.write(json.dumps(said))
    out.flush()


if __name__ == "__main__":
    main(sys.argv[1])
