"""Shrink large images in a separate process.

`python -m commonplace.text.images` is that process: it reads an image from standard input and
writes the smaller image, or an error as a line of JSON. With the argument `check`, it only checks
the size that the image header states.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

from commonplace.errors import InvalidInput
from commonplace.text.files import ENVIRONMENT, TIMEOUT, confine_process

MOST_SIDE_PIXELS = 1024
QUALITY = 80
MOST_PIXELS = 50_000_000
COMMAND = (sys.executable, "-I", "-m", "commonplace.text.images")
_TOO_MANY = "pixels"
_ERROR_MARK = b"{"  # This byte marks an error message; no image starts with it.


class TooManyPixels(InvalidInput):
    """Raised if an image has more pixels than the limit."""


def shrink(data: bytes) -> bytes:
    """Return the image in the same format, scaled to fit a square, upright, without metadata."""
    image, wrong = _run_process(data)
    if not wrong:
        return image
    _refuse_too_many(wrong)
    raise InvalidInput(wrong, field="file")


def check_pixels(data: bytes) -> None:
    """Refuse an image whose header states more than PIXELS; an unreadable image passes."""
    _refuse_too_many(_run_process(data, "check")[1])


def _refuse_too_many(wrong: str) -> None:
    if wrong == _TOO_MANY:
        raise TooManyPixels(f"The image has more than {MOST_PIXELS:,} pixels.", field="file")


def _run_process(data: bytes, *arguments: str) -> tuple[bytes, str]:
    """Return the output of the process, and its error message."""
    try:
        ran = subprocess.run(  # noqa: S603 - our own module
            (*COMMAND, *arguments), input=data, capture_output=True, timeout=TIMEOUT, check=False,
            env={name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise InvalidInput("Reading the image takes too long.", field="file") from None
    if ran.stdout and not ran.stdout.startswith(_ERROR_MARK):
        return ran.stdout, ""
    try:
        return b"", str(json.loads(ran.stdout)["wrong"])
    except (ValueError, KeyError):
        return b"", "The image cannot be read."


def _fit(data: bytes, *, only_check: bool) -> bytes:
    from PIL import Image, ImageOps

    Image.MAX_IMAGE_PIXELS = None  # The size is checked below, before anything is decoded.
    with Image.open(io.BytesIO(data), formats=("JPEG", "PNG", "WEBP", "GIF")) as image:
        if image.width * image.height > MOST_PIXELS:
            return json.dumps({"wrong": _TOO_MANY}).encode()
        if only_check:
            return b"fine"
        form = image.format
        upright = ImageOps.exif_transpose(image) or image
        if "transparency" in image.info:  # the copy below would lose this value
            upright = upright.convert("RGBA")
        upright.thumbnail((MOST_SIDE_PIXELS, MOST_SIDE_PIXELS))
        plain = Image.new(upright.mode, upright.size)
        plain.paste(upright)
        if upright.mode == "P" and (palette := upright.getpalette()):
            plain.putpalette(palette)
        out = io.BytesIO()
        plain.save(out, form, quality=QUALITY, optimize=form == "PNG")
        return out.getvalue()


def main() -> None:
    """Read an image from standard input, and write the smaller one to standard output."""
    data = sys.stdin.buffer.read()
    out = sys.stdout.buffer
    confine_process()
    try:
        answer = _fit(data, only_check=sys.argv[1:] == ["check"])
    except Exception:  # Any error of the library means an invalid file.
        answer = json.dumps({"wrong": "The image is damaged."}).encode()
    out.write(answer)
    out.flush()


if __name__ == "__main__":
    main()
