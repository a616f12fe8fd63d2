"""The HTML pages of OAuth: login, consent, device code and errors.

The pages have no scripts and load nothing from other servers. A client's own name is shown in
quotation marks, followed by its verified host or by a warning.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from commonplace.access.accounts import Account
from commonplace.access.declarations import OFFLINE_ACCESS
from commonplace.access.oauth.server import Request

STYLE_PATH = "/oauth/style.css"
DEVICE_PATH = "/oauth/device"


def login_page(request: Request, token: str, *, name: str = "", message: str = "") -> str:
    """Return the login page."""
    return _page(
        "Log in",
        f"""
{_message(message)}
<p>{_client_name(request)} wants to connect to your memory. Log in to decide.</p>
<form method="post" action="{_form_action(request)}" autocomplete="on">
{_hidden_fields(request, token)}
<label for="name">Name</label>
<input id="name" name="name" value="{escape(name)}" required maxlength="200"
  autocomplete="username" autocapitalize="none" spellcheck="false"{_autofocus(not name)}>
<label for="password">Password</label>
<input id="password" name="password" type="password" required maxlength="1024"
  autocomplete="current-password"{_autofocus(bool(name))}>
<div class="buttons">
<button class="main" name="action" value="login">Log in</button>
<button name="action" value="leave" formnovalidate>Cancel</button>
</div>
</form>
""",
    )


def consent_page(
    request: Request, token: str, account: Account, *, subject: str = "", message: str = ""
) -> str:
    """Return the consent page."""
    return _page(
        "Allow access?",
        f"""
{_message(message)}
<p>{_client_name(request)} wants to connect to your memory through {_resource_title(request)}.</p>
{_client_identity(request)}
<form method="post" action="{_form_action(request)}">
{_hidden_fields(request, token)}
{_scope_choice(request)}
{_space_choice(account.spaces)}
{_subject_choice(request, subject)}
<p class="note">{_redirect_note(request)}
It keeps access until you take it back, or until it is not used for 30 days.</p>
<div class="buttons">
<button class="main" name="action" value="allow">Allow</button>
<button name="action" value="deny" formnovalidate>Do not allow</button>
</div>
<p class="who">Logged in as <strong>{escape(account.name)}</strong>.
<button class="link" name="action" value="switch" formnovalidate>Not you?</button></p>
</form>
""",
    )


def code_page(token: str, *, typed: str = "", message: str = "") -> str:
    """Return the page that asks for a device's code."""
    return _page(
        "Connect a device",
        f"""
{_message(message)}
<p>A program or device shows a code of eight letters. Compare it, or type it in.</p>
<form method="post" action="{DEVICE_PATH}">
<input type="hidden" name="token" value="{escape(token)}">
<label for="code">Code</label>
<input id="code" name="code" value="{escape(typed)}" required maxlength="20"
  autocomplete="off" autocapitalize="characters" spellcheck="false"
  placeholder="XXXX-XXXX"{_autofocus(True)}>
<div class="buttons">
<button class="main" name="action" value="find">Continue</button>
</div>
</form>
<p class="note">Go on only if you have just started this yourself. Somebody who sends you a code
wants to use your memory.</p>
""",
    )


def decision_page(*, allowed: bool) -> str:
    """Return the page after a device was allowed or denied."""
    if allowed:
        words = "The device is connected. You can close this page and go back to it."
    else:
        words = "The device was not allowed to connect. You can close this page."
    return _page("Done", f"<p>{words}</p>")


def error_page(message: str) -> str:
    """Return the error page."""
    return _page(
        "Authorization failed",
        f"""
<p>{escape(message)}</p>
<p class="note">Nothing was allowed. Go back to the program that sent you here and start again. If
it happens again, report the message above to its developers.</p>
""",
    )


def _client_name(request: Request) -> str:
    return f"<strong class='client'>“<bdi>{escape(request.asked.client.name)}</bdi>”</strong>"


def _resource_title(request: Request) -> str:
    return f"<strong>{escape(request.audience.resource.title)}</strong>"


def _client_identity(request: Request) -> str:
    host = request.asked.client.host
    if host:
        known = f"It is identified by <strong>{escape(host)}</strong>."
    else:
        known = "It chose that name itself; nobody has checked it."
    if request.asked.redirect is None:
        shown = f"<strong>{escape(request.asked.query)}</strong>"
        known += f" Go on only if you have just started this yourself and it shows {shown}."
    elif request.asked.redirect.scheme != "https":
        known += " Go on only if you have just started this on this device yourself."
    return f'<p class="identity">{known}</p>'


def _form_action(request: Request) -> str:
    return "/oauth/authorize" if request.asked.redirect is not None else DEVICE_PATH


def _redirect_note(request: Request) -> str:
    if request.asked.redirect is None:
        return "When you allow it, the device is connected."
    target = escape(request.asked.redirect.target_text)
    return f"When you allow it, you are sent to <strong>{target}</strong>."


def _scope_choice(request: Request) -> str:
    permissions = request.audience.resource.permissions
    asked = [name for name in request.scopes if name != OFFLINE_ACCESS]
    if len(asked) == 1:
        words = escape(permissions[asked[0]].description)
        return f"""<p class="heading" id="may">It may</p>
<ul aria-labelledby="may"><li>{words}</li></ul>
<input type="hidden" name="scope {escape(asked[0])}" value="yes">"""
    boxes = "\n".join(
        f"""<label class="choice"><input type="checkbox" name="scope {escape(name)}" value="yes"
 checked><span>{escape(permissions[name].description)}</span></label>"""
        for name in asked
    )
    return f"<fieldset><legend>It may</legend>\n{boxes}\n</fieldset>"


