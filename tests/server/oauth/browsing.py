"""A person with a browser, as far as the pages need one: cookies, forms, buttons, redirects."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit

import httpx


@dataclass
class Page:
    """What a page holds that a person can act on."""

    text: str = ""
    action: str = ""
    fields: dict[str, str] = field(default_factory=dict)
    buttons: list[str] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    inputs: list[dict[str, str]] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.page = Page()
        self._label: str | None = None
        self._select: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        page = self.page
        if tag == "form":
            page.action = values["action"]
        elif tag == "input":
            page.inputs.append(values)
            kind = values.get("type", "text")
            if kind not in ("checkbox", "radio") or "checked" in values:
                page.fields[values["name"]] = values.get("value", "")
            if self._label == "":
                page.labels[values["name"]] = "around"
        elif tag == "select":
            self._select = values["name"]
        elif tag == "button":
            page.buttons.append(values["value"])
        elif tag == "label":
            self._label = values.get("for", "")
            if self._label:
                page.labels[self._label] = ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "label":
            self._label = None

    def handle_data(self, data: str) -> None:
        self.page.text += data
        if self._select and data.strip():
            self.page.fields.setdefault(self._select, data.strip())


def read(html: str) -> Page:
    """The page in a response."""
    reader = _Reader()
    reader.feed(html)
    reader.page.text = " ".join(reader.page.text.split())
    return reader.page


@dataclass
class Browser:
    """Follows redirects of our own; stops when it is sent elsewhere."""

    client: httpx.AsyncClient
    origin: str
    response: httpx.Response | None = None
    page: Page = field(default_factory=Page)
    sent_to: str = ""

    async def open(self, url: str) -> Browser:
        """Go to an address."""
        return await self._arrive(await self.client.get(url))

    async def press(self, button: str, **filled: str) -> Browser:
        """Fill in the form and press a button."""
        assert button in self.page.buttons, (button, self.page)
        fields = {**self.page.fields, **{k.replace("__", " "): v for k, v in filled.items()}}
        fields = {name: value for name, value in fields.items() if value != "UNTICKED"}
        body = urlencode({**fields, "action": button})
        headers = {
            "content-type": "application/x-www-form-urlencoded",
            "origin": self.origin,
            "sec-fetch-site": "same-origin",
        }
        url = urljoin(self.origin, self.page.action)
        return await self._arrive(await self.client.post(url, content=body, headers=headers))

    async def _arrive(self, response: httpx.Response) -> Browser:
        while response.has_redirect_location:
            target = urljoin(str(response.url), response.headers["location"])
            if not target.startswith(self.origin + "/"):
                self.response, self.sent_to = response, target
                return self
            response = await self.client.get(target)
        self.response, self.page, self.sent_to = response, read(response.text), ""
        return self

    @property
    def answer(self) -> dict[str, str]:
        """What the client is told in the address that the person is sent to."""
        assert self.sent_to, self.page.text
        return dict(parse_qsl(urlsplit(self.sent_to).query))
