// Audit: every call, who made it, and whether the log is as it was written.

import {get} from "../api.js";
import {client, count, el, moment, number, quoted, shown} from "../dom.js";
import {busy, button, card, empty, field, page, select, toast} from "../ui.js";

const PAGE = 50;
const EXPORTED = 1000; // calls that each request of an export asks for
const OUTCOMES = [["", "All calls"], ["true", "Successful"], ["false", "Refused or failed"]];

export async function render({query, go, signal}) {
  const filters = {
    since: query.get("since") ?? "", until: query.get("until") ?? "",
    tool: query.get("tool") ?? "", caller: query.get("caller") ?? "", success: query.get("success") ?? "",
  };
  const asked = {...filters, before: query.get("before") ?? "", limit: PAGE};
  const {calls} = await get("/api/console/audit", asked, {signal});
  const at = (more) => {
    const kept = new URLSearchParams(Object.entries({...filters, ...more}).filter(([, value]) => value));
    return kept.size ? `/viewer/audit?${kept}` : "/viewer/audit";
  };
  const verdict = el("p", {role: "status", class: "muted"});
  return page("Audit", {
    lede: "Every call that reached this space, refused ones too. Each entry holds the hash of the one before it.",
    actions: [
      button("Verify the log", {onclick: (event) => busy(event.currentTarget, () => verify(verdict))}),
      button("Export", {icon: "copy", disabled: !calls.length, onclick: (event) => busy(event.currentTarget, () => exported(filters, verdict, signal))}),
    ],
  },
  verdict,
  filterForm(filters, (chosen) => go(at(chosen))),
  calls.length ? card("", el("ol", {class: "rows audit"}, calls.map(row)))
    : empty("No such call", "Nothing in the log meets these conditions."),
  el("nav", {class: "actions", "aria-label": "Pages"},
    asked.before && el("a", {class: "button", href: at({})}, "Newest"),
    calls.length === PAGE && el("a", {class: "button", href: at({before: String(calls.at(-1).num)})}, "Earlier calls")));
}

function filterForm(filters, choose) {
  const made = el("form", {class: "filters", onsubmit: (event) => {
    event.preventDefault();
    const {since, until, ...others} = Object.fromEntries(new FormData(made));
    choose({...others, since, until: until && `${until}T23:59:59.999Z`});
  }},
  field("Tool or route", el("input", {name: "tool", value: filters.tool, autocomplete: "off"})),
  field("Caller", el("input", {name: "caller", value: filters.caller, autocomplete: "off"})),
  field("From", el("input", {name: "since", type: "date", value: filters.since})),
  field("To", el("input", {name: "until", type: "date", value: filters.until.slice(0, 10)})),
  field("Outcome", select(OUTCOMES, filters.success, {name: "success", onchange: () => made.requestSubmit()})),
  el("div", {class: "actions"}, el("button", {type: "submit"}, "Show")));
  return made;
}

function row(call) {
  const who = [call.caller || "nobody known", client(call.client)].filter(Boolean);
  const body = el("dl", {class: "facts"});
  const made = el("details", {ontoggle: () => { if (made.open && !body.childElementCount) fill(body, call); }},
    el("summary", {},
      el("span", {class: call.success ? "state good" : "state bad"}, call.success ? "done" : "refused"),
      " ", el("strong", {}, quoted(call.tool)), " ",
      el("span", {class: "muted"}, who.map((part, index) => [index ? " · " : "", quoted(part)]).flat(), " · ",
        moment(call.at), ` · ${number(call.milliseconds)} ms`)),
    body);
  return el("li", {}, made);
}

async function fill(body, {num}) {
  try {
    const {call} = await get("/api/console/audit/entry", {num});
    body.append(...[
      line("Number", String(call.num)), line("When", moment(call.at, {exact: true})),
      line("Dialect", call.dialect), line("Credential", call.credential), line("Address", call.address),
      line("Request", call.request), line("Error", call.error && quoted(call.error)),
      line("Arguments", pre(call.arguments)), line("Answer", pre(call.result)),
    ].filter(Boolean).flat());
  } catch (error) {
    toast(error.message, {error: true});
  }
}

function line(name, value) {
  return value ? [el("dt", {}, name), el("dd", {}, value)] : null;
}

function pre(text) {
  return text === null ? el("em", {}, "deleted by a purge") : el("pre", {dir: "auto", tabindex: "0"}, shown(text));
}

async function verify(told) {
  try {
    const found = await get("/api/console/audit/verify");
    const faults = found.faults.length;
    told.replaceChildren(faults
      ? `${count(faults, "entry is", "entries are")} not as written: ${found.faults.join("; ")}`
      : `All ${count(found.entries, "entry", "entries")} are as they were written. Head: ${found.head.slice(0, 16) || "none"}`);
    told.className = faults ? "problem" : "good";
  } catch (error) {
    toast(error.message, {error: true});
  }
}

/** Download every call that meets the conditions, one JSON object a line, the newest first. */
async function exported(filters, told, signal) {
  const parts = [];
  let many = 0;
  try {
    for (let before = ""; ;) {
      const {calls} = await get("/api/console/audit", {...filters, before, limit: EXPORTED}, {signal});
      parts.push(...calls.map((call) => `${JSON.stringify(call)}\n`));
      many += calls.length;
      told.replaceChildren(`Exporting: ${count(many, "call")} so far…`);
      if (calls.length < EXPORTED) break;
      before = String(calls.at(-1).num);
    }
  } catch (error) {
    if (error.name !== "AbortError") toast(error.message, {error: true});
    told.replaceChildren();
    return;
  }
  told.replaceChildren(`${count(many, "call")} exported.`);
  const address = URL.createObjectURL(new Blob(parts, {type: "application/x-ndjson"}));
  el("a", {href: address, download: "audit.jsonl"}).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
