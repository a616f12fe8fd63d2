"""Find secrets in a text: keys, tokens, passwords, private keys, credentials in URLs.

Tokens with a known prefix are searched for in long runs of letters and digits, passwords and keys
after the word that names them. So the search of a text without either takes a few microseconds.
Only the value is masked, not the text around it.
"""

from __future__ import annotations

import functools
import math
import re
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any, NamedTuple

RUN_CHARS = 20  # the least length of tokens with a known prefix
PIECE_CHARS = 131_072  # the length of a piece of a long text, which is searched at once
BEFORE_CHARS = 1_024  # the context before a piece, which may name a secret
AFTER_CHARS = 32_768  # the context after a piece: the longest secret that begins in it


class _Pattern:
    """A regular expression that is compiled on first use, because most texts need no pattern."""

    def __init__(self, expression: str, flags: int = 0) -> None:
        self._expression = expression
        self._flags = flags

    @functools.cached_property
    def compiled(self) -> re.Pattern[str]:
        """The compiled expression."""
        return re.compile(self._expression, self._flags)


_MARK = _Pattern(r"\[masked: ([a-z][a-z -]*)\]")


class Secret(NamedTuple):
    """The position of a secret in a text, and its kind."""

    start: int
    stop: int
    kind: str


def mask_for(kind: str) -> str:
    """Return the mark that replaces a secret in a text."""
    return f"[masked: {kind}]"


def find_secrets(text: str) -> list[Secret]:
    """Return the secrets of a text in order, without overlaps.

    A long text is searched piece by piece, because other threads wait while a pattern is matched.
    """
    found: list[Secret] = []
    if "PRIVATE KEY" in text or "Private-Lines" in text:  # These secrets have no maximum length.
        _add_new(found, text, 0, _find_private_keys(text))
    for start in range(0, len(text) or 1, PIECE_CHARS):
        first = max(0, start - BEFORE_CHARS)
        piece = text[first : start + PIECE_CHARS + AFTER_CHARS]
        if not _may_have_secrets(piece):
            continue
        # A secret that begins later belongs to the next piece.
        own = range(start, start + PIECE_CHARS)
        _add_new(
            found,
            piece,
            first,
            (each for each in _secrets_in_piece(piece) if first + each.start in own),
        )
    return found


def _may_have_secrets(text: str) -> bool:
    """Return whether a text has any word, sign or long run that secrets need; most have none."""
    return any(map(text.lower().__contains__, _HINTS)) or _has_long_run(text)


def _has_long_run(text: str) -> bool:
    return _SHORT_RUNS.match(text) is None


def _secrets_in_piece(text: str) -> Iterator[Secret]:
    """Yield the secrets of a short text; they may overlap."""
    yield from _find_in_urls_and_commands(text)
    if _has_long_run(text):  # This is faster than the pattern.
        for run in _RUN.compiled.finditer(text):
            for start, stop, kind in _known_tokens(run[0]):
                yield Secret(run.start() + start, run.start() + stop, kind)
    yield from _find_named_secrets(text)


def _add_new(found: list[Secret], piece: str, first: int, secrets: Iterable[Secret]) -> None:
    """Add the secrets of a piece that do not overlap those in `found`, which stays sorted."""
    for start, stop, kind in secrets:
        secret = Secret(first + start, first + stop, kind)
        at = bisect(found, secret)
        overlaps = (at > 0 and found[at - 1].stop > secret.start) or (
            at < len(found) and found[at].start < secret.stop
        )
        if not overlaps and "[masked:" not in piece[max(0, start - 9) : stop]:
            found.insert(at, secret)


def find_certain_secrets(text: str) -> list[Secret]:
    """Return the secrets that are recognised by their format, not by the word before them.

    In ids and labels, a word and a value such as `token:…` are often no secret.
    """
    return [secret for secret in find_secrets(text) if secret.kind not in ("password", "key")]


def mask(text: str) -> tuple[str, list[str]]:
    """Return the text with its secrets masked, and their kinds."""
    return _mask_found(text, find_secrets(text))


def mask_label(text: str) -> tuple[str, list[str]]:
    """Mask a label as `mask` does, but only secrets that are recognised by their format."""
    return _mask_found(text, find_certain_secrets(text))


