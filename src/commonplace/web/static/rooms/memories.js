// Memories: the list, with filters, search and changes to several at once; one memory below it.

import {get} from "../api.js";
import {count, el, icon, number} from "../dom.js";
import {STATES, TRUSTS, hide, item, legend, pastNotice, pin, purge, rememberButton, restore, tag} from "../memory-parts.js";
import {button, empty, failure, field, page, pager, select} from "../ui.js";

const LIMIT = 50;
const PAUSE = 180; // milliseconds after a key before the search is asked
const ORDERS = [["newest", "Newest first"], ["updated", "Changed last"], ["latest", "Happened last"], ["oldest", "Oldest first"], ["importance", "Most important"], ["credit", "Most useful"]];
const FILTERS = ["kind", "project", "tag", "client", "trust", "state", "since", "until", "pinned", "source"];

export async function render(context) {
  if (context.rest.length) return (await import("./memory.js")).render(context);
  const list = new List(context);
  await list.prepare();
  return list.page;
}

class List {
  constructor(context) {
    this.context = context;
    this.asked = Object.fromEntries(["q", "order", "offset", "as_of", ...FILTERS].map((name) => [name, context.query.get(name) ?? ""]));
    this.chosen = new Map();
    this.results = el("div", {class: "results", "aria-live": "polite"});
    this.bar = el("div", {class: "selection", role: "region", "aria-label": "Selected memories", hidden: true});
  }

  async prepare() {
    const {signal, go, may} = this.context;
    const [overview, choices] = await Promise.all([
      get("/api/console/overview", {as_of: this.asked.as_of}, {signal}),
      get("/api/console/choices", {}, {signal}),
    ]);
    await this.show();
    const search = el("input", {
      type: "search", name: "q", value: this.asked.q, placeholder: "Search by word or meaning", "aria-label": "Search memories",
      autocomplete: "off", maxlength: "1000", dir: "auto",
      oninput: () => {
        clearTimeout(this.waiting);
        this.waiting = setTimeout(() => this.change({q: search.value.trim(), offset: ""}), PAUSE);
      },
    });
    this.page = page("Memories", {
      lede: `${count(overview.total, "memory", "memories")}${this.asked.as_of ? " then" : ""}. Find one, correct it, or hide it.`,
      actions: may("write") && !this.asked.as_of ? [rememberButton(go)] : [],
    },
    pastNotice(this.asked.as_of, "/viewer/memories"),
    el("form", {class: "find", role: "search", onsubmit: (event) => { event.preventDefault(); this.change({q: search.value.trim(), offset: ""}); }},
      el("label", {class: "search"}, icon("search"), search),
      this.filters(overview, choices)),
    this.bar, this.results);
  }

  filters(overview, choices) {
    const set = (name) => (event) => this.change({[name]: event.target.value, offset: ""});
    const from = (pairs, all) => [["", all], ...pairs];
    const counted = (pairs) => pairs.map(([name, many]) => [name, `${name} (${number(many)})`]);
    const one = (name, pairs) => select(withCurrent(pairs, this.asked[name]), this.asked[name], {onchange: set(name)});
    const active = FILTERS.filter((name) => this.asked[name]).length;
    return el("details", {class: "narrowing", open: active > 0},
      el("summary", {}, active ? `Filters (${active})` : "Filters"),
      el("div", {class: "fields"},
        field("Kind", one("kind", from(counted(overview.kinds), "Any kind"))),
        (overview.projects.length > 0 || this.asked.project) && field("Project", one("project", from([...counted(overview.projects), ["-", "No project"]], "Any project"))),
        field("Tag", one("tag", from(choices.tags.map((each) => [each.tag, `${each.tag} (${number(each.count)})`]), "Any tag"))),
        field("Client", one("client", from(counted(overview.clients), "Any client"))),
        field("Trust", one("trust", from(Object.entries(TRUSTS), "Any"))),
        field("State", one("state", from([...Object.entries(STATES), ["any", "All, live or not"]], "Live"))),
        field("Pinned", one("pinned", from([["true", "Pinned only"], ["false", "Not pinned"]], "Any"))),
        field("From", el("input", {type: "date", value: this.asked.since.slice(0, 10), onchange: set("since")})),
        field("Until", el("input", {type: "date", value: this.asked.until.slice(0, 10), onchange: set("until")})),
        field("Order", select(ORDERS, this.asked.order || "newest", {onchange: set("order")}))),
      active > 0 && button("Clear filters", {kind: "quiet", onclick: () => this.context.go("/viewer/memories")}));
  }

