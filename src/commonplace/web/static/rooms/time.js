// Time: a slider over the operations, what they changed, and undoing one.

import {get, post} from "../api.js";
import {difference} from "../diff.js";
import {client, count, el, icon, moment, number, quoted, shown} from "../dom.js";
import {addressOf, nameOf} from "../memory-parts.js";
import {busy, button, dialog, empty, iconButton, page, toast} from "../ui.js";

const PAGE = 30;
const NAMES = {
  remember: "Remembered", revise: "Revised", forget: "Hidden", hide: "Hidden", restore: "Restored", supersede: "Superseded",
  link: "Linked", connect: "Linked", unlink: "Unlinked", disconnect: "Unlinked", undo: "Undone", import: "Imported",
  purge: "Deleted for good", promote: "Promoted", trust: "Promoted", patrol: "Patrolled", hook: "Captured", tag: "Tagged", pin: "Pinned or unpinned",
};

export async function render(context) {
  const {query, signal} = context;
  const start = await get("/api/console/operations", {limit: 1}, {signal});
  if (!start.operations.length) {
    return page("Time", {}, empty("Nothing has happened yet", "Every change of the memory appears here, and can be undone."));
  }
  const time = new Time(context, start);
  const named = query.get("at");
  await time.move(named ? await time.seqAt(named) : start.last);
  return time.page();
}

class Time {
  constructor(context, {first, last}) {
    this.context = context;
    Object.assign(this, {first, last, from: null});
    this.slider = el("input", {
      type: "range", min: String(first), max: String(last), step: "1", "aria-label": "Moment",
      oninput: () => { clearTimeout(this.waiting); this.waiting = setTimeout(() => this.move(Number(this.slider.value)), 120); },
    });
    this.told = el("p", {class: "at", "aria-live": "polite"});
    this.places = el("div", {class: "actions"});
    this.list = el("ol", {class: "entries operations"});
    this.more = el("div", {class: "actions"});
    this.compare = el("section", {class: "card", hidden: true, "aria-live": "polite"});
  }

  page() {
    return page("Time", {lede: "Every change is kept. Choose a moment to see the memory as it was, or take a change back."},
      el("section", {class: "card when"},
        this.told,
        el("div", {class: "slide"},
          iconButton("One earlier", "back", {onclick: () => this.move(this.earlier ?? this.seq)}),
          this.slider,
          button("Now", {kind: "quiet", onclick: () => this.move(this.last)})),
        this.places),
      this.compare,
      el("section", {class: "card"}, el("h2", {}, "Up to this moment, newest first"), this.list, this.more));
  }

  /** The number of the newest operation at or before a moment. */
  async seqAt(at) {
    let before;
    for (;;) {
      const {operations} = await get("/api/console/operations", {limit: 500, before}, {signal: this.context.signal});
      const found = operations.find((one) => one.at <= at);
      if (found) return found.seq;
      if (!operations.length) return this.first;
      before = operations.at(-1).seq;
    }
  }

  async move(seq) {
    const found = await get("/api/console/operations", {limit: PAGE, before: seq + 1}, {signal: this.context.signal});
    if (!found.operations.length) return;
    const [chosen] = found.operations;
    this.seq = chosen.seq;
    this.earlier = found.operations[1]?.seq;
    this.chosen = chosen;
    this.slider.value = String(chosen.seq);
    this.slider.setAttribute("aria-valuetext", `${title(chosen)}, ${new Date(chosen.at).toLocaleString("en-GB")}`);
    const now = chosen.seq === this.last;
    this.told.replaceChildren(el("strong", {}, moment(chosen.at, {exact: true})), ` · ${now ? "now" : "after: "}`, now ? "" : what(chosen));
    const at = encodeURIComponent(chosen.at);
    history.replaceState(null, "", now ? "/viewer/time" : `/viewer/time?at=${at}`);
    this.places.replaceChildren(
      el("a", {class: "button", href: now ? "/viewer/memories" : `/viewer/memories?as_of=${at}`}, icon("book"), now ? "Memories" : "Memories as of then"),
      el("a", {class: "button", href: now ? "/viewer" : `/viewer?as_of=${at}`}, icon("home"), now ? "Home" : "Home as of then"),
      ...this.comparing());
    this.list.replaceChildren(...found.operations.map((one) => this.row(one)));
    this.further(found.operations);
    if (this.from) await this.changes();
  }

  comparing() {
    if (!this.from) return [button("Compare from here", {onclick: () => { this.from = this.chosen; toast("Now choose the other moment."); this.move(this.seq); }})];
    return [button("Stop comparing", {kind: "quiet", onclick: () => { this.from = null; this.compare.hidden = true; this.move(this.seq); }})];
  }

  async changes() {
    const [since, until] = this.from.at <= this.chosen.at ? [this.from, this.chosen] : [this.chosen, this.from];
    const found = await get("/api/console/changes", {since: since.at, until: until.at}, {signal: this.context.signal});
    this.compare.hidden = false;
    this.compare.replaceChildren(
      el("h2", {}, "What changed"),
      el("p", {class: "muted"}, "From ", moment(since.at, {exact: true}), " to ", moment(until.at, {exact: true}), `: ${count(found.operations.length, "operation")}, ${count(found.total, "change")}.`,
        found.complete ? "" : " The earliest of them are left out."),
      found.changes.length ? changeList(found.changes) : el("p", {}, "Nothing is different."));
  }