def _mask_found(text: str, found: list[Secret]) -> tuple[str, list[str]]:
    if not found:
        return text, []
    parts, at = [], 0
    for secret in found:
        parts += [text[at : secret.start], mask_for(secret.kind)]
        at = secret.stop
    return "".join([*parts, text[at:]]), [secret.kind for secret in found]


def mask_values(value: Any) -> tuple[Any, list[str]]:
    """Return a JSON value with the secrets in its texts and names masked, and their kinds."""
    if isinstance(value, str):
        return mask(value)
    kinds: list[str] = []

    def each(inner: Any, name: str = "") -> Any:
        masked, found = _mask_named(name, inner) if isinstance(inner, str) else mask_values(inner)
        kinds.extend(found)
        return masked

    def label(name: Any, others: dict[Any, Any]) -> Any:
        """Return a name with its secrets masked, which differs from the other names."""
        if not isinstance(name, str) or (len(name) < RUN_CHARS and "://" not in name):
            return name
        masked, found = mask_label(name)
        kinds.extend(found)
        if found and masked in others:
            return next(f"{masked} {n}" for n in count(2) if f"{masked} {n}" not in others)
        return masked

    if isinstance(value, dict):
        shown: dict[Any, Any] = {}
        for name, inner in value.items():
            shown[label(name, shown)] = each(inner, str(name))
        return shown, kinds
    if isinstance(value, list | tuple):
        return [each(inner) for inner in value], kinds
    return value, kinds


def _mask_named(name: str, text: str) -> tuple[str, list[str]]:
    """Mask the secrets in a text, which may be one because of its name, such as `password`."""
    if not _SECRET_NAME.compiled.search(name):
        return mask(text)
    lead = f'"{name}":"'
    first, last = len(lead), len(lead) + len(text)
    found = [
        each for each in find_secrets(f'{lead}{text}"') if first <= each.start and each.stop <= last
    ]
    return _mask_found(
        text, [Secret(start - first, stop - first, kind) for start, stop, kind in found]
    )


def masked_kinds(text: str) -> list[str]:
    """Return the kinds of the secrets that were masked in a text."""
    return _MARK.compiled.findall(text)


# Values that are not secrets although they are in the position of one


_PLACEHOLDER = _Pattern(
    r"example|sample|placeholder|change-?_?me|your[-_]|\byour|dummy|redacted|masked|todo|foobar"
    r"|insert|replace|xxxx|\*\*\*|\.\.\.|…|^<.*>$|^\{.*\}$|\$\{|\{\{|%\(|^\$[A-Za-z_(]|^%[A-Z_]+%$|^@",
    re.IGNORECASE,
)
_PLAIN = frozenset(
    [
        "string",
        "str",
        "text",
        "password",
        "passwd",
        "secret",
        "token",
        "none",
        "null",
        "nil",
        "true",
        "false",
        "required",
        "optional",
        "undefined",
        "hidden",
        "unknown",
        "admin",
        "root",
        "postgres",
        "mysql",
        "guest",
        "user",
        "username",
        "test",
        "testing",
        "bearer",
        "basic",
        "default",
        "value",
        "empty",
        "invalid",
        "incorrect",
        "wrong",
        "expired",
        "missing",
        "correct",
    ]
)
# Code that computes the value instead of the value: a call, an attribute, a subscript, a type.
_CODE = _Pattern(r"[A-Za-z_][\w.]*[(\[]|^[a-z_]+(?:\.[A-Za-z_]\w*)+$|^[A-Z][a-z]+\[|[{}]|::|->|=>")
# Names of values in JSON that may be secrets.
_SECRET_NAME = _Pattern(
    r"passw|passphrase|passcode|pwd|kennwort|secret|token|credential"
    r"|(?:api|access|private|auth|account|signing|encryption|client|service)[_. -]?key",
    re.IGNORECASE,
)
_NOT_SECRET_NAME = _Pattern(
    r"public|hash|digest|checksum|fingerprint|ids?$|names?$|count|length|size|file|path|ttl|expir"
    r"|limit|usage|used|policy|field|label|input|rotation|version|budget|column|format|prefix|suffix"
    r"|pattern|regex|manager|provider|helper|type|(?:^|[_.-])(?:max|min|per|ur[il]|arn)(?:$|[_.-])",
    re.IGNORECASE,
)


def _entropy(value: str) -> float:
    total = len(value)
    return -sum(n / total * math.log2(n / total) for n in Counter(value).values())


