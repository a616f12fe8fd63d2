// Graph: groups of linked memories as discs, the memories of one group, and the same as a list.

import {get} from "../api.js";
import {count, el, number, quoted, shown} from "../dom.js";
import {button, card, empty, field, iconButton, page, select} from "../ui.js";

const HEIGHT = 460;
const COLOURS = ["#3b6fb6", "#b5603a", "#3f8f5f", "#8a5bb0", "#a88424", "#b04a72", "#3a8f96", "#6b6f76"];

export async function render(context) {
  const {query, signal} = context;
  const kind = query.get("kind") ?? "";
  const about = query.get("about");
  const [found, overview] = await Promise.all([
    about ? get(`/api/console/graph/${encodeURIComponent(about)}`, {kind}, {signal}) : get("/api/console/graph", {kind}, {signal}),
    about ? get("/api/console/graph", {}, {signal}) : null,
  ]);
  const kinds = Object.entries((overview ?? found).kinds);
  const at = (more) => {
    const kept = new URLSearchParams(Object.entries({about, kind, ...more}).filter(([, value]) => value));
    return kept.size ? `/viewer/graph?${kept}` : "/viewer/graph";
  };
  const filter = field("Links", select([["", "All links"], ...kinds.map(([name, times]) => [name, `${name} (${number(times)})`])], kind,
    {onchange: (event) => context.go(at({kind: event.currentTarget.value}))}));
  const facts = await factsCard(context);
  return about ? groupPage(found, filter, at, context, facts) : overviewPage(found, filter, at, context, facts);
}

function overviewPage(found, filter, at, context, facts) {
  if (!found.groups.length) {
    return page("Graph", {}, filter, empty("No links yet", "Agents link memories as they work; a page of a memory can link it, too."), facts);
  }
  const discs = found.groups.map((one) => ({...one, href: at({about: one.id})}));
  const list = el("ul", {class: "rows"}, discs.map((one) => el("li", {},
    el("a", {href: one.href}, quoted(one.label || one.id)), " ", el("span", {class: "muted"}, count(one.size, "memory", "memories")))));
  return page("Graph", {lede: `${count(found.linked, "linked memory", "linked memories")} in ${count(found.groups.length + found.left_out, "group")}; ${number(found.unlinked)} without a link.`},
    filter,
    picture({discs, lines: [], largest: 90}, context, "Groups of linked memories; the list below has the same."),
    card("Groups", list, found.left_out > 0 && el("p", {class: "muted"}, `${count(found.left_out, "smaller group is", "smaller groups are")} not shown.`)),
    facts);
}

function groupPage(found, filter, at, context, facts) {
  const places = new Map(found.nodes.map((one) => [one.id, one]));
  const discs = found.nodes.map((one) => ({...one, r: 0.35 + Math.min(one.links, 12) * 0.03, href: `/viewer/memories/${encodeURIComponent(one.id)}`}));
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
    filter, picture({discs, lines, largest: 24}, context, "Memories and their links; the list below has the same."), card("Memories", list), facts);
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

