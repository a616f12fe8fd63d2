// Imports: what came in from other programs, when, and taking it back.

import {get, post} from "../api.js";
import {count, el, moment, number, quoted} from "../dom.js";
import {busy, button, card, copyButton, empty, page, toast} from "../ui.js";
import {askUndo, changesButton} from "./time.js";

const PAGE = 20;
const COMMANDS = [
  ["Find what agents on this machine have, and offer to import it", "commonplace start"],
  ["Import a file or a directory", "commonplace import FILE"],
  ["Only show what would be imported", "commonplace import --dry-run FILE"],
];

export async function render(context) {
  const {query, signal, may} = context;
  const before = query.get("before") ?? "";
  const {imports} = await get("/api/console/imports", {limit: PAGE, before}, {signal});
  return page("Imports", {lede: "What came in from other programs. Each import can be undone as one, and brought back."},
    imports.length ? card("", el("ol", {class: "entries operations"}, imports.map((one) => row(one, context))))
      : empty("Nothing was imported", "Histories of agents, exports of ChatGPT and Claude, notes and other memories can be brought over in a terminal."),
    el("nav", {class: "actions", "aria-label": "Pages"},
      before && el("a", {class: "button", href: "/viewer/imports"}, "Newest"),
      imports.length === PAGE && el("a", {class: "button", href: `/viewer/imports?before=${imports.at(-1).seq}`}, "Earlier imports")),
    may("write") && card("Import something",
      el("p", {class: "muted"}, "On the machine of the server, in a terminal:"),
      COMMANDS.map(([title, line]) => el("div", {class: "explained"}, el("p", {}, title),
        el("ul", {class: "terminal"}, el("li", {}, el("code", {}, line), copyButton(line, `Copy ${line}`)))))));
}

function row(one, context) {
  const place = el("div", {class: "opened"});
  const undo = context.may("write") && (one.undone_by
    ? button("Bring back", {kind: "quiet small", icon: "undo", onclick: (event) => bringBack(one, event.currentTarget, context)})
    : button("Undo…", {kind: "quiet small", icon: "undo", onclick: (event) => askUndo(one.operation, event.currentTarget, context)}));
  return el("li", {},
    el("div", {class: "way"},
      el("strong", {}, one.sources.length ? one.sources.flatMap((name, index) => [index ? ", " : "", quoted(name)]) : "Import"),
      moment(one.ended), el("span", {class: "muted"}, `${number(one.memories)} ${one.memories === 1 ? "memory" : "memories"}`),
      one.undone_by && el("span", {class: "chip warn"}, "Undone")),
    el("div", {class: "actions"}, changesButton(one.operation, place, context), undo),
    place);
}

async function bringBack(one, control, {refresh}) {
  try {
    await busy(control, () => post(`/api/console/operations/${one.undone_by}/undo`));
    toast(`${count(one.memories, "memory", "memories")} brought back.`);
    await refresh();
  } catch (error) {
    toast([error.message, error.hint].filter(Boolean).join(" "), {error: true});
  }
}
