// Markdown as nodes. A text is never parsed as HTML: tags in it are shown as they are written.

import {el, shown} from "./dom.js";

export const LONGEST = 60000; // characters that are laid out; a longer text is shown as it is
const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const INLINE = /(`+)([^`]|[^`][\s\S]*?[^`])\1(?!`)|(\*\*|__)(?=\S)([\s\S]*?\S)\3|(\*|_)(?=\S)([\s\S]*?\S)\5(?![\p{L}\p{N}])|~~(?=\S)([\s\S]*?\S)~~|!?\[([^\]\n]{0,500})\]\(([^()\s]{1,2000})(?:\s+"[^"\n]*")?\)|(https?:\/\/[^\s<>"')\]]{1,2000})/u;

/** The blocks of a text. */
export function markdown(text) {
  if (text.length > LONGEST) return [el("pre", {class: "plain", dir: "auto"}, shown(text))];
  return blocks(text.replaceAll("\r\n", "\n").split("\n"));
}

function blocks(lines) {
  const made = [];
  let at = 0;
  let level = 2; // of the last heading: a text's headings begin at h3, and skip no level
  while (at < lines.length) {
    const line = lines[at];
    let match;
    if (!line.trim()) { at += 1; continue; }
    if ((match = line.match(FENCE))) {
      const body = [];
      at += 1;
      while (at < lines.length && !lines[at].trim().startsWith(match[1])) { body.push(lines[at]); at += 1; }
      at += 1;
      made.push(el("pre", {dir: "auto"}, el("code", {}, shown(body.join("\n")))));
    } else if ((match = line.match(/^ {0,3}(#{1,6})\s+(.*?)\s*#*$/))) {
      level = Math.min(match[1].length + 2, level + 1, 6);
      made.push(el(`h${level}`, {dir: "auto"}, inline(match[2])));
      at += 1;
    } else if (/^ {0,3}([-*_])( *\1){2,} *$/.test(line)) {
      made.push(el("hr"));
      at += 1;
    } else if (/^ {0,3}>/.test(line)) {
      const body = [];
      while (at < lines.length && /^ {0,3}>/.test(lines[at])) { body.push(lines[at].replace(/^ {0,3}> ?/, "")); at += 1; }
      made.push(el("blockquote", {dir: "auto"}, blocks(body)));
    } else if (ITEM.test(line)) {
      const [list, after] = listed(lines, at);
      made.push(list);
      at = after;
    } else if (line.includes("|") && /^ *\|?[ :|-]+\|[ :|-]*$/.test(lines[at + 1] ?? "") && lines[at + 1].includes("-")) {
      const [table, after] = tabled(lines, at);
      made.push(table);
      at = after;
    } else {
      const body = [];
      while (at < lines.length && lines[at].trim() && !(body.length && (FENCE.test(lines[at]) || ITEM.test(lines[at]) || /^ {0,3}(#{1,6}\s|>)/.test(lines[at])))) {
        body.push(lines[at]);
        at += 1;
      }
      made.push(el("p", {dir: "auto"}, lined(body)));
    }
  }
  return made;
}

function lined(lines) {
  return lines.flatMap((line, index) => (index ? [el("br"), ...inline(line)] : inline(line)));
}

function listed(lines, start) {
  const [, indent, mark] = lines[start].match(ITEM);
  const list = el(/\d/.test(mark) ? "ol" : "ul", {dir: "auto"});
  let at = start;
  while (at < lines.length) {
    const match = lines[at].match(ITEM);
    if (!match || match[1].length !== indent.length) break;
    const inner = [match[3]];
    at += 1;
    while (at < lines.length && (/^\s+\S/.test(lines[at]) && lines[at].search(/\S/) > indent.length)) {
      inner.push(lines[at].slice(Math.min(lines[at].search(/\S/), indent.length + 2)));
      at += 1;
    }
    const box = inner[0].match(/^\[([ xX])\]\s+(.*)$/);
    const item = el("li", {});
    if (box) {
      item.append(box[1] === " " ? "☐ " : "☑ ", ...inline(box[2]));
    } else item.append(...inline(inner[0]));
    if (inner.length > 1) item.append(...blocks(inner.slice(1)));
    list.append(item);
  }
  return [list, at];
}

function tabled(lines, start) {
  const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
  const table = el("table", {}, el("thead", {}, el("tr", {}, cells(lines[start]).map((cell) => el("th", {dir: "auto"}, inline(cell))))));
  const body = el("tbody");
  let at = start + 2;
  while (at < lines.length && lines[at].includes("|")) {
    body.append(el("tr", {}, cells(lines[at]).map((cell) => el("td", {dir: "auto"}, inline(cell)))));
    at += 1;
  }
  table.append(body);
  return [el("div", {class: "scrolls", tabindex: "0", role: "group", "aria-label": "Table"}, table), at];
}

function inline(text, depth = 0) {
  const made = [];
  let rest = text;
  while (rest) {
    const match = depth < 8 ? rest.match(INLINE) : null;
    if (!match) break;
    const before = rest.slice(0, match.index);
    // An underscore inside a word, as in a_name_of_code, is a letter.
    if (match[5] === "_" && /[\p{L}\p{N}]$/u.test(before)) {
      made.push(...shown(rest.slice(0, match.index + 1)));
      rest = rest.slice(match.index + 1);
      continue;
    }
    made.push(...shown(before));
    if (match[1]) made.push(el("code", {}, shown(match[2])));
    else if (match[3]) made.push(el("strong", {}, inline(match[4], depth + 1)));
    else if (match[5]) made.push(el("em", {}, inline(match[6], depth + 1)));
    else if (match[7] !== undefined) made.push(el("s", {}, inline(match[7], depth + 1)));
    else if (match[9] !== undefined) made.push(...linked(match[9], match[8], match[0]));
    else made.push(...linked(match[10], match[10], match[0]));
    rest = rest.slice(match.index + match[0].length);
  }
  return [...made, ...shown(rest)];
}

/** A link, or plain text if its address is not http, https or mailto. Pictures are never loaded. */
function linked(address, words, written) {
  let url;
  try {
    url = new URL(address);
  } catch {
    return shown(written);
  }
  if (!["http:", "https:", "mailto:"].includes(url.protocol)) return shown(written);
  const told = words && words !== address ? [el("bdi", {}, shown(words)), " ", el("span", {class: "host"}, `(${url.host || url.pathname})`)] : shown(address);
  return [el("a", {href: url.href, target: "_blank", rel: "noopener noreferrer nofollow"}, told)];
}