/** A canvas that is drawn once for each change; it can be dragged, zoomed and used by keyboard. */
function picture({discs, lines, largest}, {go, signal}, label) {
  const canvas = el("canvas", {class: "graph", tabindex: "0", role: "img", "aria-label": label});
  const view = {x: 0, y: 0, scale: 1};
  const kinds = [...new Set(discs.map((one) => one.kind))];
  const colour = (kind) => COLOURS[kinds.indexOf(kind) % COLOURS.length];
  let waiting = false;
  const draw = () => {
    if (!waiting) requestAnimationFrame(() => { waiting = false; paint(canvas, view, discs, lines, colour); });
    waiting = true;
  };
  const fit = () => {
    const reach = Math.max(1, ...discs.map((one) => Math.max(Math.abs(one.x), Math.abs(one.y)) + one.r));
    const fits = Math.min(canvas.clientWidth || 600, HEIGHT) / (2.15 * reach);
    Object.assign(view, {x: 0, y: 0, scale: Math.min(fits, largest / Math.max(...discs.map((one) => one.r)))});
    draw();
  };
  const zoom = (by) => { view.scale *= by; draw(); };
  const move = (x, y) => { view.x += x; view.y += y; draw(); };
  const under = (event) => {
    const box = canvas.getBoundingClientRect();
    const x = (event.clientX - box.left - box.width / 2 - view.x) / view.scale;
    const y = (event.clientY - box.top - box.height / 2 - view.y) / view.scale;
    return discs.findLast((one) => Math.hypot(one.x - x, one.y - y) <= Math.max(one.r, 8 / view.scale));
  };
  let dragged = null;
  canvas.addEventListener("pointerdown", (event) => { dragged = {x: event.clientX, y: event.clientY, far: 0}; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    if (!dragged) { canvas.title = under(event)?.label ?? ""; return; }
    const x = event.clientX - dragged.x, y = event.clientY - dragged.y;
    dragged = {x: event.clientX, y: event.clientY, far: dragged.far + Math.abs(x) + Math.abs(y)};
    move(x, y);
  });
  canvas.addEventListener("pointerup", (event) => {
    const found = dragged && dragged.far < 6 ? under(event) : null;
    dragged = null;
    if (found) go(found.href);
  });
  canvas.addEventListener("wheel", (event) => { event.preventDefault(); zoom(event.deltaY < 0 ? 1.15 : 1 / 1.15); }, {passive: false});
  canvas.addEventListener("keydown", (event) => {
    const acts = {ArrowLeft: () => move(40, 0), ArrowRight: () => move(-40, 0), ArrowUp: () => move(0, 40), ArrowDown: () => move(0, -40), "+": () => zoom(1.2), "-": () => zoom(1 / 1.2), 0: fit};
    if (acts[event.key]) { event.preventDefault(); acts[event.key](); }
  });
  const watched = new ResizeObserver(fit);
  watched.observe(canvas);
  signal?.addEventListener("abort", () => watched.disconnect());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw, {signal});
  return el("figure", {class: "picture"}, canvas,
    el("figcaption", {class: "actions"},
      iconButton("Nearer", "plus", {onclick: () => zoom(1.25)}), iconButton("Further", "minus", {onclick: () => zoom(1 / 1.25)}), button("Whole", {kind: "quiet", onclick: fit})));
}

function paint(canvas, view, discs, lines, colour) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = HEIGHT;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext("2d");
  const style = getComputedStyle(canvas);
  const seen = (one) => Math.abs(one.x * view.scale + view.x) < width / 2 + 200 && Math.abs(one.y * view.scale + view.y) < height / 2 + 100;
  pen.scale(ratio, ratio);
  pen.translate(width / 2 + view.x, height / 2 + view.y);
  pen.strokeStyle = style.color;
  pen.globalAlpha = 0.3;
  pen.lineWidth = 1;
  pen.beginPath();
  for (const {from, to} of lines) {
    pen.moveTo(from.x * view.scale, from.y * view.scale);
    pen.lineTo(to.x * view.scale, to.y * view.scale);
  }
  pen.stroke();
  pen.globalAlpha = 1;
  const shownDiscs = discs.filter(seen);
  for (const one of shownDiscs) {
    pen.fillStyle = colour(one.kind);
    pen.beginPath();
    pen.arc(one.x * view.scale, one.y * view.scale, Math.max(3, one.r * view.scale), 0, 2 * Math.PI);
    pen.fill();
  }
  pen.fillStyle = style.color;
  pen.font = `12px ${style.fontFamily}`;
  pen.textAlign = "center";
  const written = [];
  for (const one of shownDiscs.length > 60 ? shownDiscs.slice(0, 40) : shownDiscs) {
    const text = one.label.length > 24 ? `${one.label.slice(0, 23)}…` : one.label;
    const half = pen.measureText(text).width / 2 + 4;
    const edge = width / 2 - half;
    const x = Math.max(-edge - view.x, Math.min(edge - view.x, one.x * view.scale));
    const y = one.y * view.scale + Math.max(3, one.r * view.scale) + 14;
    // A name that would cover another one is left out; nearer, there is room for it.
    if (written.some((other) => Math.abs(other.y - y) < 15 && Math.abs(other.x - x) < other.half + half)) continue;
    written.push({x, y, half});
    pen.fillText(text, x, y);
  }
  canvas.dataset.drawn = String(shownDiscs.length);
  canvas.dataset.drawnAt ??= String(Math.round(performance.now()));
}