def _space_choice(spaces: Sequence[str]) -> str:
    if len(spaces) == 1:
        name = escape(spaces[0])
        return f"""<p>In your space <strong>{name}</strong> only.</p>
<input type="hidden" name="space" value="{name}">"""
    if len(spaces) > 8:
        options = "".join(f"<option>{escape(name)}</option>" for name in spaces)
        return f"""<label for="space">In this space only</label>
<select id="space" name="space">{options}</select>"""
    choices = "\n".join(
        f"""<label class="choice"><input type="radio" name="space" value="{escape(name)}"
 required{" checked" if name == spaces[0] else ""}><span>{escape(name)}</span></label>"""
        for name in spaces
    )
    return f"<fieldset><legend>In this space only</legend>\n{choices}\n</fieldset>"


def _subject_choice(request: Request, subject: str) -> str:
    noun = escape(request.audience.resource.subject)
    if not noun:
        return ""
    if request.audience.subject:
        return f"<p>As the {noun} <strong>{escape(request.audience.subject)}</strong>.</p>"
    return f"""<label for="subject">As which {noun}</label>
<input id="subject" name="subject" value="{escape(subject)}" required maxlength="128"
  pattern="[A-Za-z0-9][A-Za-z0-9._:\\-]*" autocapitalize="none" spellcheck="false"
  aria-describedby="subject-note">
<p class="note below" id="subject-note">The {noun}'s id, as <code>commonplace {noun} list</code>
shows it.</p>"""


def _hidden_fields(request: Request, token: str) -> str:
    return f"""<input type="hidden" name="request" value="{escape(request.asked.query)}">
<input type="hidden" name="token" value="{escape(token)}">"""


def _message(text: str) -> str:
    return f'<p class="message" role="alert">{escape(text)}</p>' if text else ""


def _autofocus(wanted: bool) -> str:
    return " autofocus" if wanted else ""


def _page(title: str, content: str) -> str:
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>{escape(title)} · Commonplace</title>
<link rel="stylesheet" href="{STYLE_PATH}">
</head>
<body>
<main>
<p class="brand">Commonplace</p>
<h1>{escape(title)}</h1>
{content.strip()}
</main>
</body>
</html>
"""


STYLE = """
:root {
  color-scheme: light dark;
  --ink: #1d2430; --soft: #566072; --paper: #ffffff; --desk: #eef0f4; --line: #c9ced8;
  --main: #24489e; --main-ink: #ffffff; --alert: #8f1d1d; --alert-paper: #fdeeee;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ink: #e8ebf1; --soft: #a5aebd; --paper: #1d222c; --desk: #12151b; --line: #454d5c;
    --main: #9db8ff; --main-ink: #10182c; --alert: #ffb4b4; --alert-paper: #3a1d20;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; min-height: 100vh; display: grid; place-items: center; padding: 1.5rem;
  background: var(--desk); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
}
main {
  width: 100%; max-width: 29rem; padding: 2rem; background: var(--paper);
  border: 1px solid var(--line); border-radius: .75rem; overflow-wrap: anywhere;
}
.brand { margin: 0; color: var(--soft); font-size: .9rem; letter-spacing: .03em; }
h1 { margin: .15rem 0 1rem; font-size: 1.5rem; line-height: 1.25; }
p { margin: 0 0 1rem; }
ul { margin: 0 0 1rem; padding-left: 1.25rem; }
.heading, legend, label { font-weight: 600; }
.heading { margin-bottom: .25rem; }
.below { margin-top: .25rem; }
.note, .identity, .who { color: var(--soft); font-size: .92rem; }
.message {
  padding: .75rem 1rem; border-left: .25rem solid var(--alert); border-radius: .25rem;
  background: var(--alert-paper); color: var(--alert);
}
label { display: block; margin: 1rem 0 .3rem; }
input:not([type=checkbox], [type=radio]), select {
  width: 100%; padding: .6rem .7rem; font: inherit; color: inherit; background: transparent;
  border: 1px solid var(--soft); border-radius: .4rem;
}
select { background: var(--paper); }
fieldset { margin: 0 0 1rem; padding: .25rem 1rem .75rem; border: 1px solid var(--line);
  border-radius: .5rem; }
legend { padding: 0 .35rem; }
.choice { display: flex; gap: .6rem; align-items: baseline; margin: .5rem 0 0; font-weight: 400; }
.choice input { flex: none; width: 1.05rem; height: 1.05rem; accent-color: var(--main); }
.buttons { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1.5rem 0 1rem; }
button {
  min-height: 2.75rem; padding: .5rem 1.25rem; font: inherit; font-weight: 600; cursor: pointer;
  color: var(--ink); background: transparent; border: 1px solid var(--soft); border-radius: .4rem;
}
button.main { color: var(--main-ink); background: var(--main); border-color: var(--main); }
button.link {
  min-height: 0; padding: .25rem; border: 0; color: var(--main); text-decoration: underline;
}
:focus-visible { outline: 3px solid var(--main); outline-offset: 2px; }
@media (max-width: 30rem) {
  body { padding: 0; place-items: stretch; } main { border: 0; border-radius: 0; }
}
"""
