// One memory: its text, where it came from, its versions, links and reads; and changes to it.

import {ApiError, get, patch, post, remove} from "../api.js";
import {difference} from "../diff.js";
import {client, count, el, icon, moment, number, quoted, shown} from "../dom.js";
import {LONGEST, markdown} from "../markdown.js";
import {STATES, TRUSTS, addressOf, hide, item, labels, nameOf, pastNotice, pin, purge, restore, tag, undoable} from "../memory-parts.js";
import {button, card, copyButton, dialog, field, form, iconButton, page, select, toast} from "../ui.js";

const LINK_KINDS = ["supports", "contradicts", "follows", "causes", "part_of", "related"];
const FIELDS = ["text", "title", "kind", "tags", "importance", "confidence", "pinned", "occurred_at", "source", "state", "trust"];

export async function render(context) {
  const {rest, query, signal} = context;
  const id = rest[0];
  const asOf = query.get("as_of") ?? "";
  const path = `/api/console/memories/${encodeURIComponent(id)}`;
  const [found, versions, calls] = await Promise.all([
    get(path, {as_of: asOf}, {signal}),
    get(`${path}/versions`, {}, {signal}).catch(ignored({versions: [], total: 0})),
    get(`${path}/calls`, {}, {signal}).catch(ignored({calls: []})),
  ]);
  return new Shown(context, {...found, versions, calls: calls.calls, asOf, path}).page();
}

/** Turn the error 404 into a value: a memory that no longer exists still has a page of the past. */
function ignored(value) {
  return (error) => { if (error instanceof ApiError && error.status === 404) return value; throw error; };
}

class Shown {
  constructor(context, found) {
    Object.assign(this, found);
    this.context = context;
    this.changing = !this.asOf;
    this.again = () => context.refresh();
    this.text = el("section", {class: "card text"});
  }

  page() {
    const one = this.memory;
    this.read();
    const heading = one.title || firstLine(one.text);
    const made = page(el("bdi", {}, shown(heading)), {back: {href: "/viewer/memories", title: "Memories"}, actions: this.actions()},
      pastNotice(this.asOf, addressOf(one.id)),
      this.superseded(),
      labels(one),
      el("div", {class: "two"},
        el("div", {class: "column"}, this.text, this.linkCard(), this.versionCard()),
        el("div", {class: "column"}, this.details(), this.pastCard(), this.callCard())));
    made.classList.add("one");
    return made;
  }

  actions() {
    const {may} = this.context;
    const {id, pinned, state, tags} = this.memory;
    if (!this.changing) return [];
    return [
      may("write") && button("Edit", {icon: "edit", kind: "main", onclick: () => this.edit()}),
      may("write") && button(pinned ? "Unpin" : "Pin", {icon: "pin", onclick: () => pin([id], !pinned, this.again)}),
      may("write") && button("Tag", {icon: "tag", onclick: () => tag([id], this.again, tags)}),
      may("delete") && (state === "archived"
        ? button("Restore", {icon: "undo", onclick: () => restore([id], this.again)})
        : button("Hide", {icon: "hide", onclick: () => hide([id], this.again)})),
      may("admin") && iconButton("Delete for good", "trash", {onclick: async () => { if (await purge([id])) await this.context.go("/viewer/memories"); }}),
    ].filter(Boolean);
  }

  superseded() {
    const newer = this.links.filter((link) => link.kind === "supersedes" && link.target === this.memory.id && link.other);
    if (!newer.length) return null;
    return el("div", {class: "notice warn", role: "note"}, icon("warning"),
      el("p", {}, "Superseded by ", newer.map((link) => el("a", {href: addressOf(link.other.id), dir: "auto"}, shown(nameOf(link.other)))), "."));
  }

  // The text, to read and to edit

