// A picture of discs and the lines between them, which can be dragged, zoomed and used by keyboard.

import {el, quoted, styled} from "./dom.js";
import {button, iconButton} from "./ui.js";

const HEIGHT = 460;
const LABEL = 26; // room for a name at the edge
const COLOURS = ["#3b6fb6", "#b5603a", "#3f8f5f", "#8a5bb0", "#a88424", "#b04a72", "#3a8f96", "#6b6f76"];
const STROKES = ["#7a8290", "#c0702f", "#2f8f7f", "#8f62c0", "#b0486a", "#7f7f30"];
const BORDERS = {SUCCESS: "#2f9e5f", PARTIAL: "#d1a126", FAILED: "#d2453a"};

/** A canvas that is drawn once for each change; it can be dragged, zoomed and used by keyboard.
 *
 * A disc has a place (`x`, `y`, `r`), a `label`, a name for its `colour`, and perhaps a `border`, a
 * text `inside` it and a longer `title`. A line leads `from` one disc `to` another and has a `kind`. `open` gets the disc that is clicked.
 */
export function picture({discs, lines, largest, open}, {signal}, label) {
  const canvas = el("canvas", {class: "graph", tabindex: "0", role: "img", "aria-label": label});
  const view = {x: 0, y: 0, scale: 1};
  const colours = chosen(discs.map((one) => one.colour), COLOURS);
  const strokes = chosen(lines.map((one) => one.kind), STROKES);
  let waiting = false;
  const draw = () => {
    if (!waiting) requestAnimationFrame(() => { waiting = false; paint(canvas, view, discs, lines, colours, strokes); });
    waiting = true;
  };
  const fit = () => {
    const [left, right, above, below] = discs.reduce(([a, b, c, d], {x, y, r}) =>
      [Math.min(a, x - r), Math.max(b, x + r), Math.min(c, y - r), Math.max(d, y + r)], [Infinity, -Infinity, Infinity, -Infinity]);
    const fits = Math.min(((canvas.clientWidth || 600) - (canvas.clientWidth < 500 ? 2 : 4) * LABEL) / (right - left), (HEIGHT - 2 * LABEL) / (below - above));
    const scale = Math.min(fits, largest / Math.max(...discs.map((one) => one.r)));
    Object.assign(view, {x: (-scale * (left + right)) / 2, y: (-scale * (above + below)) / 2, scale});
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
    if (!dragged) { canvas.title = under(event)?.title ?? under(event)?.label ?? ""; return; }
    const x = event.clientX - dragged.x, y = event.clientY - dragged.y;
    dragged = {x: event.clientX, y: event.clientY, far: dragged.far + Math.abs(x) + Math.abs(y)};
    move(x, y);
  });
  canvas.addEventListener("pointerup", (event) => {
    const found = dragged && dragged.far < 6 ? under(event) : null;
    dragged = null;
    if (found) open(found);
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
  document.addEventListener("theme", draw, {signal});
  return el("figure", {class: "picture"}, canvas,
    el("figcaption", {class: "actions"},
      iconButton("Zoom in", "plus", {onclick: () => zoom(1.25)}), iconButton("Zoom out", "minus", {onclick: () => zoom(1 / 1.25)}), button("Show all", {kind: "quiet", onclick: fit}),
      legend(colours, strokes, discs)));
}

/** A colour for each name, by frequency; names beyond the number of colours share the last one. */
function chosen(names, colours) {
  const times = new Map();
  for (const name of names) if (name) times.set(name, (times.get(name) ?? 0) + 1);
  const sorted = [...times.keys()].sort((a, b) => times.get(b) - times.get(a));
  return new Map(sorted.map((name, index) => [name, colours[Math.min(index, colours.length - 1)]]));
}

/** What the colours mean. */
function legend(colours, strokes, discs) {
  const named = (found, kind, most) => {
    const some = [...found].slice(0, most - (found.size > most ? 1 : 0)).map(([name, colour]) => [name, colour]);
    return [...some, ...(found.size > most ? [["others", [...found.values()].at(-1)]] : [])].map(([name, colour]) =>
      el("li", {}, styled(el("i", {class: kind}), {"--colour": colour}), quoted(name)));
  };
  const borders = Object.keys(BORDERS).filter((name) => discs.some((one) => one.border === name));
  return el("ul", {class: "picture-legend"}, named(colours, "disc", COLOURS.length), named(strokes, "stroke", STROKES.length),
    borders.map((name) => el("li", {}, styled(el("i", {class: "ring"}), {"--colour": BORDERS[name]}), name.toLowerCase())));
}

function paint(canvas, view, discs, lines, colours, strokes) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = HEIGHT;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext("2d");
  const style = getComputedStyle(canvas);
  const seen = (one) => Math.abs(one.x * view.scale + view.x) < width / 2 + 200 && Math.abs(one.y * view.scale + view.y) < height / 2 + 100;
  pen.scale(ratio, ratio);
  pen.translate(width / 2 + view.x, height / 2 + view.y);
  pen.globalAlpha = 0.6;
  for (const [kind, colour] of strokes) {
    pen.strokeStyle = colour;
    pen.lineWidth = 1.5;
    pen.beginPath();
    for (const {from, to, kind: own} of lines) {
      if (own !== kind) continue;
      pen.moveTo(from.x * view.scale, from.y * view.scale);
      pen.lineTo(to.x * view.scale, to.y * view.scale);
    }
    pen.stroke();
  }
  pen.globalAlpha = 1;
  const shownDiscs = discs.filter(seen);
  for (const one of shownDiscs) {
    pen.fillStyle = colours.get(one.colour) ?? COLOURS.at(-1);
    pen.beginPath();
    pen.arc(one.x * view.scale, one.y * view.scale, Math.max(3, one.r * view.scale), 0, 2 * Math.PI);
    pen.fill();
    if (!BORDERS[one.border]) continue;
    pen.strokeStyle = BORDERS[one.border];
    pen.lineWidth = 3;
    pen.stroke();
  }
  pen.textAlign = "center";
  pen.fillStyle = "#ffffff";
  pen.font = `600 14px ${style.fontFamily}`;
  for (const one of shownDiscs) if (one.inside && one.r * view.scale > 12) pen.fillText(one.inside, one.x * view.scale, one.y * view.scale + 5);
  pen.fillStyle = style.color;
  pen.strokeStyle = style.backgroundColor; // around a name, so that it can be read over a disc
  pen.lineWidth = 3;
  pen.lineJoin = "round";
  pen.font = `12px ${style.fontFamily}`;
  const written = [];
  const named = shownDiscs.filter((one) => one.label);
  const round = shownDiscs.map((one) => ({one, x: one.x * view.scale, y: one.y * view.scale, r: Math.max(3, one.r * view.scale)}));
  for (const one of named.length > 60 ? named.slice(0, 40) : named) {
    const most = width < 500 ? 16 : 24;
    const text = one.label.length > most ? `${one.label.slice(0, most - 1)}…` : one.label;
    const half = pen.measureText(text).width / 2 + 4;
    const edge = width / 2 - half;
    const x = Math.max(-edge - view.x, Math.min(edge - view.x, one.x * view.scale));
    const y = one.y * view.scale + Math.max(3, one.r * view.scale) + 14;
    // A name that would cover another one or the middle of a disc is left out; nearer, there is room for it.
    if (written.some((other) => Math.abs(other.y - y) < 15 && Math.abs(other.x - x) < other.half + half)) continue;
    if (round.some((other) => other.one !== one && Math.abs(other.x - x) < half && Math.abs(other.y + 4 - y) < 8 + Math.min(other.r, 8))) continue;
    written.push({x, y, half});
    pen.strokeText(text, x, y);
    pen.fillText(text, x, y);
  }
  canvas.dataset.drawn = String(shownDiscs.length);
  canvas.dataset.drawnAt ??= String(Math.round(performance.now()));
}
