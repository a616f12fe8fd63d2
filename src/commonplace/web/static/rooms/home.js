// Home: what is remembered, what was recalled and by whom, and how the server is.

import {get} from "../api.js";
import {demoButton} from "../demo.js";
import {bytes, client, count, date, el, icon, moment, number, quoted, styled, svg} from "../dom.js";
import {TRUSTS, item, pastNotice, rememberButton} from "../memory-parts.js";
import {card, copyButton, page} from "../ui.js";

const COMMANDS = [
  ["Connect an agent", "commonplace connect"],
  ["Bring over what you have", "commonplace import FILE"],
  ["See a tour with sample memories", "commonplace demo"],
];

export async function render(context) {
  const {query, signal, go, may, me} = context;
  const asOf = query.get("as_of") ?? "";
  const found = await get("/api/console/overview", {as_of: asOf}, {signal});
  const actions = may("write") && !asOf ? [rememberButton(go)] : [];
  const offersDemo = may("admin") && !me.demo && !me.dialects;
  if (!found.total && !asOf) return welcome(found, actions, offersDemo && demoButton(context));
  return page("Home", {lede: told(found), actions},
    pastNotice(asOf, "/viewer"),
    searchForm(go, asOf),
    el("div", {class: "figures"},
      figure(number(found.total), "memories", "/viewer/memories"),
      figure(number(found.pinned), "pinned", "/viewer/memories?pinned=true"),
      found.proposals > 0 && figure(number(found.proposals), "in the inbox", "/viewer/inbox"),
      figure(number(today(found).recalls), "recalls today"),
      figure(found.disk.bytes === null ? "—" : bytes(found.disk.bytes), "on disk")),
    card("Stored in the last twelve weeks", weeks(found.days)),
    el("div", {class: "grid"},
      card("By kind", bars(found.kinds, "kind")),
      card("By client", found.clients.length ? bars(found.clients, "client") : el("p", {class: "muted"}, "No memory names the client that stored it.")),
      found.projects.length > 0 && card("By project", bars(found.projects, "project")),
      card("By trust", bars(found.trusts, "trust")),
      card("Today", use(found.use.today)),
      card("Clients", clients(found.use.clients)),
      card("The server", health(found), offersDemo && !asOf && el("div", {class: "actions"}, demoButton(context)))),
    card("Newest", el("ul", {class: "memories plain"}, found.recent.map((one) => item(one, {asOf})))));
}

function today(found) {
  const calls = found.use.today;
  return {recalls: calls.filter((each) => /recall|search|context|load|hook|awaken/.test(each.tool)).reduce((sum, each) => sum + each.calls, 0)};
}

function told(found) {
  const busiest = found.kinds[0];
  return busiest ? `${count(found.total, "memory", "memories")}. The most common kind is “${busiest[0]}”.` : "";
}

function searchForm(go, asOf) {
  const input = el("input", {type: "search", name: "q", placeholder: "What do you want to know?", "aria-label": "Search memories", autocomplete: "off", dir: "auto"});
  return el("form", {role: "search", onsubmit: (event) => {
    event.preventDefault();
    const asked = new URLSearchParams({...(input.value.trim() && {q: input.value.trim()}), ...(asOf && {as_of: asOf})});
    go(`/viewer/memories?${asked}`);
  }}, el("label", {class: "search"}, icon("search"), input));
}

function figure(value, label, href) {
  return el(href ? "a" : "div", {class: "figure", href}, el("strong", {}, value), el("span", {}, label));
}

function bars(pairs, filter) {
  const most = Math.max(1, ...pairs.map(([, many]) => many));
  const shown = pairs.slice(0, 7);
  const rest = pairs.slice(7).reduce((sum, [, many]) => sum + many, 0);
  return el("ul", {class: "bars-list"}, shown.map(([name, many]) => el("li", {},
    el("a", {href: `/viewer/memories?${filter}=${encodeURIComponent(name)}`, title: name}, quoted(filter === "client" ? client(name) : filter === "trust" ? TRUSTS[name] ?? name : name)),
    styled(el("span", {class: "bar-line", "aria-hidden": "true"}), {"--size": String(many / most)}),
    el("span", {class: "many"}, number(many)))),
  rest > 0 && el("li", {class: "muted"}, el("span", {}, "others"), el("span"), el("span", {class: "many"}, number(rest))));
}

