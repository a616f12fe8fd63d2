# ruff: noqa: E501, SIM905  (frames of text, one a line)
"""Texts with planted secrets, and texts without any, made from a seed."""

from __future__ import annotations

import base64
import hashlib
import random
import string
import uuid
from collections.abc import Callable

LOWER, ALNUM = string.ascii_lowercase, string.ascii_letters + string.digits
HEX, UPPER = "0123456789abcdef", string.ascii_uppercase + string.digits
WORDS = (
    "heron lake amber willow copper basket river morning cedar lantern gravel meadow orchard violin"
    " harbor winter saddle thunder pepper marble canyon falcon candle velvet"
).split()


class Maker:
    """Random values of all kinds."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def of(self, alphabet: str, length: int) -> str:
        return "".join(self.random.choices(alphabet, k=length))

    def pick(self, *values: str) -> str:
        return self.random.choice(values)

    def words(self, count: int, between: str = " ") -> str:
        return between.join(self.random.choices(WORDS, k=count))

    def password(self) -> str:
        letters = self.of(ALNUM, self.random.randint(6, 16))
        signs = (
            self.of("!#$%^&*+?@", self.random.randint(0, 3)) if self.random.random() < 0.7 else ""
        )
        digits = self.of(string.digits, self.random.randint(1, 4))
        parts = list(letters + signs + digits)
        self.random.shuffle(parts)
        made = "".join(parts)
        return made if made[0].isalnum() else "p" + made

    def passphrase(self) -> str:
        return self.words(self.random.randint(3, 5), "-") + self.pick("", "-42", "7!")

    def base64url(self, length: int) -> str:
        return self.of(ALNUM + "-_", length)

    def web_token(self) -> str:
        def part(text: str) -> str:
            return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

        head = part('{"alg":"HS256","typ":"JWT"}')
        body = part('{"sub":"' + self.of(ALNUM, 8) + '"}')
        return f"{head}.{body}.{self.base64url(43)}"

    def private_key(self) -> str:
        kind = self.pick("RSA ", "EC ", "OPENSSH ", "DSA ", "", "ENCRYPTED ")
        lines = "\n".join(self.of(ALNUM + "+/", 64) for _ in range(self.random.randint(4, 25)))
        end = self.pick(f"\n-----END {kind}PRIVATE KEY-----", "")
        text = f"-----BEGIN {kind}PRIVATE KEY-----\n{lines}{end}"
        return text.replace("\n", "\\n") if self.random.random() < 0.2 else text


def tokens(m: Maker) -> list[Callable[[], str]]:
    """Makers of tokens with a known beginning."""
    return [
        lambda: "AKIA" + m.of(string.ascii_uppercase + "234567", 16),
        lambda: "ASIA" + m.of(string.ascii_uppercase + "234567", 16),
        lambda: m.pick("ghp_", "gho_", "ghu_", "ghs_", "ghr_") + m.of(ALNUM, 36),
        lambda: "github_pat_" + m.of(ALNUM, 22) + "_" + m.of(ALNUM, 59),
        lambda: "glpat-" + m.base64url(20),
        lambda: f"xoxb-{m.of(string.digits, 12)}-{m.of(string.digits, 12)}-{m.of(ALNUM, 24)}",
        lambda: f"https://hooks.slack.com/services/T{m.of(UPPER, 8)}/B{m.of(UPPER, 8)}/{m.of(ALNUM, 24)}",
        lambda: m.pick("sk_live_", "rk_live_", "sk_test_") + m.of(ALNUM, 24),
        lambda: "whsec_" + m.of(ALNUM, 32),
        lambda: "sk-ant-api03-" + m.base64url(93) + "AA",
        lambda: "sk-proj-" + m.base64url(120),
        lambda: "sk-" + m.of(ALNUM, 48),
        lambda: "sk-or-v1-" + m.of(HEX, 64),
        lambda: "AIza" + m.base64url(35),
        lambda: "ya29." + m.base64url(60),
        lambda: "GOCSPX-" + m.base64url(28),
        lambda: "npm_" + m.of(ALNUM, 36),
        lambda: "pypi-AgEIcHlwaS5vcmc" + m.base64url(70),
        lambda: "hf_" + m.of(string.ascii_letters, 34),
        lambda: "r8_" + m.of(ALNUM, 37),
        lambda: "gsk_" + m.of(ALNUM, 52),
        lambda: "dop_v1_" + m.of(HEX, 64),
        lambda: f"SG.{m.base64url(22)}.{m.base64url(43)}",
        lambda: m.of(HEX, 32) + "-us" + m.pick("1", "12", "20"),
        lambda: "SK" + m.of(HEX, 32),
        lambda: "shpat_" + m.of(HEX, 32),
        lambda: "ntn_" + m.of(ALNUM, 46),
        lambda: "lin_api_" + m.of(ALNUM, 40),
        lambda: f"pat{m.of(ALNUM, 14)}.{m.of(HEX, 64)}",
        lambda: "dapi" + m.of(HEX, 32),
        lambda: "hvs." + m.base64url(90),
        lambda: f"{m.of(string.digits, 10)}:AA{m.base64url(33)}",
        lambda: f"M{m.of(ALNUM, 25)}.{m.base64url(6)}.{m.base64url(38)}",
        lambda: "cpt_" + m.base64url(49),
        m.web_token,
    ]  # fmt: skip


FRAMES = (
    "{}", "The key is {} and it works.", 'export KEY="{}"', "curl -H 'X-Key: {}' https://h.example",
    "{{\"value\": \"{}\"}}", "I put `{}` into the vault.\nDone.", "Ann wrote:\n\n    {}\n", "token={}&x=1",
)  # fmt: skip


def assigned(m: Maker) -> tuple[str, str]:
    """A password or key behind its name, as files, commands and people write it."""
    kind = m.random.randrange(4)
    if kind == 0:  # a password in a file or a command
        value = m.pick(m.password(), m.password(), m.passphrase())
        frame = m.pick(
            "password: {}", "DB_PASSWORD={}", 'password = "{}"', "'passwd': '{}'", "PGPASSWORD={} psql",
            "smtp_password: {}\nport: 25", "pwd={};", "MYSQL_ROOT_PASSWORD: {}", "--password {} --yes",
            "machine h login ann password {}", "ssh_passphrase = '{}'", "spring.datasource.password={}",
            "  adminPassword: \"{}\"", "curl -u ann:{} https://h.example/x",
        )  # fmt: skip
    elif kind == 1:  # a password in a sentence
        value = m.password()
        frame = m.pick(
            "My password is {}", "The wifi password at the office is {}.", "the passphrase is: {}",
            "I changed the admin password to {} yesterday", "Das Passwort ist {}", "password for the box is '{}'",
            "Our staging passcode is now {}, please keep it.",
        )  # fmt: skip
    elif kind == 2:  # a key in a file
        value = m.pick(m.of(HEX, 32), m.of(ALNUM, 40), m.base64url(43), str(uuid.UUID(int=m.random.getrandbits(128))))  # fmt: skip
        frame = m.pick(
            "API_KEY={}", 'api_key: "{}"', "aws_secret_access_key = {}", "SECRET_KEY = '{}'",
            "client_secret={}", '"accessToken": "{}"', "auth_token: {}", "X-Api-Key: {}", "JWT_SECRET={}",
            "HEROKU_API_KEY={}", "datadog.api_key={}", "refresh_token={}", "ENCRYPTION_KEY: {}",
            "Authorization: Bearer {}", "--token {} deploy",
        )  # fmt: skip
    else:  # a key in a sentence
        value = m.pick(m.of(HEX, 32), m.of(ALNUM, 32), m.base64url(40))
        frame = m.pick(
            "The API key is {}", "my access token is {}.", "Set the client secret to {} please",
            "the secret key was {} until Monday",
        )  # fmt: skip
    return frame.format(value), value


def connection(m: Maker) -> tuple[str, str]:
    """An address with a password."""
    safe = m.of(ALNUM, m.random.randint(8, 20)) + m.pick("", "%40", "!x", "-2")
    scheme = m.pick(
        "postgres", "postgresql", "mysql", "mongodb+srv", "redis", "amqp", "https", "ftp"
    )
    user = m.pick("ann", "svc_app", "", "root") if scheme == "redis" else m.pick("ann", "svc_app")
    rest = m.pick("db.internal:5432/app", "10.0.0.7/x?ssl=true", "localhost", "h.example.org")
    return m.pick("{}", "DATABASE_URL={}", "It runs at {} now.", "url: '{}'").format(
        f"{scheme}://{user}:{safe}@{rest}"
    ), safe


def planted(seed: int, count: int = 1_000) -> list[tuple[str, str]]:
    """(text, the secret in it), of all kinds."""
    m = Maker(seed)
    made: list[tuple[str, str]] = []
    known = tokens(m)
    while len(made) < count:
        kind = len(made) % 10
        if kind < 4:
            secret = known[(len(made) // 10 * 4 + kind) % len(known)]()
            text = m.pick(*FRAMES).format(secret)
        elif kind < 8:
            text, secret = assigned(m)
        elif kind == 8:
            text, secret = connection(m)
        else:
            secret = m.private_key()
            text = m.pick("{}", "Use this:\n{}\nThanks", 'key = """{}"""').format(secret)
        if m.random.random() < 0.5:
            text = f"{m.words(8).capitalize()}. {text}\n{m.words(6)}"
        made.append((text, secret))
    return made


def ordinary(seed: int, count: int = 2_000) -> list[str]:
    """Texts without a secret that look like some: hashes, ids, code, pictures, talk about secrets."""
    m = Maker(seed)
    made = []
    for at in range(count):
        data = m.random.randbytes(m.random.randint(60, 900))
        kinds = (
            f"commit {hashlib.sha1(data).hexdigest()} {m.words(4)}",
            f"sha256:{hashlib.sha256(data).hexdigest()}  {m.words(1)}.tar.gz",
            f"id {uuid.UUID(bytes=data[:16])} was stored, see {uuid.UUID(bytes=data[16:32])}",
            f"![{m.words(1)}](data:image/png;base64,{base64.b64encode(data).decode()})",
            f"ssh-ed25519 {base64.b64encode(data[:51]).decode()} ann@laptop",
            f"integrity sha512-{base64.b64encode(hashlib.sha512(data).digest()).decode()}",
            f"def {m.words(2, '_')}(token: str, password: str | None = None) -> str:",
            f"    password = os.environ['{m.words(2, '_').upper()}']  # {m.words(3)}",
            f"token = client.fetch_token(scope=\"{m.words(1)}\", key={m.words(1)}_key)",
            f"The password is required, and the token must be {m.words(2)}.",
            f"We rotate the api key every {m.random.randint(2, 90)} days; the secret is kept in the vault.",
            f"max_tokens: {m.random.randint(100, 9000)}, tokens_used={m.random.randint(100, 99999)}",
            f"primary_key=True, cache_key = f\"{{user}}:{m.words(1)}\", foreign key {m.words(1)}_id",
            f"https://{m.words(1)}.example.org:8443/{m.words(2, '/')}?page={m.random.randint(1, 99)}&key=name",
            f"git clone git@github.com:acme/{m.words(1)}.git && cd {m.words(1)}",
            f"password: ${{DB_PASSWORD}}  # {m.words(2)}",
            f"api_key: <your-key>, password=changeme, token: {{{{ token }}}} # {m.words(3)}",
            f"arn:aws:iam::{m.of(string.digits, 12)}:role/{m.words(2, '-')}",
            f"{m.words(1)}@example.org said: {m.words(12)}.",
            f"def {m.words(1)}(): return {m.random.random()}  # {m.of(HEX, 7)}",
            f"Version {m.random.randint(0, 9)}.{m.random.randint(0, 30)} of {m.words(2, '-')} fixes #{m.random.randint(1, 9999)}",
            f"trace_id={m.of(HEX, 32)} span_id={m.of(HEX, 16)} path=/{m.words(3, '/')}",
            f"keys: [{m.words(1)}, {m.words(1)}], token_type: bearer, expires_in: 3600",
            f"The session token expires after {m.random.randint(1, 24)} hours; the key idea is {m.words(3)}.",
            f"public_key = \"{base64.b64encode(data[:32]).decode()}\"",
        )  # fmt: skip
        made.append(kinds[at % len(kinds)])
    return made
