// Elements, and texts that others wrote. Nothing here or elsewhere parses a string as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An element: attributes (`class`, `onclick`, `disabled`, …) and children (nodes and texts). */
export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** An element of SVG. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Set CSS properties from JavaScript, since our Content-Security-Policy forbids style attributes. */
export function styled(element, values) {
  for (const [name, value] of Object.entries(values)) element.style.setProperty(name, value);
  return element;
}

const PICTURE = "[\\u00a9\\u00ae\\u203c\\u2049\\u2122\\u2139\\u2190-\\u27bf\\u2900-\\u2bff\\u3030\\u303d\\u3297\\u3299"
  + "\\u{1f000}-\\u{1f3fa}\\u{1f400}-\\u{1faff}]\\ufe0f?[\\u{1f3fb}-\\u{1f3ff}]?";
// Sequences in which invisible characters are needed: emoji, keycaps, the scripts of India, Persian.
const SEEN = `${PICTURE}(?:\\u200d${PICTURE})*|[0-9#*]\\ufe0f\\u20e3|[\\u094d\\u09cd\\u0a4d\\u0acd\\u0b4d\\u0bcd`
  + "\\u0c4d\\u0ccd\\u0d3b\\u0d3c\\u0d4d\\u0dca][\\u200c\\u200d]|\\u09b0\\u200d\\u09cd|[\\u0620-\\u06ff]\\u200c(?=[\\u0620-\\u06ff])";
const UNSEEN = "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u2028\\u2029\\u00ad\\u061c\\u070f\\u180b-\\u180f"
  + "\\u200b-\\u200f\\u202a-\\u202e\\u2060-\\u206f\\ufeff\\ufff0-\\ufffb\\ufe00-\\ufe0f\\u034f\\u115f\\u1160"
  + "\\u17b4\\u17b5\\u2800\\u3164\\uffa0\\ud800-\\udfff\\ue000-\\uf8ff\\ufdd0-\\ufdef"
  + "\\u{13430}-\\u{1343f}\\u{1bca0}-\\u{1bca3}\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}\\u{f0000}-\\u{10ffff}]";
const HIDDEN = new RegExp(`(${SEEN})|(${UNSEEN})`, "gu");

/** A text as nodes, with every character that cannot be seen shown as a mark. */
export function shown(text) {
  const nodes = [];
  let at = 0;
  const value = String(text).replaceAll("\r\n", "\n");
  for (const match of value.matchAll(HIDDEN)) {
    if (match[2] === undefined) continue;
    if (match.index > at) nodes.push(value.slice(at, match.index));
    const code = match[2].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    nodes.push(el("span", {class: "unseen", title: `A hidden character, U+${code}`}, `U+${code}`));
    at = match.index + match[2].length;
  }
  nodes.push(value.slice(at));
  return nodes;
}

/** A text of somebody else in a line: in its own direction, hidden characters shown. */
export function quoted(text, attributes = {}) {
  return el("bdi", attributes, shown(text));
}

/** A text as nodes in which some words are marked. The words come as the search names them. */
export function highlighted(text, words) {
  const wanted = words.filter(Boolean).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  if (!wanted.length) return shown(text);
  const found = new RegExp(`(${wanted.sort((a, b) => b.length - a.length).join("|")})`, "giu");
  return String(text).split(found)
    .flatMap((part, index) => (index % 2 ? el("mark", {}, shown(part)) : shown(part)));
}

const BROWSERS = [["Edg/", "Edge"], ["OPR/", "Opera"], ["Firefox/", "Firefox"], ["Chrome/", "Chrome"], ["Safari/", "Safari"]];

/** The name of a client; a browser's user agent is shortened to the browser's name. */
export function client(name) {
  if (!name?.startsWith("Mozilla/")) return name ?? "";
  return `the console, in ${BROWSERS.find(([sign]) => name.includes(sign))?.[1] ?? "a browser"}`;
}

