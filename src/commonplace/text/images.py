"""Makes large images smaller, in a process of its own.

Run as `python -m commonplace.text.images`, it is that process: it reads an image from standard
input and writes the smaller one, or a line of JSON that says what is wrong. With the argument
`check` it only looks at the size that the image states.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

from commonplace.errors import InvalidInput
from commonplace.text.files import ENVIRONMENT, TIMEOUT, confine

SIDE = 1024
QUALITY = 80
PIXELS = 50_000_000
COMMAND = (sys.executable, "-I", "-m", "commonplace.text.images")
_TOO_MANY = "pixels"
_WRONG = b"{"  # marks an error message; no image starts with this byte


class TooManyPixels(InvalidInput):
    """The image has more pixels than are decoded."""


def smaller(data: bytes) -> bytes:
    """The image in the same format, fitted into a square, upright, without metadata."""
    image, wrong = _run_process(data)
    if not wrong:
        return image
    _refuse_too_many(wrong)
    raise InvalidInput(wrong, field="file")


def check(data: bytes) -> None:
    """Refuse an image that states more than PIXELS; an unreadable image passes this check."""
    _refuse_too_many(_run_process(data, "check")[1])


def _refuse_too_many(wrong: str) -> None:
    if wrong == _TOO_MANY:
        raise TooManyPixels(f"The image has more than {PIXELS:,} pixels.", field="file")


def _run_process(data: bytes, *arguments: str) -> tuple[bytes, str]:
    """(output of the process, its error message)."""
    try:
        ran = subprocess.run(  # noqa: S603 - our own module
            (*COMMAND, *arguments), input=data, capture_output=True, timeout=TIMEOUT, check=False,
            env={name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise InvalidInput("Reading the image takes too long.", field="file") from None
    if ran.stdout and not ran.stdout.startswith(_WRONG):
        return ran.stdout, ""
    try:
        return b"", str(json.loads(ran.stdout)["wrong"])
    except (ValueError, KeyError):
        return b"", "The image cannot be read."


def _fitted(data: bytes, *, only_check: bool) -> bytes:
    from PIL import Image, ImageOps

    Image.MAX_IMAGE_PIXELS = None  # the size is checked below, before anything is decoded
    with Image.open(io.BytesIO(data), formats=("JPEG", "PNG", "WEBP", "GIF")) as image:
        if image.width * image.height > PIXELS:
            return json.dumps({"wrong": _TOO_MANY}).encode()
        if only_check:
            return b"fine"
        form = image.format
        upright = ImageOps.exif_transpose(image) or image
        upright.thumbnail((SIDE, SIDE))
        plain = Image.new(upright.mode, upright.size)
        plain.paste(upright)
        if upright.mode == "P" and (palette := upright.getpalette()):
            plain.putpalette(palette)
        out = io.BytesIO()
        plain.save(out, form, quality=QUALITY, optimize=form == "PNG")
        return out.getvalue()


def main() -> None:
    """Read an image, write the smaller one."""
    data = sys.stdin.buffer.read()
    out = sys.stdout.buffer
    confine()
    try:
        answer = _fitted(data, only_check=sys.argv[1:] == ["check"])
    except Exception:  # any error of the library means an invalid file
        answer = json.dumps({"wrong": "The image is damaged."}).encode()
    out.write(answer)
    out.flush()


if __name__ == "__main__":
    main()
