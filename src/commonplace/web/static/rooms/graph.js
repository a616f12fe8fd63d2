// Graph: groups of linked memories as discs, the memories of one group, and the same as a list.

import {get} from "../api.js";
import {count, el, number, quoted, shown} from "../dom.js";
import {picture} from "../picture.js";
import {card, empty, field, page, select} from "../ui.js";

export async function render(context) {
  const {query, signal} = context;
  const kind = query.get("kind") ?? "";
  const about = query.get("about");
  const [found, overview, facts] = await Promise.all([
    about ? get(`/api/console/graph/${encodeURIComponent(about)}`, {kind}, {signal}) : get("/api/console/graph", {kind}, {signal}),
    about ? get("/api/console/graph", {}, {signal}) : null,
    factsCard(context),
  ]);
  const kinds = Object.entries((overview ?? found).kinds);
  const at = (more) => {
    const kept = new URLSearchParams(Object.entries({about, kind, ...more}).filter(([, value]) => value));
    return kept.size ? `/viewer/graph?${kept}` : "/viewer/graph";
  };
  const filter = field("Links", select([["", "All links"], ...kinds.map(([name, times]) => [name, `${name} (${number(times)})`])], kind,
    {onchange: (event) => context.go(at({kind: event.currentTarget.value}))}));
  return about ? groupPage(found, filter, at, context, facts) : overviewPage(found, filter, at, context, facts);
}

function overviewPage(found, filter, at, context, facts) {
  if (!found.groups.length) {
    return page("Graph", {}, filter, empty("No links yet", "Agents link memories as they work; a page of a memory can link it, too."), facts);
  }
  const discs = found.groups.map((one) => ({...one, inside: number(one.size), colour: one.kind, href: at({about: one.id})}));
  const list = el("ul", {class: "rows"}, discs.map((one) => el("li", {},
    el("a", {href: one.href}, quoted(one.label || one.id)), " ", el("span", {class: "muted"}, count(one.size, "memory", "memories")))));
  return page("Graph", {lede: `${count(found.linked, "linked memory", "linked memories")} in ${count(found.groups.length + found.left_out, "group")}; ${number(found.unlinked)} without a link.`},
    filter,
    picture({discs, lines: [], largest: 90, open: (one) => context.go(one.href)}, context, "Groups of linked memories; the list below has the same."),
    card("Groups", list, found.left_out > 0 && el("p", {class: "muted"}, `${count(found.left_out, "smaller group is", "smaller groups are")} not shown.`)),
    facts);
}

function groupPage(found, filter, at, context, facts) {
  const places = new Map(found.nodes.map((one) => [one.id, one]));
  const discs = found.nodes.map((one) => ({...one, r: 0.35 + Math.min(one.links, 12) * 0.03, colour: one.kind, href: `/viewer/memories/${encodeURIComponent(one.id)}`}));
  const lines = found.links.map((link) => ({...link, from: places.get(link.source), to: places.get(link.target)}));
  const beside = new Map(found.nodes.map((one) => [one.id, []]));
  for (const link of found.links) {
    beside.get(link.source).push([link.kind, "→", places.get(link.target)]);
    beside.get(link.target).push([link.kind, "←", places.get(link.source)]);
  }
  const list = el("ul", {class: "rows"}, found.nodes.map((one) => el("li", {},
    el("div", {class: "words"},
      el("a", {href: `/viewer/memories/${encodeURIComponent(one.id)}`}, quoted(one.label || one.id)),
      el("ul", {class: "muted"}, beside.get(one.id).slice(0, 8).map(([kind, arrow, other]) => el("li", {},
        `${arrow} `, shown(kind), ": ", el("a", {href: at({about: other.id})}, quoted(other.label || other.id)))))),
    one.id !== found.centre && el("a", {class: "button quiet", href: at({about: one.id})}, "Centre"))));
  return page("Graph", {back: {href: "/viewer/graph", title: "All groups"}, lede: `${count(found.nodes.length, "memory", "memories")} and ${count(found.links.length, "link")}${found.left_out ? `; ${number(found.left_out)} more are further away` : ""}.`},
    filter, picture({discs, lines, largest: 24, open: (one) => context.go(one.href)}, context, "Memories and their links; the list below has the same."), card("Memories", list), facts);
}

async function factsCard({query, signal}) {
  const {facts} = await get("/api/console/facts", {entity: query.get("entity") ?? ""}, {signal});
  if (!facts.length) return null;
  return card("Facts", el("ul", {class: "rows"}, facts.slice(0, 50).map((one) => el("li", {},
    el("span", {}, quoted(one.subject), " ", el("em", {}, quoted(one.predicate)), " ", quoted(one.object)), " ",
    el("span", {class: "muted"}, span(one))))));
}

function span({valid_from: from, valid_to: to}) {
  if (!from && !to) return "";
  return `${from ? `from ${from.slice(0, 10)}` : ""}${to ? ` until ${to.slice(0, 10)}` : ""}`.trim();
}
