"""Fetching under guard: what is reached, and what must never be."""

from __future__ import annotations

import ipaddress
import time
from pathlib import Path

import pytest

from commonplace.platform.fetching import Fetcher, FetchRefused, is_public, parse_target

from .tls import Site, site

pytestmark = pytest.mark.anyio

NOT_PUBLIC = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "10.255.255.255",
    "100.64.0.1",
    "100.127.255.254",
    "127.0.0.1",
    "127.255.255.254",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.254",
    "192.0.0.1",
    "192.0.0.170",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.0.1",
    "198.18.0.1",
    "198.19.255.254",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:8.8.8.8",
    "::ffff:169.254.169.254",
    "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::808:808",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:808:808::1",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "febf::1",
    "fec0::1",
    "feff::1",
    "ff02::1",
    "ff0e::1",
]
PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "100.63.255.255",
    "172.32.0.1",
    "192.0.1.1",
    "2606:4700::1111",
    "2a00:1450::1",
]

BAD_URLS = """
http://client.example/c.json
HTTPS://client.example/c.json
ftp://client.example/c.json
file:///etc/passwd
gopher://client.example/
//client.example/c.json
client.example/c.json
https://
https:///c.json
https://user@client.example/c.json
https://user:pass@client.example/c.json
https://client.example@127.0.0.1/c.json
https://client.example\\@127.0.0.1/c.json
https://client.example/c.json#fragment
https://client.example:0/c.json
https://client.example:65536/c.json
https://client.example:x/c.json
https://client.example:/c.json
https://2130706433/c.json
https://0x7f000001/c.json
https://0x7f.0.0.1/c.json
https://0177.0.0.1/c.json
https://127.1/c.json
https://127.0.1/c.json
https://0/c.json
https://017700000001/c.json
https://127.0.0.1./c.json
https://localhost/c.json
https://localhost./c.json
https://intranet/c.json
https://client..example/c.json
https://.client.example/c.json
https://client.example./c.json
https://cli%65nt.example/c.json
https://[::1/c.json
https://[fe80::1%25eth0]/c.json
https://[v1.x]/c.json
https://ｌocalhost.example/c.json
https://client。example/c.json
https://client.example/c json
https://127.0.0.1/c.json
https://127.0.0.1:8443/c.json
https://10.0.0.1/c.json
https://100.64.0.1/c.json
https://169.254.169.254/latest/meta-data/
https://172.16.0.1/c.json
https://192.168.0.1/c.json
https://0.0.0.0/c.json
https://224.0.0.1/c.json
https://255.255.255.255/c.json
https://[::]/c.json
https://[::1]/c.json
https://[::ffff:127.0.0.1]/c.json
https://[::ffff:7f00:1]/c.json
https://[::127.0.0.1]/c.json
https://[64:ff9b::7f00:1]/c.json
https://[64:ff9b:1::7f00:1]/c.json
https://[2002:7f00:1::]/c.json
https://[2001::1]/c.json
https://[fc00::1]/c.json
https://[fd00:ec2::254]/c.json
https://[fe80::1]/c.json
https://[fec0::1]/c.json
https://[ff02::1]/c.json
""".strip().splitlines()