def _is_placeholder(value: str) -> bool:
    lowered = value.lower()
    return (
        lowered in _PLAIN
        or bool(_PLACEHOLDER.compiled.search(value))
        or len(set(lowered)) < min(4, len(lowered))
        or lowered in "abcdefghijklmnopqrstuvwxyz0123456789012345678901234567890"
    )


def _looks_random(value: str) -> bool:
    """Return whether a value looks random: it has a digit, or mixes cases unlike a title."""
    if _is_placeholder(value) or _entropy(value) < 3.0:
        return False
    upper, lower = any(map(str.isupper, value)), any(map(str.islower, value))
    return any(map(str.isdigit, value)) or (upper and lower and not value.istitle())


def _is_key(value: str) -> bool:
    """Return whether a value can be a key or token: letters with digits, or long mixed case."""
    if _is_placeholder(value) or _CODE.compiled.search(value):
        return False
    digits = sum(map(str.isdigit, value))
    letters = sum(map(str.isalpha, value))
    cases = any(map(str.isupper, value)) and any(map(str.islower, value))
    random = _entropy(value)
    if value.islower() and "-" in value and digits < 4:
        return False  # The value consists of words with hyphens.
    if digits >= 2:
        return letters >= 2 and random >= 3.0
    return cases and len(value) >= 20 and random >= 4.0 and (digits > 0 or "-" not in value)


def _is_password(value: str, quoted: bool) -> bool:
    """Return whether a value can be a password: not a plain word, unless it is quoted."""
    if _is_placeholder(value) or _CODE.compiled.search(value):
        return False
    if value.isalpha():
        mixed = not value.islower() and not value.istitle() and not value.isupper()
        return mixed or (quoted and len(value) >= 8)
    digits = any(map(str.isdigit, value))
    letters = any(map(str.isalpha, value))
    signs = any(not each.isalnum() and each not in "-_./:'’" for each in value)
    return (digits and (letters or len(value) >= 6)) or signs or value.count("-") >= 2


def _is_said_password(value: str, quoted: bool) -> bool:
    """As `_is_password`, but for a sentence, where the next word is usually not a password."""
    if _is_placeholder(value) or _CODE.compiled.search(value) or "://" in value:
        return False
    digits = sum(map(str.isdigit, value))
    letters = any(map(str.isalpha, value))
    signs = any(not each.isalnum() and each not in "-_./:'’,%" for each in value)
    return bool(letters and (digits or signs)) or digits >= 6 or (quoted and len(value) >= 8)


# Secrets that are recognised by their own format


_PRIVATE_KEY = _Pattern(
    r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----"
    r"(?:[^-]|-(?!----))*(?:-----END (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----)?"
)
_PUTTY_KEY = _Pattern(r"Private-Lines: \d+\s+(?P<v>(?:[A-Za-z0-9+/=]{20,}\s*)+)")
_ADDRESS = _Pattern(r"://(?P<u>[^\s:/@\"'<>]{0,100}):(?P<v>[^\s@/\"'<>]{3,200})@(?=[\w\[%$-])")
_SIGNATURE = _Pattern(
    r"(?i)(?:AccountKey=|SharedAccessKey=|[?&](?:sig|X-Amz-Signature)=)(?P<v>[A-Za-z0-9%+/_-]{32,}=*)"
)
_CREDENTIALS = _Pattern(
    r"(?i)\b(?:bearer|basic)\s+(?P<v>[A-Za-z0-9+/_.~-]{16,2000}={0,2})(?![\w-])"
)
_LOGIN = _Pattern(
    r"(?:(?<!\S)(?:-u|--user)[ =][\"']?[\w.@+-]{1,100}:|\blogin\s+\S{1,100}\s+password\s+"
    r"|\bsshpass\s+-p ?)[\"']?(?P<v>[^\s\"']{4,200})"
)


def _find_private_keys(text: str) -> Iterator[Secret]:
    for match in _PRIVATE_KEY.compiled.finditer(text):
        if len(match[0]) >= 80:
            yield Secret(*match.span(), "private key")
    for match in _PUTTY_KEY.compiled.finditer(text):
        yield Secret(*match.span("v"), "private key")


