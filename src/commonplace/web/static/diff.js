// The difference of two texts, word by word, or line by line where they are long.

import {el, shown} from "./dom.js";

const MOST = 3000000; // cells of the table of common subsequences

/** The pieces of two texts: [kind, text], kind being "same", "removed" or "added". */
export function pieces(before, after) {
  for (const split of [/(\s+)/, /(\n)/]) {
    const [old, fresh] = [before.split(split).filter(Boolean), after.split(split).filter(Boolean)];
    let start = 0, end = 0;
    while (start < old.length && start < fresh.length && old[start] === fresh[start]) start += 1;
    while (end < old.length - start && end < fresh.length - start && old.at(-1 - end) === fresh.at(-1 - end)) end += 1;
    const [a, b] = [old.slice(start, old.length - end), fresh.slice(start, fresh.length - end)];
    if (a.length * b.length > MOST) continue;
    return joined([
      ...old.slice(0, start).map((text) => ["same", text]),
      ...common(a, b),
      ...old.slice(old.length - end).map((text) => ["same", text]),
    ]);
  }
  return [["removed", before], ["added", after]];
}

function common(a, b) {
  const width = b.length + 1;
  const lengths = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      lengths[i * width + j] = a[i] === b[j] ? lengths[(i + 1) * width + j + 1] + 1
        : Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
    }
  }
  const made = [];
  let i = 0, j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) { made.push(["same", a[i]]); i += 1; j += 1; }
    else if (i < a.length && (j === b.length || lengths[(i + 1) * width + j] >= lengths[i * width + j + 1])) { made.push(["removed", a[i]]); i += 1; }
    else { made.push(["added", b[j]]); j += 1; }
  }
  return made;
}

/** Pieces of one kind as one; changes with nothing but spaces between them are one change. */
function joined(made) {
  const found = [];
  let removed = "", added = "", between = "";
  const flush = () => {
    for (const piece of [["removed", removed], ["added", added], ["same", between]]) if (piece[1]) found.push(piece);
    removed = added = between = "";
  };
  for (const [kind, text] of made) {
    if (kind === "same" && (removed || added) && /^[^\S\n]+$/.test(text)) { between += text; continue; }
    if (kind === "same") {
      flush();
      if (found.at(-1)?.[0] === "same") found.at(-1)[1] += text;
      else found.push([kind, text]);
      continue;
    }
    removed += between + (kind === "removed" ? text : "");
    added += between + (kind === "added" ? text : "");
    between = "";
  }
  flush();
  return found;
}

/** The difference as nodes: what went is struck out, what came is underlined. */
export function difference(before, after) {
  const tags = {removed: "del", added: "ins", same: "span"};
  return el("div", {class: "diff", dir: "auto", tabindex: "0", role: "group", "aria-label": "What changed"},
    pieces(before, after).map(([kind, text]) => el(tags[kind], {}, shown(text))));
}