  read() {
    const {text} = this.memory;
    const long = text.length > LONGEST;
    const body = el("div", {class: "prose", dir: "auto"}, markdown(long ? `${text.slice(0, LONGEST)}…` : text));
    const head = el("div", {class: "actions"}, copyButton(text, "Copy the text"));
    if (long) {
      const all = button(`Show all ${number(text.length)} characters`, {onclick: () => {
        body.replaceChildren(el("pre", {class: "plain", dir: "auto"}, shown(text)));
        all.remove();
      }});
      this.text.replaceChildren(el("div", {class: "card-head"}, el("h2", {}, "Text"), head), body, all);
      return;
    }
    const toggle = button("Source", {kind: "quiet small", "aria-pressed": "false", onclick: () => {
      const source = toggle.getAttribute("aria-pressed") === "false";
      toggle.setAttribute("aria-pressed", String(source));
      body.replaceChildren(...(source ? [el("pre", {class: "plain", dir: "auto"}, shown(text))] : markdown(text)));
    }});
    head.prepend(toggle);
    this.text.replaceChildren(el("div", {class: "card-head"}, el("h2", {}, "Text"), head), body);
  }

  edit(start = this.memory) {
    const {context, path} = this;
    const version = this.memory.version;
    const inputs = {
      title: el("input", {name: "title", value: start.title, dir: "auto"}),
      text: el("textarea", {name: "text", required: true, dir: "auto", rows: "12"}, start.text),
      kind: el("input", {name: "kind", value: start.kind, required: true}),
      tags: el("input", {name: "tags", value: start.tags.join(", ")}),
      importance: el("input", {name: "importance", type: "number", min: "0", max: "1", step: "any", value: String(start.importance)}),
      occurred_at: el("input", {name: "occurred_at", value: start.occurred_at ?? "", placeholder: "2026-01-31"}),
      source: el("input", {name: "source", value: start.source}),
    };
    const problem = el("div", {});
    const changes = () => this.changed(inputs);
    const save = async (expected) => {
      const changed = changes();
      if (!Object.keys(changed).length) { context.unsaved(() => false); this.read(); return; }
      try {
        const told = await patch(path, {version: expected, ...changed});
        context.unsaved(() => false);
        await undoable(async () => told, "Saved.", this.again);
      } catch (error) {
        if (!(error instanceof ApiError) || error.status !== 409) throw error;
        const theirs = await get(path);
        problem.replaceChildren(this.conflict(theirs.memory, inputs.text.value, () => save(theirs.memory.version)));
        problem.querySelector("button")?.focus();
      }
    };
    context.unsaved(() => Object.keys(changes()).length > 0);
    const made = form({
      action: "Save", submit: () => save(version),
      cancel: () => { context.unsaved(() => false); this.read(); },
    },
    field("Text", inputs.text, "Markdown is shown."), field("Title", inputs.title),
    el("div", {class: "pair"}, field("Kind", inputs.kind), field("Tags", inputs.tags, "Separated by commas.")),
    el("div", {class: "pair"}, field("Importance", inputs.importance, "From 0 to 1."), field("Happened", inputs.occurred_at, "A date or a time; empty if it is not known.")),
    field("Source", inputs.source), problem);
    this.text.replaceChildren(el("h2", {}, "Edit"), made);
    inputs.text.focus();
  }

  changed(inputs) {
    const {memory} = this;
    const tags = inputs.tags.value.split(",").map((each) => each.trim()).filter(Boolean);
    const found = {};
    for (const name of ["title", "text", "kind", "source"]) if (inputs[name].value !== memory[name]) found[name] = inputs[name].value;
    if (tags.join("\n") !== memory.tags.join("\n")) found.tags = tags;
    if (Number(inputs.importance.value) !== memory.importance) found.importance = Number(inputs.importance.value);
    if (inputs.occurred_at.value.trim() !== (memory.occurred_at ?? "")) found.occurred_at = inputs.occurred_at.value.trim() || null;
    return found;
  }

  conflict(theirs, mine, overwrite) {
    return el("div", {class: "notice warn column", role: "alert"},
      el("h3", {}, "Somebody has changed this memory meanwhile"),
      el("p", {}, "Your change is not saved. Struck out is what is stored now; underlined is what you have written."),
      difference(theirs.text, mine),
      el("div", {class: "actions"},
        button("Save mine over it", {kind: "danger", onclick: async () => {
          try { await overwrite(); } catch (error) { toast(error.message, {error: true}); }
        }}),
        button("Take theirs", {onclick: () => { this.context.unsaved(() => false); this.again(); }})));
  }