def _find_in_urls_and_commands(text: str) -> Iterator[Secret]:
    """Yield secrets in URLs and command lines; a pattern is used only if its usual word occurs."""
    if "://" in text:
        for match in _ADDRESS.compiled.finditer(text):
            if match["v"] != match["u"] and not _is_placeholder(match["v"]):
                yield Secret(*match.span("v"), "password in an address")
    if "=" in text:
        for match in _SIGNATURE.compiled.finditer(text):
            yield Secret(*match.span("v"), "signature")
    if "-u" in text or "login" in text or "sshpass" in text or "--user" in text:
        for match in _LOGIN.compiled.finditer(text):
            if _is_password(match["v"], quoted=False):
                yield Secret(*match.span("v"), "password")


# Tokens that are recognised by their prefix


_RUN = _Pattern(rf"[A-Za-z0-9_.:/+=-]{{{RUN_CHARS},}}")
# A whole text without a long run. The quantifiers never give back what they have matched.
_SHORT_RUNS = re.compile(rf"(?:\S{{0,{RUN_CHARS - 1}}}+\s++)*+\S{{0,{RUN_CHARS - 1}}}+\Z")
_START, _END = r"(?<![A-Za-z0-9_])", r"(?![A-Za-z0-9_])"
_ALONE, _ALONE_END = r"(?<![A-Za-z0-9+/_-])", r"(?![A-Za-z0-9+/_-])"
_ID = "[A-Za-z0-9_-]"

