// Agents: what may come in, beings, and workspaces with steps that wait for a person.

import {ApiError, get, post, remove} from "../api.js";
import {count, el, moment, quoted, shown} from "../dom.js";
import {button, busy, card, confirmed, copyButton, empty, page, toast} from "../ui.js";

const SORTS = {token: "Token", oauth: "Allowed app", signed: "Signed token", session: "Browser session"};

export async function render(context) {
  const {may, signal} = context;
  const [tokens, beings, workspaces] = await Promise.all([
    may("admin") ? optional("/api/console/tokens", signal) : null,
    optional("/v1/beings", signal),
    optional("/v1/workspaces", signal),
  ]);
  return page("Agents", {lede: "Who may use this memory, and who lives in it."},
    connectCard(),
    may("admin") && tokensCard(tokens?.tokens ?? [], context),
    await beingsCard(beings, signal),
    await workspacesCard(workspaces, context));
}

/** What a part of the server answers; null where this credential may not ask for it. */
async function optional(path, signal) {
  try {
    return await get(path, {}, {signal});
  } catch (error) {
    if (error instanceof ApiError && [401, 403, 404].includes(error.status)) return null;
    throw error;
  }
}

function connectCard() {
  const lines = ["commonplace connect claude-code", "commonplace token create --name laptop", "commonplace invite NAME --url ADDRESS"];
  return card("Connect an agent",
    el("p", {class: "muted"}, "On the machine of the agent, in a terminal:"),
    el("ul", {class: "terminal"}, lines.map((line) => el("li", {}, el("code", {}, line), copyButton(line, `Copy ${line}`)))));
}

function tokensCard(tokens, {refresh}) {
  const live = tokens.filter((one) => one.state === "live");
  const ended = tokens.length - live.length;
  const rows = live.map((one) => el("li", {},
    el("div", {class: "words"},
      el("strong", {}, one.name ? quoted(one.name) : SORTS[one.sort] ?? one.sort),
      el("p", {class: "muted"}, [
        SORTS[one.sort] ?? one.sort, one.scope, one.dialects ? one.dialects.join(", ") : "every contract", `for ${one.user}`,
      ].join(" · "), " · ", one.last_used ? ["last used ", moment(one.last_used)] : "never used",
      one.expires_at && [" · until ", moment(one.expires_at, {exact: true})])),
    one.own ? el("span", {class: "muted"}, "this session") : button("Revoke", {kind: "danger", onclick: (event) => revoke(one, event.currentTarget, refresh)})));
  return card("Credentials",
    rows.length ? el("ul", {class: "rows"}, rows) : el("p", {class: "muted"}, "None yet: on this machine agents need no token."),
    ended > 0 && el("p", {class: "muted"}, `${count(ended, "credential has", "credentials have")} ended.`));
}

async function revoke(one, control, refresh) {
  const sure = await confirmed("Revoke this credential?",
    "Whoever uses it is refused within seconds. This cannot be taken back; a new one can be made.", {action: "Revoke"});
  if (!sure) return;
  try {
    await busy(control, () => remove(`/api/console/tokens/${encodeURIComponent(one.id)}`));
    toast("Revoked.");
    refresh();
  } catch (error) {
    toast(error.message, {error: true});
  }
}

async function beingsCard(found, signal) {
  if (!found) return null;
  const list = Array.isArray(found) ? found : found.beings ?? [];
  if (!list.length) return card("Beings", el("p", {class: "muted"}, "None yet. Make one with ", el("code", {}, "commonplace being create NAME"), "."));
  return card("Beings", el("ul", {class: "rows"}, list.map((one) => beingRow(one, signal))));
}

function beingRow(one, signal) {
  const body = el("div", {});
  const made = el("details", {ontoggle: async () => {
    if (!made.open || body.childElementCount) return;
    body.replaceChildren(el("p", {class: "muted"}, "Reading…"));
    try {
      body.replaceChildren(...await beingParts(one.id, signal));
    } catch (error) {
      body.replaceChildren(el("p", {class: "problem"}, shown(error.message)));
    }
  }}, el("summary", {}, el("strong", {}, quoted(one.name ?? one.id)), " ", el("span", {class: "muted"}, quoted(one.id))), body);
  return el("li", {}, made);
}

async function beingParts(id, signal) {
  const root = `/v1/beings/${encodeURIComponent(id)}`;
  const parts = [["Soul", "soul"], ["Rules", "rules"], ["Notes", "notes"], ["Relationships", "relationships"], ["Preferences", "preferences"]];
  const found = await Promise.all(parts.map(([, path]) => optional(`${root}/${path}`, signal)));
  const waiting = await optional(`${root}/act/pending`, signal);
  const nodes = parts.map(([title], index) => found[index] && el("section", {}, el("h3", {}, title), tree(found[index])));
  if (waiting) nodes.push(el("section", {}, el("h3", {}, "Waiting for approval"), tree(waiting)));
  return nodes.filter(Boolean);
}

/** Plain JSON as nested lists, every text shown as text. */
function tree(value, depth = 0) {
  if (value === null || typeof value !== "object") return el("span", {dir: "auto"}, shown(value ?? "—"));
  const entries = Object.entries(value);
  if (!entries.length || depth > 5) return el("span", {class: "muted"}, Array.isArray(value) ? "none" : "empty");
  if (Array.isArray(value)) return el("ul", {}, value.map((one) => el("li", {}, tree(one, depth + 1))));
  return el("dl", {class: "facts"}, entries.map(([name, one]) => [el("dt", {}, shown(name)), el("dd", {}, tree(one, depth + 1))]));
}

async function workspacesCard(found, context) {
  if (!found) return null;
  const list = found.workspaces ?? (Array.isArray(found) ? found : []);
  if (!list.length) return card("Workspaces", el("p", {class: "muted"}, "None yet. Make one with ", el("code", {}, "commonplace workspace create NAME"), "."));
  return card("Workspaces", el("ul", {class: "rows"}, list.map((one) => workspaceRow(one, context))));
}

function workspaceRow(one, context) {
  const name = one.slug ?? one.name ?? one.id;
  const root = `/v1/workspaces/${encodeURIComponent(name)}`;
  const body = el("div", {});
  const made = el("details", {ontoggle: async () => {
    if (!made.open || body.childElementCount) return;
    const [agents, conversations] = await Promise.all([
      optional(`${root}/agents`, context.signal), optional(`${root}/conversations`, context.signal),
    ]);
    body.replaceChildren(
      el("h3", {}, "Agents"), agents ? tree(agents) : el("p", {class: "muted"}, "none"),
      el("h3", {}, "Conversations"), conversations ? tree(conversations) : el("p", {class: "muted"}, "none"),
      approval(root));
  }}, el("summary", {}, el("strong", {}, quoted(name))), body);
  return el("li", {}, made);
}

function approval(root) {
  const id = el("input", {name: "id", "aria-label": "Execution", placeholder: "ID of an execution that waits", autocomplete: "off"});
  const decide = (action, told) => async (event) => {
    try {
      await busy(event.currentTarget, () => post(`${root}/executions/${encodeURIComponent(id.value.trim())}/${action}`));
      toast(told);
    } catch (error) {
      toast(error.message, {error: true});
    }
  };
  return el("section", {}, el("h3", {}, "A step that waits for approval"), id,
    el("div", {class: "actions"}, button("Approve", {kind: "main", onclick: decide("approve", "Approved.")}),
      button("Refuse", {kind: "danger", onclick: decide("cancel", "The execution is cancelled.")})));
}