/** A bar chart with a column for each day; a sentence with its sums is its label. */
function weeks(days) {
  const most = Math.max(1, ...days.map(([, many]) => many));
  const sum = days.reduce((all, [, many]) => all + many, 0);
  const columns = days.map(([day, many], index) => svg("rect", {
    x: index * 10 + 1.5, width: 7, y: many ? 100 - Math.max(4, (many / most) * 96) : 98, height: many ? Math.max(4, (many / most) * 96) : 2, rx: 2, class: many ? "some" : "none",
  }, svg("title", {}, `${date(day)}: ${many}`)));
  const words = `${count(sum, "memory", "memories")} in ${days.length} days; at most ${number(most)} in a day.`;
  return el("figure", {class: "weeks"},
    svg("svg", {viewBox: `0 0 ${days.length * 10} 100`, preserveAspectRatio: "none", role: "img", "aria-label": words}, columns),
    el("figcaption", {}, el("span", {}, date(days[0][0])), el("span", {}, words), el("span", {}, "today")));
}

function use(calls) {
  if (!calls.length) return el("p", {class: "muted"}, "No agent has asked for anything today.");
  return el("div", {class: "scrolls"}, el("table", {},
    el("thead", {}, el("tr", {}, ["Tool", "By", "Calls"].map((name) => el("th", {scope: "col"}, name)))),
    el("tbody", {}, calls.slice(0, 8).map((each) => el("tr", {},
      el("td", {}, quoted(each.tool)), el("td", {}, quoted(each.caller || "—")),
      el("td", {}, number(each.calls), each.refused > 0 && el("span", {class: "chip warn"}, `${number(each.refused)} refused`)))))));
}

function clients(some) {
  if (!some.length) return el("p", {class: "muted"}, "No client has called in the last thirty days.");
  return el("ul", {class: "entries"}, some.slice(0, 6).map((each) => el("li", {}, el("div", {class: "way"},
    el("strong", {}, quoted(client(each.client) || "unnamed")), el("span", {class: "muted"}, quoted(each.caller)), el("span", {class: "muted"}, count(each.calls, "call")), moment(each.last)))));
}

function health({backlog, disk, version, states}) {
  const waiting = backlog.memories ? `${count(backlog.memories, "memory", "memories")} wait for their vectors` : "Nothing waits";
  const hidden = states.filter(([name]) => name !== "active" && name !== "dying").reduce((sum, [, many]) => sum + many, 0);
  return el("dl", {},
    el("dt", {}, "State"), el("dd", {}, "Running"),
    el("dt", {}, "Backlog"), el("dd", {}, waiting),
    el("dt", {}, "Out of sight"), el("dd", {}, el("a", {href: "/viewer/memories?state=archived"}, count(hidden, "memory", "memories"))),
    disk.free !== null && [el("dt", {}, "Free disk"), el("dd", {}, bytes(disk.free))],
    el("dt", {}, "Version"), el("dd", {}, version));
}

function welcome(found, actions, demo) {
  return page("Welcome", {lede: "This memory is empty. Agents fill it as they work. Start with one of these commands.", actions},
    el("ol", {class: "commands"}, COMMANDS.map(([title, command]) => el("li", {class: "card"},
      el("h2", {}, title), el("div", {class: "command"}, el("code", {}, command), copyButton(command, `Copy “${command}”`))))),
    demo && card("Look around first", el("p", {}, "Sample memories of a small team, in a space of their own. They are removed with a click."), el("div", {class: "actions"}, demo)),
    card("The server", health(found)));
}