# (kind, prefixes of its tokens or words in them, pattern of the whole token)
_TOKENS = (
    ("aws key", "AKIA ASIA ABIA ACCA AGPA AIDA AROA AIPA ANPA ANVA",
     _ALONE + "A(?:KIA|SIA|BIA|CCA|GPA|IDA|ROA|IPA|NPA|NVA)[A-Z2-7]{16}" + _ALONE_END),
    ("github token", "ghp_ gho_ ghu_ ghs_ ghr_", "gh[pousr]_[A-Za-z0-9]{36,251}"),
    ("github token", "github_pat_", r"github_pat_\w{22,255}"),
    ("gitlab token", "glpat- gldt- glrt- glcbt- glptt- glft-", f"gl[a-z]{{2,4}}-{_ID}{{20,}}"),
    ("slack token", "xox", "xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    ("slack token", "xapp-", r"xapp-\d-[A-Za-z0-9-]{20,}"),
    ("slack address", "hooks.slack.com",
     r"hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9_/]{20,}"),
    ("discord address", "/api/webhooks/", rf"discord(?:app)?\.com/api/webhooks/\d+/{_ID}{{40,}}"),
    ("discord token", ". ",
     _ALONE + rf"[MNO][A-Za-z\d]{_ID}{{22,24}}\.{_ID}{{6}}\.{_ID}{{27,40}}" + _ALONE_END),
    ("telegram token", ":AA", rf"\d{{8,10}}:AA{_ID}{{33}}" + _ALONE_END),
    ("stripe key", "sk_live_ sk_test_ rk_live_ rk_test_", "[sr]k_(?:live|test)_[A-Za-z0-9]{16,}"),
    ("stripe key", "whsec_", "whsec_[A-Za-z0-9+/=]{24,}"),
    ("api key", "sk-", f"sk-(?:ant-|proj-|svcacct-|admin-|or-v1-|lf-)?{_ID}{{20,}}"),
    ("api key", "hf_", "hf_[A-Za-z0-9]{34}"),
    ("api key", "r8_", "r8_[A-Za-z0-9]{37}"),
    ("api key", "gsk_", "gsk_[A-Za-z0-9]{48,}"),
    ("api key", "xai-", "xai-[A-Za-z0-9]{60,}"),
    ("api key", "pplx-", "pplx-[A-Za-z0-9]{40,}"),
    ("api key", "nvapi-", f"nvapi-{_ID}{{60,}}"),
    ("api key", "tvly-", "tvly-(?:dev-)?[A-Za-z0-9]{30,}"),
    ("api key", "lsv2_", "lsv2_[ps][tk]_[a-f0-9]{32}_[a-f0-9]{10}"),
    ("google key", "AIza", f"AIza{_ID}{{35}}"),
    ("google key", "ya29.", rf"ya29\.{_ID}{{20,}}"),
    ("google key", "GOCSPX-", f"GOCSPX-{_ID}{{28}}"),
    ("npm token", "npm_", "npm_[A-Za-z0-9]{36}" + _END),
    ("pypi token", "pypi-Ag", f"pypi-Ag{_ID}{{50,}}"),
    ("docker token", "dckr_pat_", f"dckr_pat_{_ID}{{27}}"),
    ("digitalocean token", "_v1_", "do[opr]_v1_[a-f0-9]{64}"),
    ("databricks token", "dapi", r"dapi[a-f0-9]{32}(?:-\d)?"),
    ("vault token", "hvs. hvb.", rf"hv[sb]\.{_ID}{{24,}}"),
    ("doppler token", "dp.", r"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9-]+\.)?[A-Za-z0-9]{40,}"),
    ("terraform token", ".atlasv1.", rf"[A-Za-z0-9]{{14}}\.atlasv1\.{_ID}{{60,}}"),
    ("planetscale token", "pscale_", f"pscale_(?:tkn|pw|oauth)_{_ID}{{32,}}"),
    ("supabase token", "sbp_", "sbp_[a-f0-9]{40}"),
    ("fly token", "fo1_", f"fo1_{_ID}{{40,}}"),
    ("sendgrid key", "SG.", rf"SG\.{_ID}{{16,32}}\.{_ID}{{16,64}}"),
    ("mailgun key", "key-", "key-[0-9a-f]{32}" + _END),
    ("mailchimp key", "-us", r"[0-9a-f]{32}-us\d{1,2}" + _END),
    ("twilio key", "SK", "SK[0-9a-f]{32}" + _END),
    ("shopify token", "shp", "shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"),
    ("square token", "sq0", f"sq0(?:atp|csp|idp)-{_ID}{{22,43}}"),
    ("notion token", "ntn_", "ntn_[A-Za-z0-9]{40,}"),
    ("notion token", "secret_", "secret_[A-Za-z0-9]{43}" + _END),
    ("linear key", "lin_api_", "lin_api_[A-Za-z0-9]{40}"),
    ("figma token", "figd_", f"figd_{_ID}{{40,}}"),
    ("airtable token", "pat", r"pat[A-Za-z0-9]{14}\.[a-f0-9]{64}"),
    ("atlassian token", "ATATT", "ATATT3[A-Za-z0-9_=-]{50,}"),
    ("sentry token", "sntry", "sntry[su]_[A-Za-z0-9_=+/-]{40,}"),
    ("grafana token", "glsa_", "glsa_[A-Za-z0-9]{32}_[a-f0-9]{8}"),
    ("new relic key", "NRAK-", "NRAK-[A-Z0-9]{27}"),
    ("postman key", "PMAK-", "PMAK-[a-f0-9]{24}-[a-f0-9]{34}"),
    ("posthog key", "phx_", "phx_[A-Za-z0-9]{40,}"),
    ("json web token", "eyJ", rf"eyJ{_ID}{{8,}}\.eyJ{_ID}{{8,}}\.{_ID}{{10,}}"),
    ("age key", "AGE-SECRET-KEY-1", "AGE-SECRET-KEY-1[A-Z0-9]{58}"),
    ("access token", "cpt_ cpo_ cpr_", f"cp[tor]_{_ID}{{40,}}"),
)  # fmt: skip
_TOKEN_PATTERNS = [
    (kind, tuple(words.split()), _Pattern(_START + expression))
    for kind, words, expression in _TOKENS
]


def _known_tokens(run: str) -> Iterator[Secret]:
    for kind, words, pattern in _TOKEN_PATTERNS:
        for word in words:
            if word in run:
                break
        else:
            continue
        for match in pattern.compiled.finditer(run):
            if not _is_placeholder(match[0]) and _entropy(match[0]) >= 2.8:
                yield Secret(*match.span(), kind)


# Passwords and keys that are recognised by the word before them


_PASSWORDS = ("passw", "passphrase", "passcode", "pwd", "kennwort", "_pass", "-pass")
_KEYS = ("key", "token", "secret", "credential", "auth", "bearer", "basic")
# Lower-case words; every secret of a text is near one of them, or has a long run.
_HINTS = ("pass", "pwd", "kennwort", *_KEYS, "://", "-u")
_NAME = _Pattern(r"[\w.-]{0,40}\Z")
_REST = r"[\w.-]{0,40}"  # the rest of the name
# A sign between the name and the value, with optional quotes around both.
_GIVES = r"[\"'`]?\]?\s{0,3}(?::=|=>|==?|:)\s{0,3}(?P<q>[\"'`]?)"
_IS = r"\b[^.\n=:]{0,60}?\s(?:is|was|to|ist|lautet|war)\s*(?:now\s|jetzt\s)?:?\s{0,2}(?P<q>[\"'`]?)"
_VALUE = r"(?P<v>[A-Za-z0-9+/_=.~@!#%^&*-]{12,512})"
_PHRASE = r"(?P<v>[^\s\"'`,;)<>\]]{6,200})"
_SAID_END = r"(?=[\"'`]|[.,;!?)]?(?:\s|$))"
_GIVEN_PASSWORD = _Pattern(rf"(?P<n>{_REST}){_GIVES}{_PHRASE}")
_SAID_PASSWORD = _Pattern(rf"(?P<n>\w*){_IS}(?P<v>[^\s\"'`]{{6,200}}?){_SAID_END}")
_OPTION = _Pattern(r"(?P<n>[\w-]{0,20})[ =](?P<q>[\"']?)(?P<v>[^\s\"']{6,200})")
_GIVEN_KEY = _Pattern(rf"(?P<n>{_REST}){_GIVES}{_VALUE}")
_SAID_KEY = _Pattern(rf"(?P<n>\w*){_IS}{_VALUE}(?=[\"'`.,;!?)\s]|$)")
# Names of keys that are secrets; "key" alone is not one.
_KEY_OF = _Pattern(
    r"(?i)(?:api|access|secret|private|auth|encryption|encrypt|signing|master|account|license|service"
    r"|storage|session|client|app|consumer|shared|webhook|deploy|admin|root|subscription"
    r"|instrumentation|jwt|cookie|hmac|aws|gcp|azure|openai|anthropic|stripe|slack|github|gitlab|npm"
    r"|cloudflare|datadog|heroku|twilio|mailgun|algolia|segment|sentry)[_. -]{0,3}\Z"
)


def _find_named_secrets(text: str) -> Iterator[Secret]:
    folded = text.lower()
    if len(folded) != len(text):  # A few letters have longer lower-case forms.
        folded = "".join(each if len(each.lower()) > 1 else each.lower() for each in text)
    for word in (word for word in _PASSWORDS if word in folded):
        for at in _occurrences(folded, word):
            if (found := _password_at(text, at)) is not None:
                yield found
    for word in (word for word in _KEYS if word in folded):
        for at in _occurrences(folded, word):
            if (found := _key_at(text, at, word)) is not None:
                yield found


def _occurrences(text: str, word: str) -> Iterator[int]:
    at = text.find(word)
    while at >= 0:
        yield at
        at = text.find(word, at + len(word))


def _name_before(text: str, at: int) -> str:
    """Return the part of a name that ends at a position."""
    found = _NAME.compiled.search(text, max(0, at - 40), at)
    return found[0] if found else ""


def _password_at(text: str, at: int) -> Secret | None:
    before = _name_before(text, at)
    match = _OPTION.compiled.match(text, at) if before.startswith("--") else None
    if match and _is_said_password(match["v"], bool(match["q"])):
        return Secret(*match.span("v"), "password")
    for expression, believable in (
        (_GIVEN_PASSWORD, _is_password), (_SAID_PASSWORD, _is_said_password)
    ):  # fmt: skip
        match = expression.compiled.match(text, at)
        if match is None or _NOT_SECRET_NAME.compiled.search(before + match["n"]):
            continue
        if believable(match["v"], bool(match["q"])):
            return Secret(*match.span("v"), "password")
    return None


def _key_at(text: str, at: int, word: str) -> Secret | None:
    if word in ("bearer", "basic"):
        match = _CREDENTIALS.compiled.match(text, at)
        good = match is not None and _looks_random(match["v"])
        return Secret(*match.span("v"), "credentials") if match and good else None
    before = _name_before(text, at)
    if word == "key" and not _KEY_OF.compiled.search(text, max(0, at - 24), at):
        return None
    if (
        before.startswith("--")
        and (match := _OPTION.compiled.match(text, at))
        and _is_key(match["v"])
    ):
        return Secret(*match.span("v"), "key")
    for expression in (_GIVEN_KEY, _SAID_KEY):
        match = expression.compiled.match(text, at)
        if (
            match
            and not _NOT_SECRET_NAME.compiled.search(before + match["n"])
            and _is_key(match["v"])
        ):
            return Secret(*match.span("v"), "key")
    return None


KINDS = (
    "private key", "password in an address", "signature", "password", "key", "credentials",
    *dict.fromkeys(kind for kind, _, _ in _TOKENS),
)  # fmt: skip
"""All kinds of secrets, as named in the marks that replace them."""
