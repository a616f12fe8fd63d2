// Tokens, allowed apps and sessions: what may come in, when it was used, and ending it.

import {post, remove} from "../../api.js";
import {count, el, moment, quoted} from "../../dom.js";
import {busy, button, card, confirmed, copyButton, dialog, field, form, select, toast} from "../../ui.js";
import {tell} from "./common.js";

const CLIENTS = ["claude-code", "claude-desktop", "cursor", "vscode", "codex", "windsurf", "gemini", "opencode", "openclaw"];
const SCOPES = [
  ["full", "Read, write and delete", ["read", "write", "delete"]],
  ["read-only", "Read only", ["read"]],
  ["admin", "Everything, tokens and the audit too", ["read", "write", "delete", "admin"]],
];
const CONTRACTS = ["commonplace", "being", "clawbrain", "mama", "orchestrator", "penfield"];
const LIFETIMES = [["", "Until it is revoked"], ["30", "30 days"], ["90", "90 days"], ["365", "A year"]];

/** A line for a terminal, to be copied. */
function line(text) {
  return el("li", {}, el("code", {}, text), copyButton(text, `Copy ${text}`));
}

const onThisMachine = () => ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);

/** The line that connects a client to this server. */
export function connectLine(client, {token = false} = {}) {
  if (onThisMachine() && !token) return `commonplace connect ${client}`;
  return `commonplace connect ${client} --transport http --url ${location.origin}/mcp/commonplace --token-env COMMONPLACE_TOKEN`;
}

export function connectCard() {
  const lines = el("ul", {class: "terminal"});
  const show = (client) => lines.replaceChildren(line(connectLine(client)));
  show(CLIENTS[0]);
  return card("Connect an agent",
    field("Client", select(CLIENTS.map((name) => [name, name]), CLIENTS[0], {onchange: (event) => show(event.currentTarget.value)}),
      "In a terminal on the machine of the agent:"),
    lines,
    !onThisMachine() && el("p", {class: "muted"}, "From another machine an agent needs a token, in the variable COMMONPLACE_TOKEN."));
}

export function credentialCards(all, context) {
  const live = all.filter((one) => one.state === "live");
  const ended = all.length - live.length;
  const of = (...sorts) => live.filter((one) => sorts.includes(one.sort));
  const apps = [...new Map(of("oauth").toReversed().map((one) => [one.family || one.id, one])).values()].toReversed();
  const newest = (one) => of("oauth").filter((each) => each.family && each.family === one.family).map((each) => each.last_used ?? "").sort().at(-1) || one.last_used;
  return [
    card("Tokens", list(of("token", "signed"), context, "No token yet. On this machine agents need none."),
      el("div", {class: "actions"}, button("Create a token", {icon: "plus", kind: "main", onclick: () => create(context)})),
      ended > 0 && el("p", {class: "muted"}, `${count(ended, "credential has", "credentials have")} ended.`)),
    card("Allowed apps", list(apps.map((one) => ({...one, last_used: newest(one)})), context,
      "No app was allowed yet. An app that signs in with OAuth asks for it on a page of this server.")),
    of("session").length > 0 && card("Browsers that are signed in", list(of("session"), context, "")),
  ];
}

function list(some, context, none) {
  if (!some.length) return el("p", {class: "muted"}, none);
  return el("ul", {class: "rows"}, some.map((one) => row(one, context)));
}

function row(one, {refresh}) {
  const name = one.name || (one.sort === "oauth" && one.client) || "Without a name";
  const contracts = one.dialects ? one.dialects.join(", ") : "every contract";
  return el("li", {},
    el("div", {class: "words"},
      el("strong", {}, quoted(name)),
      el("p", {class: "muted"}, `${one.scope} · ${contracts} · for `, quoted(one.user), one.being && " · one being only"),
      el("p", {class: "muted"}, "made ", moment(one.created_at), " · ", one.last_used ? ["last used ", moment(one.last_used)] : "never used",
        one.expires_at && [" · until ", moment(one.expires_at, {exact: true})])),
    one.own ? el("span", {class: "chip"}, "this session")
      : button("Revoke", {kind: "danger", "aria-label": `Revoke ${name}`, onclick: (event) => revoke(one, event.currentTarget, refresh)}));
}

async function revoke(one, control, refresh) {
  const sure = await confirmed("Revoke this credential?",
    "Whoever uses it is refused within seconds. This cannot be taken back; a new one can be made.", {action: "Revoke"});
  if (!sure) return;
  try {
    await busy(control, () => remove(`/api/console/tokens/${encodeURIComponent(one.id)}`));
    toast("Revoked.");
    await refresh();
  } catch (error) {
    tell(error);
  }
}

async function create({may, me, refresh}) {
  const scopes = SCOPES.filter(([, , needed]) => needed.every(may));
  const contracts = CONTRACTS.filter((name) => !me.dialects || me.dialects.includes(name));
  const made = await dialog("Create a token", (close) => form({
    action: "Create", cancel: () => close(),
    submit: async ({name, scope, dialect, days}) => close(await post("/api/console/tokens", {
      name, scope, ...(dialect && {dialects: [dialect]}), ...(days && {days: Number(days)}),
    })),
  },
  field("Name", el("input", {name: "name", autocomplete: "off", maxlength: "100", placeholder: "laptop"}), "To know it again in this list."),
  field("Allows", select(scopes.map(([value, title]) => [value, title]), scopes[0]?.[0] ?? "", {name: "scope"})),
  field("Contract", select([...contracts.map((name) => [name, name]), ...(me.dialects ? [] : [["", "every contract"]])], "commonplace", {name: "dialect"}),
    "Which tools an agent with this token gets."),
  field("Lasts", select(LIFETIMES, "90", {name: "days"}))));
  if (!made) return;
  await refresh();
  await show(made);
}

/** Show a new token, which nobody can see again. */
async function show({token, credential}) {
  if (!token) {
    toast("The token was made, but its answer was lost. Revoke it, and create another.", {error: true});
    return;
  }
  await dialog("The new token", (close) => [
    el("p", {}, "Copy it now. It is stored nowhere, and cannot be shown again."),
    el("ul", {class: "terminal"}, line(token)),
    el("h3", {}, "On the machine of the agent"),
    el("ul", {class: "terminal"}, line(`export COMMONPLACE_TOKEN=${token}`), line(connectLine(CLIENTS[0], {token: true}))),
    el("p", {class: "muted"}, "It allows: ", credential.scope, "."),
    el("div", {class: "actions"}, button("Done", {kind: "main", onclick: () => close()})),
  ], {wide: true});
}