  further(operations) {
    const last = operations.at(-1);
    const all = operations.length < PAGE || last.seq <= this.first;
    this.more.replaceChildren(...(all ? [] : [button("Earlier operations", {onclick: async (event) => busy(event.currentTarget, async () => {
      const found = await get("/api/console/operations", {limit: PAGE, before: last.seq}, {signal: this.context.signal});
      this.list.append(...found.operations.map((one) => this.row(one)));
      this.further(found.operations.length ? found.operations : [last]);
    })})]));
  }

  row(one) {
    const place = el("div", {class: "opened"});
    const open = changesButton(one.id, place, this.context);
    const undo = this.context.may("write") && one.name !== "purge" && button("Undo…", {kind: "quiet small", icon: "undo", onclick: (event) => askUndo(one.id, event.currentTarget, this.context)});
    return el("li", {"aria-current": one.seq === this.seq ? "true" : null},
      el("div", {class: "way"}, el("strong", {}, what(one)), moment(one.at), el("span", {class: "muted"}, quoted(client(one.origin.client) || one.origin.user || ""))),
      el("div", {class: "actions"}, open, button("To here", {kind: "quiet small", onclick: () => this.move(one.seq)}), undo),
      place);
  }
}

/** A button that shows and hides what an operation changed, in a place below it. */
export function changesButton(id, place, {signal}) {
  const open = button("What changed", {kind: "quiet small", "aria-expanded": "false", onclick: async () => {
    const shows = open.getAttribute("aria-expanded") === "true";
    open.setAttribute("aria-expanded", String(!shows));
    if (shows) { place.replaceChildren(); return; }
    try {
      const found = await busy(open, () => get(`/api/console/operations/${id}`, {}, {signal}));
      place.replaceChildren(found.changes.length ? changeList(found.changes) : el("p", {class: "muted"}, "No content: events, or what was deleted since."));
    } catch (error) {
      place.replaceChildren(el("p", {class: "problem"}, shown(error.message)));
    }
  }});
  return open;
}

/** Show what undoing an operation would change, and undo it if the person agrees. */
export async function askUndo(id, control, {signal, refresh}) {
  let shows;
  try {
    shows = await busy(control, () => get(`/api/console/operations/${id}/undo`, {}, {signal}));
  } catch (error) {
    await dialog("This cannot be undone", (close) => [el("p", {}, shown(error.message)), error.hint && el("p", {}, shown(error.hint)),
      el("div", {class: "actions"}, button("Close", {onclick: () => close()}))].filter(Boolean));
    return;
  }
  await dialog("Undo this?", (close) => {
    const problem = el("div", {class: "problem", role: "alert"});
    const go = button(`Undo ${count(shows.total, "change")}`, {kind: "main", onclick: async () => {
      try {
        await busy(go, () => post(`/api/console/operations/${id}/undo`));
        close();
        toast("Undone. The undo is an operation itself, and can be undone.");
        await refresh();
      } catch (error) {
        problem.replaceChildren(...shown(error.message));
      }
    }});
    return [el("p", {}, "This would change:"), changeList(shows.changes), problem,
      el("div", {class: "actions"}, go, button("Cancel", {onclick: () => close()}))];
  }, {wide: true});
}

function title(one) {
  const name = one.name.replace(/^(console|http)_/, "");
  return NAMES[name] ?? `${name.charAt(0).toUpperCase()}${name.slice(1).replaceAll("_", " ")}`;
}

function what(one) {
  return quoted(title(one));
}

const FIELDS = {attrs: "details", ref: "reference", occurred_at: "when it happened", decay_at: "fading"};
const TABLES = {links: "Link", facts: "Fact", clusters: "Cluster", members: "Member of a cluster", artifacts: "Document", contents: "Content of a document", messages: "Line of a conversation", reviews: "Review"};

/** Changes as a list: what was, and what is. */
export function changeList(changes) {
  return el("ul", {class: "changes"}, changes.map((change) => {
    const one = change.after ?? change.before;
    const how = change.before === null ? "new" : change.after === null ? "gone" : change.fields.map((name) => FIELDS[name] ?? name.replaceAll("_", " ")).join(", ") || "unchanged";
    if (change.table !== "memories") {
      return el("li", {}, el("div", {class: "way"}, el("span", {class: "chip"}, TABLES[change.table] ?? change.table), quoted(one.summary), el("span", {class: "muted"}, how)));
    }
    const texts = change.before && change.after && change.before.excerpt.join("") !== change.after.excerpt.join("");
    return el("li", {},
      el("div", {class: "way"}, el("span", {class: "chip kind"}, quoted(one.kind)), el("span", {class: "muted"}, how),
        change.before && change.after && change.before.state !== change.after.state && el("span", {class: "muted"}, `${change.before.state} → ${change.after.state}`)),
      texts ? difference(change.before.excerpt.join(""), change.after.excerpt.join(""))
        : change.after ? el("a", {href: addressOf(one.id), dir: "auto"}, shown(nameOf(one))) : el("del", {dir: "auto"}, shown(nameOf(one))));
  }), changes.length >= 200 && el("li", {class: "muted"}, `The first ${number(changes.length)} are shown.`));
}