  /** Show other memories, and put their filters into the page's address. */
  async change(changes) {
    Object.assign(this.asked, changes);
    const query = new URLSearchParams(Object.entries(this.asked).filter(([, value]) => value));
    history.replaceState(null, "", query.size ? `/viewer/memories?${query}` : "/viewer/memories");
    this.chosen.clear();
    await this.show();
  }

  async show() {
    this.asking?.abort();
    this.asking = new AbortController();
    const signal = AbortSignal.any ? AbortSignal.any([this.asking.signal, this.context.signal]) : this.asking.signal;
    const {q, order, offset, ...filters} = this.asked;
    this.results.setAttribute("aria-busy", "true");
    try {
      const found = q ? await get("/api/console/search", {q, ...filters}, {signal})
        : await get("/api/console/memories", {order, offset, limit: LIMIT, ...filters}, {signal});
      this.results.replaceChildren(...this.found(found));
    } catch (error) {
      if (error.name === "AbortError") return;
      if (error.status === 401 || !this.page) throw error;
      this.results.replaceChildren(failure(error, () => this.show()));
    }
    this.results.removeAttribute("aria-busy");
    this.selection();
  }

  found(found) {
    const {q, offset, as_of: asOf} = this.asked;
    if (!found.memories.length) return [this.nothing()];
    const changing = !asOf && (this.context.may("write") || this.context.may("delete"));
    const choose = changing ? (one, on) => { if (on) this.chosen.set(one.id, one); else this.chosen.delete(one.id); this.selection(); } : undefined;
    return [
      el("div", {class: "tally"}, el("p", {}, q ? `${count(found.total, "match", "matches")}, the best first` : count(found.total, "memory", "memories")), q && legend()),
      found.degraded && el("p", {class: "notice"}, icon("warning"), `Only words were searched: ${found.degraded}`),
      el("ul", {class: "memories"}, found.memories.map((one) => item(one, {asOf, choose, chosen: this.chosen.has(one.id)}))),
      q ? null : pager({offset: Number(offset) || 0, limit: LIMIT, total: found.total, go: async (at) => {
        await this.change({offset: at ? String(at) : ""});
        scrollTo(0, 0);
      }}),
    ].filter(Boolean);
  }

  nothing() {
    const filtered = FILTERS.some((name) => this.asked[name]) || this.asked.q;
    if (filtered) {
      return empty("Nothing found", "No memory passes these filters. Try other words, or fewer conditions.",
        button("Clear filters", {onclick: () => this.context.go("/viewer/memories")}));
    }
    return empty("Nothing is remembered yet", "What agents remember appears here. Home has the commands that fill a memory.",
      el("a", {class: "button", href: "/viewer"}, "Home"));
  }

  selection() {
    const ids = [...this.chosen.keys()], some = [...this.chosen.values()];
    const {may} = this.context;
    this.bar.hidden = ids.length === 0;
    if (!ids.length) return;
    const again = async () => { this.chosen.clear(); await this.show(); };
    const hidden = some.every((one) => one.state === "archived");
    this.bar.replaceChildren(...[
      el("strong", {}, `${number(ids.length)} selected`),
      may("write") && button("Tag", {icon: "tag", onclick: () => tag(ids, again)}),
      may("write") && button(some.every((one) => one.pinned) ? "Unpin" : "Pin", {icon: "pin", onclick: () => pin(ids, !some.every((one) => one.pinned), again)}),
      may("delete") && (hidden ? button("Restore", {icon: "undo", onclick: () => restore(ids, again)}) : button("Hide", {icon: "hide", onclick: () => hide(ids, again)})),
      may("admin") && button("Delete for good", {icon: "trash", kind: "danger", onclick: async () => { if (await purge(ids)) await again(); }}),
      button("Clear", {kind: "quiet", onclick: () => {
        this.chosen.clear();
        for (const box of this.results.querySelectorAll(".choose input")) box.checked = false;
        this.selection();
      }}),
    ].filter(Boolean));
  }
}

/** The choices, and the current value if it is not among them. */
function withCurrent(pairs, current) {
  return !current || pairs.some(([value]) => value === current) ? pairs : [...pairs, [current, current]];
}
