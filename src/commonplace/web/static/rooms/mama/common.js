// What MAMA's rooms share.

import {get} from "../../api.js";
import {el, shown} from "../../dom.js";

/** `{value}`, the answer to a GET, or `{error}` if the server refuses it. */
export async function optional(path, parameters, signal) {
  try {
    return {value: await get(path, parameters, {signal})};
  } catch (error) {
    if (error.name === "AbortError" || error.status === undefined) throw error;
    return {error};
  }
}

/** A list of terms and what they are; those without a value are left out. */
export function facts(pairs) {
  return el("dl", {}, pairs.filter(([, value]) => value !== undefined && value !== null && value !== "")
    .map(([term, value]) => [el("dt", {}, term), el("dd", {dir: "auto"}, typeof value === "string" ? shown(value) : value)]).flat());
}

/** A table with headings; each row is a list of cells. */
export function table(caption, headings, rows) {
  return el("div", {class: "scrolls"}, el("table", {},
    el("caption", {class: "visually-hidden"}, caption),
    el("thead", {}, el("tr", {}, headings.map((each) => el("th", {scope: "col"}, each)))),
    el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell) => el("td", {dir: "auto"}, cell)))))));
}

/** Why something is not shown. */
export function unavailable(error) {
  return el("p", {class: "hint"}, shown(error.message));
}

/** A small sign of a state, in words. */
export function chip(text, kind = "") {
  return el("span", {class: `chip ${kind}`}, text);
}

/** A checkbox with its label. */
export function check(label, attributes = {}) {
  return el("label", {class: "check"}, el("input", {type: "checkbox", ...attributes}), el("span", {}, label));
}

/** A time in Unix seconds as the ISO text that `moment` takes; empty if there is none. */
export function atSecond(seconds) {
  return seconds ? new Date(seconds * 1000).toISOString() : "";
}