class Names:
    """A resolver that knows what the test says, and counts how often it is asked."""

    def __init__(self, **answers: list[str]) -> None:
        self.answers = {name.replace("_", "."): given for name, given in answers.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        if host not in self.answers:
            raise OSError("no such name")
        return self.answers[host]


def fetcher(there: Site, **answers: list[str]) -> tuple[Fetcher, Names]:
    names = Names(**{"client_example": ["127.0.0.1"], **answers})
    return Fetcher(allow=[("127.0.0.1", there.port)], resolver=names, tls=there.tls), names


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_an_address_that_is_not_public_is_known(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_known(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


def test_there_are_enough_urls() -> None:
    assert len(BAD_URLS) >= 60


async def test_no_bad_url_reaches_anything(tmp_path: Path) -> None:
    async with site(tmp_path, "client.example", "localhost") as canary:
        names = Names()
        guarded = Fetcher(resolver=names, tls=canary.tls)
        for url in BAD_URLS:
            url = url.replace("8443", str(canary.port))
            with pytest.raises(FetchRefused):
                await guarded.fetch(url)
        assert canary.hits == []
        assert names.asked == []


@pytest.mark.parametrize("address", NOT_PUBLIC)
async def test_a_name_that_leads_inside_is_refused(tmp_path: Path, address: str) -> None:
    guarded = Fetcher(resolver=Names(client_example=[address]))
    with pytest.raises(FetchRefused, match="not public"):
        await guarded.fetch("https://client.example/c.json", seconds=2)


async def test_one_answer_that_leads_inside_spoils_all(tmp_path: Path) -> None:
    for answers in (["1.1.1.1", "127.0.0.1"], ["127.0.0.1", "1.1.1.1"], ["1.1.1.1", "::1"]):
        with pytest.raises(FetchRefused, match="not public"):
            await Fetcher(resolver=Names(client_example=answers)).fetch("https://client.example/x")


async def test_a_document_is_fetched_under_its_own_name(tmp_path: Path) -> None:
    async with site(tmp_path, "client.example") as there:
        there.put("/c.json", b"{}", cache_control="max-age=60")
        guarded, names = fetcher(there)
        fetched = await guarded.fetch(f"https://client.example:{there.port}/c.json")
        assert (fetched.status, fetched.body) == (200, b"{}")
        assert fetched.headers["cache-control"] == "max-age=60"
        assert names.asked == ["client.example"]  # once: nothing is resolved behind its back
        assert f"host: client.example:{there.port}".encode() in there.requests[0].lower()
        assert b"cookie" not in there.requests[0].lower()


async def test_only_the_port_that_was_allowed_is_reached(tmp_path: Path) -> None:
    async with site(tmp_path, "client.example") as there:
        names = Names(client_example=["127.0.0.1"])
        guarded = Fetcher(allow=[("127.0.0.1", 1)], resolver=names, tls=there.tls)
        with pytest.raises(FetchRefused, match="not public"):
            await guarded.fetch(f"https://client.example:{there.port}/c.json")
        assert there.hits == []


async def test_another_names_certificate_is_refused(tmp_path: Path) -> None:
    async with site(tmp_path, "other.example") as there:
        guarded, _ = fetcher(there)
        with pytest.raises(FetchRefused):
            await guarded.fetch(f"https://client.example:{there.port}/c.json")
        assert there.hits == []


async def test_a_certificate_of_nobody_is_refused(tmp_path: Path) -> None:
    async with site(tmp_path, "client.example") as there:
        names = Names(client_example=["127.0.0.1"])
        guarded = Fetcher(allow=[("127.0.0.1", there.port)], resolver=names)
        with pytest.raises(FetchRefused):
            await guarded.fetch(f"https://client.example:{there.port}/c.json")
        assert there.hits == []


async def test_a_name_that_moves_inside_between_redirects_is_refused(tmp_path: Path) -> None:
    async with site(tmp_path, "client.example") as there:
        here = f"https://client.example:{there.port}"
        there.put("/c.json", b"", status="302 Found", location="/d.json")
        there.put("/d.json", b"secret")
        guarded, names = fetcher(there)

        async def rebinding(host: str, port: int) -> list[str]:
            found = await names(host, port)
            names.answers["client.example"] = ["169.254.169.254"]
            return found

        guarded._resolver = rebinding
        with pytest.raises(FetchRefused, match="not public"):
            await guarded.fetch(f"{here}/c.json")
        assert there.hits == ["/c.json"]


@pytest.mark.parametrize(
    "target",
    [
        "http://client.example/c.json",
        "https://169.254.169.254/latest/meta-data/",
        "https://localhost/",
        "file:///etc/passwd",
        "//127.0.0.1/",
        "https://[::1]/",
        "https://inside.example/",
        "",
    ],
)
async def test_a_redirect_inside_is_refused(tmp_path: Path, target: str) -> None:
    async with site(tmp_path, "client.example") as there:
        there.put("/c.json", b"", status="302 Found", location=target)
        guarded, _ = fetcher(there, inside_example=["10.0.0.1"])
        with pytest.raises(FetchRefused):
            await guarded.fetch(f"https://client.example:{there.port}/c.json", seconds=5)
        assert set(there.hits) == {"/c.json"}


async def test_redirects_are_counted(tmp_path: Path) -> None:
    async with site(tmp_path, "client.example") as there:
        for step in range(5):
            there.put(f"/{step}", b"", status="302 Found", location=f"/{step + 1}")
        there.put("/3", b"here")
        guarded, _ = fetcher(there)
        here = f"https://client.example:{there.port}"
        assert (await guarded.fetch(f"{here}/0")).body == b"here"
        there.put("/3", b"", status="302 Found", location="/4")
        with pytest.raises(FetchRefused, match="redirects"):
            await guarded.fetch(f"{here}/0")
        with pytest.raises(FetchRefused, match="redirects"):
            await guarded.fetch(f"{here}/2", redirects=0)


async def test_what_is_meant_for_one_host_is_not_told_to_the_next(tmp_path: Path) -> None:
    async with site(tmp_path, "client.example") as there:
        there.put("/0", b"", status="302 Found", location="/1")
        there.put("/1", b"")
        guarded, _ = fetcher(there)
        here = f"https://client.example:{there.port}"
        await guarded.fetch(f"{here}/0", headers={"Authorization": "Bearer x"})
        assert b"Bearer x" in there.requests[0]
        assert b"Bearer x" not in there.requests[1]


@pytest.mark.parametrize("declared", [True, False])
async def test_a_large_answer_is_cut_off(tmp_path: Path, declared: bool) -> None:
    async with site(tmp_path, "client.example") as there:
        there.put("/c.json", b"x" * 6000, **({} if declared else {"content_length": ""}))
        guarded, _ = fetcher(there)
        with pytest.raises(FetchRefused, match="larger"):
            await guarded.fetch(f"https://client.example:{there.port}/c.json", most_bytes=5120)


async def test_a_compressed_answer_is_refused(tmp_path: Path) -> None:
    async with site(tmp_path, "client.example") as there:
        there.put("/c.json", b"\x1f\x8b", content_encoding="gzip")
        guarded, _ = fetcher(there)
        with pytest.raises(FetchRefused, match="compressed"):
            await guarded.fetch(f"https://client.example:{there.port}/c.json")


async def test_a_slow_answer_is_given_up(tmp_path: Path) -> None:
    async with site(tmp_path, "client.example") as there:
        there.put("/c.json", b"{}")
        there.delay = 3
        guarded, _ = fetcher(there)
        begun = time.monotonic()
        with pytest.raises(FetchRefused, match="No response"):
            await guarded.fetch(f"https://client.example:{there.port}/c.json", seconds=0.3)
        assert time.monotonic() - begun < 1.5


async def test_nonsense_and_silence_are_refusals(tmp_path: Path) -> None:
    async with site(tmp_path, "client.example") as there:
        guarded, _ = fetcher(there)
        for nonsense in (
            b"",
            b"nonsense\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx",
        ):
            there.answers["/c.json"] = nonsense
            with pytest.raises(FetchRefused):
                await guarded.fetch(f"https://client.example:{there.port}/c.json")
        with pytest.raises(FetchRefused):
            await guarded.fetch("https://unknown.example/c.json")


def test_a_good_address_is_taken_apart() -> None:
    target = parse_target("https://client.example:8443/a/b.json?x=1")
    assert (target.host, target.port, target.address) == ("client.example", 8443, None)
    assert parse_target("https://1.1.1.1/").address == ipaddress.ip_address("1.1.1.1")
    assert parse_target("https://[2606:4700::1111]:443/x").port == 443