  // What is known of it

  details() {
    const one = this.memory;
    const {origin} = one;
    const rows = [
      ["State", STATES[one.state] ?? one.state],
      ["Trust", el("span", {}, TRUSTS[one.trust] ?? one.trust, this.changing && one.trust !== "stated" && this.context.may("admin")
        && [" ", button("Promote", {kind: "quiet small", onclick: () => this.promote()})])],
      ["Importance", meter(one.importance)],
      ["Confidence", meter(one.confidence)],
      ["Credit", meter(one.credit)],
      one.occurred_at && ["Happened", moment(one.occurred_at, {exact: true})],
      ["Stored", moment(one.created_at, {exact: true})],
      ["Changed", moment(one.updated_at, {exact: true})],
      origin.client && ["Client", quoted(client(origin.client))],
      origin.user && ["By", quoted(origin.user)],
      origin.tool && ["With", quoted(origin.tool)],
      one.source && ["Source", quoted(one.source)],
      ["Read", el("span", {}, this.usage.accesses ? [`${count(this.usage.accesses, "time")}, last `, moment(this.usage.last_access)] : "Never yet")],
      ["Id", el("span", {class: "id"}, el("code", {}, one.id), copyButton(one.id, "Copy the id"))],
    ].filter(Boolean);
    return card("Details", el("dl", {}, rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])));
  }

  async promote() {
    const {id, trust} = this.memory;
    await dialog("Promote the trust", (close) => form({
      action: "Promote", cancel: () => close(),
      submit: async ({trust: chosen}) => {
        const told = await post(`${this.path}/trust`, {trust: chosen});
        close();
        await undoable(async () => told, "Promoted.", this.again);
      },
    }, el("p", {}, "Agents give more weight to what a person has stated. Promote only what you know to be true."),
    field("Trust", select(Object.entries(TRUSTS).filter(([name]) => name !== trust && name !== "external"), "stated", {name: "trust", id: `trust-${id}`}))));
  }

  pastCard() {
    const at = el("input", {name: "at", type: "datetime-local", required: true, step: "1", "aria-label": "The moment"});
    return card("As it was on…", form({
      action: "Show", kind: "",
      submit: async () => {
        const moments = new Date(at.value);
        await this.context.go(addressOf(this.memory.id, moments.toISOString()));
      },
    }, at));
  }

  // Links

  linkCard() {
    const {id} = this.memory;
    const rows = this.links.map((link) => {
      const outward = link.source === id;
      return el("li", {class: "link"},
        el("div", {class: "way"}, el("span", {class: "chip kind"}, quoted(link.kind)), el("span", {class: "muted"}, outward ? "this → that" : "that → this"),
          link.reason && el("span", {class: "muted", dir: "auto"}, shown(link.reason)),
          this.changing && this.context.may("write") && iconButton("Remove this link", "close", {onclick: () => undoable(() => remove(`/api/console/links/${link.id}`), "Link removed.", this.again)})),
        link.other ? el("ul", {class: "memories plain"}, item(link.other, {asOf: this.asOf})) : el("p", {class: "muted"}, "A memory that is gone"));
    });
    return card(`Links${rows.length ? ` (${rows.length})` : ""}`,
      rows.length ? el("ul", {class: "links"}, rows) : el("p", {class: "muted"}, "It is linked to nothing."),
      this.changing && this.context.may("write") && el("div", {class: "actions"}, button("Connect", {icon: "link", onclick: () => this.connect()})));
  }

  async connect() {
    let chosen = null;
    await dialog("Connect to another memory", (close) => {
      const results = el("ul", {class: "choices", "aria-live": "polite"});
      let waiting;
      const search = el("input", {type: "search", autocomplete: "off", dir: "auto", oninput: () => {
        clearTimeout(waiting);
        waiting = setTimeout(async () => {
          const q = search.value.trim();
          if (!q) { results.replaceChildren(); return; }
          const found = await get("/api/console/search", {q, limit: 6}).catch(() => ({memories: []}));
          results.replaceChildren(...found.memories.filter((one) => one.id !== this.memory.id).map((one) => el("li", {},
            el("label", {}, el("input", {type: "radio", name: "target", value: one.id, required: true, onchange: () => { chosen = one.id; }}), el("span", {dir: "auto"}, shown(nameOf(one)))))));
        }, 180);
      }});
      return form({
        action: "Connect", cancel: () => close(),
        submit: async ({kind, reason}) => {
          if (!chosen) throw new Error("Search for a memory, and choose one.");
          const told = await post("/api/console/links", {source: this.memory.id, target: chosen, kind, reason});
          close();
          await undoable(async () => told, "Connected.", this.again);
        },
      },
      field("To", search, "Search for the other memory, and choose it."), results,
      field("How", el("input", {name: "kind", list: "link-kinds", value: "supports", required: true})),
      el("datalist", {id: "link-kinds"}, LINK_KINDS.map((kind) => el("option", {value: kind}))),
      field("Why", el("input", {name: "reason", dir: "auto"})));
    });
  }

  // Versions and reads

  versionCard() {
    const {versions} = this.versions;
    if (versions.length < 2) return card("Versions", el("p", {class: "muted"}, "It was never changed."));
    const place = el("div", {});
    const rows = versions.map((version, index) => {
      const former = versions[index + 1];
      const names = former ? FIELDS.filter((name) => JSON.stringify(version[name]) !== JSON.stringify(former[name])) : [];
      const shows = former && version.text !== null && former.text !== null;
      return el("li", {},
        el("div", {class: "way"}, moment(version.since, {exact: true}),
          el("span", {class: "muted"}, former ? `changed ${names.join(", ") || "nothing that is shown"}` : "first stored")),
        el("div", {class: "actions"},
          shows && button("What changed", {kind: "quiet small", onclick: () => place.replaceChildren(this.compared(former, version, names))}),
          el("a", {class: "button quiet small", href: addressOf(this.memory.id, version.since)}, "As it was")));
    });
    if (versions[0].text !== null && versions[1].text !== null) {
      const names = FIELDS.filter((name) => JSON.stringify(versions[0][name]) !== JSON.stringify(versions[1][name]));
      place.append(this.compared(versions[1], versions[0], names));
    }
    return card(`Versions (${number(this.versions.total)})`, place, el("ol", {class: "entries"}, rows));
  }

  compared(former, version, names) {
    const value = (one, name) => (one[name] === null || one[name] === "" || one[name]?.length === 0 ? "—" : String(one[name]));
    const others = names.filter((name) => name !== "text");
    return el("div", {class: "compared"},
      el("p", {class: "muted"}, "From ", moment(former.since, {exact: true}), " to ", moment(version.since, {exact: true})),
      former.text !== version.text && difference(former.text, version.text),
      others.length > 0 && el("dl", {}, others.flatMap((name) => [el("dt", {}, name), el("dd", {dir: "auto"}, el("del", {}, shown(value(former, name))), " ", el("ins", {}, shown(value(version, name))))])));
  }

  callCard() {
    if (!this.calls.length) return card("Returned to", el("p", {class: "muted"}, "No call of the audit log has returned it lately."));
    return card(`Returned to (${this.calls.length})`, el("ol", {class: "entries calls"}, this.calls.map((call) => el("li", {},
      el("div", {class: "way"}, moment(call.at), el("strong", {}, quoted(call.tool)), el("span", {class: "muted"}, quoted(client(call.client) || call.caller || call.dialect)))))));
  }
}

function firstLine(text) {
  const line = text.trim().split("\n", 1)[0].replace(/^#+\s*/, "");
  return line.length > 90 ? `${line.slice(0, 90)}…` : line || "A memory without words";
}

function meter(value) {
  return el("span", {class: "meter"}, el("meter", {min: "0", max: "1", value, "aria-hidden": "true"}), value.toFixed(2));
}
