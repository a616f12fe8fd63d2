"""Take screenshots of HTML files with a browser, without scripts and network."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from commonplace.dialects.mama.platform import files, paths
from commonplace.dialects.mama.platform.failures import PlatformError, not_installed
from commonplace.dialects.mama.platform.paths import OpenedFile

if TYPE_CHECKING:
    from commonplace.dialects.mama.platform.service import Service

SIZE = {"width": 1280, "height": 800}
MILLISECONDS = 30_000


def take_screenshot(running: Service, page: OpenedFile) -> OpenedFile:
    """Take a screenshot of a page, and store it in the folder `temp` of the workspace."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        raise not_installed("playwright", "screenshot") from None
    chromium = running.environ.get("COMMONPLACE_CHROMIUM")
    try:
        with sync_playwright() as playwright:
            browser: Any = playwright.chromium.launch(
                executable_path=chromium, args=["--disable-gpu", "--no-first-run"],
                timeout=MILLISECONDS,
            )  # fmt: skip
            try:
                context = browser.new_context(
                    java_script_enabled=False, viewport=SIZE, offline=True
                )
                view = context.new_page()
                view.route("**/*", lambda route: route.abort())
                view.set_content(page.data.decode("utf-8", "replace"), timeout=MILLISECONDS)
                data: bytes = view.screenshot(timeout=MILLISECONDS)
            finally:
                browser.close()
    except Error:
        raise PlatformError(
            501, "NOT_CONFIGURED",
            "No browser could be started. Install chromium, and set COMMONPLACE_CHROMIUM to it.",
        ) from None  # fmt: skip
    name = f"screenshot_{time.time_ns() // 1_000_000}.png"
    path = paths.workspace(running) / "temp" / name
    files.write_private(path, data)
    return OpenedFile(name, path.resolve(), data)