const relative = new Intl.RelativeTimeFormat("en", {numeric: "auto"});
const absolute = new Intl.DateTimeFormat("en-GB", {dateStyle: "medium", timeStyle: "short"});
const zoned = new Intl.DateTimeFormat("en-GB", {day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short"});
const days = new Intl.DateTimeFormat("en-GB", {dateStyle: "medium", timeZone: "UTC"});
const UNITS = [["year", 31536000], ["month", 2592000], ["week", 604800], ["day", 86400], ["hour", 3600], ["minute", 60]];

/** A moment in words, such as "3 days ago", with the exact time and its zone as its title. */
export function moment(iso, {exact = false} = {}) {
  if (!iso) return el("span", {class: "muted"}, "—");
  const at = new Date(iso);
  const told = exact ? absolute.format(at) : ago(at);
  return el("time", {datetime: iso, title: zoned.format(at)}, told);
}

/** A day, given as 2026-03-01, as people write it. */
export function date(iso) {
  return days.format(new Date(iso));
}

function ago(at) {
  const seconds = (at.getTime() - Date.now()) / 1000;
  for (const [unit, size] of UNITS) {
    if (Math.abs(seconds) >= size) return relative.format(Math.round(seconds / size), unit);
  }
  return "just now";
}

const numbers = new Intl.NumberFormat("en");

/** A number with its thousands apart. */
export function number(value) {
  return numbers.format(value);
}

/** A count with its noun. */
export function count(value, one, many = `${one}s`) {
  return `${number(value)} ${value === 1 ? one : many}`;
}

/** A number of bytes as people say it. */
export function bytes(value) {
  const units = ["bytes", "KB", "MB", "GB", "TB"];
  let size = value, unit = 0;
  while (size >= 1000 && unit < units.length - 1) { size /= 1000; unit += 1; }
  return `${unit && size < 10 ? size.toFixed(1) : Math.round(size)} ${units[unit]}`;
}

// Paths of the icons, on a grid of 24; all are strokes.
const ICONS = {
  home: "M4 11l8-7 8 7M6 9.500V20h12V9.500M10 20v-6h4v6",
  book: "M12 6c-2-1.500-5-2-8-1.500v13c3-.5 6 0 8 1.500 2-1.500 5-2 8-1.500v-13C17 4 14 4.500 12 6zM12 6v13",
  clock: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16zM12 8v4l3 2",
  graph: "M6 7a2 2 0 1 0 0-.01zM18 7a2 2 0 1 0 0-.01zM12 18a2 2 0 1 0 0-.01zM8 7h8M7.200 8.600l3.800 7M16.800 8.600l-3.800 7",
  people: "M9 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM3.500 19c.5-3.500 2.500-5 5.500-5s5 1.500 5.500 5M16 6a3 3 0 0 1 0 5.500M17 14.500c2 .5 3 2 3.500 4.500",
  list: "M5 6h14M5 12h14M5 18h9",
  gauge: "M4 17a8 8 0 1 1 16 0M12 16l4-5",
  tools: "M14 6a4 4 0 0 0-5 5l-5 5 3 3 5-5a4 4 0 0 0 5-5l-2.500 2.500-2.500-.5-.5-2.500z",
  play: "M7 5l11 7-11 7z",
  gear: "M12 9a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM12 3v3M12 18v3M3 12h3M18 12h3M5.600 5.600l2.200 2.200M16.200 16.200l2.200 2.200M18.400 5.600l-2.200 2.200M7.800 16.200l-2.200 2.200",
  chat: "M4 5h16v11H9l-5 4z",
  menu: "M4 7h16M4 12h16M4 17h16",
  close: "M6 6l12 12M18 6L6 18",
  search: "M11 5a6 6 0 1 0 0 12 6 6 0 0 0 0-12zM15.500 15.500L20 20",
  pin: "M9 4h6l-1 6 3 3H7l3-3zM12 13v7",
  undo: "M9 7L5 11l4 4M5 11h9a5 5 0 0 1 0 10h-3",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.500 1.500M17.500 17.500L19 19M19 5l-1.500 1.500M6.500 17.500L5 19",
  moon: "M19 14.500A8 8 0 0 1 9.500 5 8 8 0 1 0 19 14.500z",
  person: "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4.500 20c.8-4 3.500-6 7.500-6s6.700 2 7.500 6",
  link: "M10 14a4 4 0 0 0 6 0l3-3a4 4 0 0 0-6-6l-1 1M14 10a4 4 0 0 0-6 0l-3 3a4 4 0 0 0 6 6l1-1",
  tag: "M4 12V5h7l9 9-6.500 6.500zM8 9h.01",
  edit: "M4 20l1-4L16 5l3 3L8 19zM14 7l3 3",
  hide: "M4 4l16 16M10 6.300A9 9 0 0 1 12 6c5 0 8 4 9 6a15 15 0 0 1-3 3.700M6.500 7.500A14 14 0 0 0 3 12c1 2 4 6 9 6a9 9 0 0 0 4-1M10 10a3 3 0 0 0 4 4",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13M10 11v5M14 11v5",
  copy: "M9 9h10v11H9zM5 15V4h10v2",
  warning: "M12 4l9 16H3zM12 10v4M12 17h.01",
  inbox: "M4 13l3-8h10l3 8v6H4zM4 13h5a3 3 0 0 0 6 0h5",
  import: "M12 4v10M8 10l4 4 4-4M4 17v3h16v-3",
  key: "M9 11a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 12l8-8M16 8l3 3",
  plus: "M12 5v14M5 12h14",
  minus: "M5 12h14",
  back: "M14 6l-6 6 6 6",
  more: "M6 12h.01M12 12h.01M18 12h.01",
};

/** An icon, which a screen reader does not mention. */
export function icon(name) {
  return svg("svg", {class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true", focusable: "false"},
    svg("path", {d: ICONS[name] ?? ICONS.list}));
}
