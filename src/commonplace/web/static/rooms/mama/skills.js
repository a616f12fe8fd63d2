// Skills: texts that agents may read; install, write, turn on and off.

import {get, post, put, remove} from "../../api.js";
import {el, quoted, shown} from "../../dom.js";
import {busy, button, card, confirmed, dialog, empty, field, form, iconButton, page, select, toast} from "../../ui.js";
import {chip, optional} from "./common.js";

const SHOWN = [["all", "All"], ["installed", "Installed"], ["mama", "MAMA"], ["cowork", "Cowork"], ["external", "External"]];

export async function render({query, signal, go, refresh}) {
  const words = query.get("q") ?? "", which = query.get("show") ?? "all";
  const source = ["mama", "cowork", "external"].includes(which) ? which : "all";
  const found = words ? (await get("/api/skills/search", {q: words, source}, {signal})).skills : await everything(source, signal);
  const skills = found.filter((one) => which !== "installed" || one.installed);
  const search = el("input", {type: "search", name: "q", value: words, placeholder: "Search skills", "aria-label": "Search skills", autocomplete: "off"});
  const chosen = select(SHOWN, which, {"aria-label": "Which skills", onchange: () => ask()});
  const ask = () => {
    const asked = new URLSearchParams();
    if (search.value.trim()) asked.set("q", search.value.trim());
    if (chosen.value !== "all") asked.set("show", chosen.value);
    go(`/viewer/skills${asked.size ? `?${asked}` : ""}`, {replace: true});
  };
  return page("Skills", {
    lede: "What agents can read to learn how something is done. A skill is a text: nothing in it is run.",
    actions: [
      button("From GitHub", {icon: "plus", onclick: () => installed(refresh)}),
      button("New skill", {icon: "edit", kind: "main", onclick: () => write(null, refresh)}),
    ],
  },
  el("form", {class: "narrowing", role: "search", onsubmit: (event) => { event.preventDefault(); ask(); }}, search, chosen),
  found.stale && el("p", {class: "hint", role: "status"}, "Skills to install are not listed: ", shown(found.stale)),
  skills.length ? el("div", {class: "grid"}, skills.map((one) => shownSkill(one, refresh)))
    : empty("No skills here", "Write one, or install one from GitHub."));
}

async function everything(source, signal) {
  const [held, offered] = await Promise.all([
    get("/api/skills", {}, {signal}), optional("/api/skills/catalog", {source}, signal),
  ]);
  const skills = held.skills.filter((one) => source === "all" || one.source === source);
  skills.push(...(offered.value?.skills ?? []).filter((one) => !one.installed));
  skills.stale = offered.error?.message ?? offered.value?.error ?? "";
  return skills;
}

function shownSkill(skill, refresh) {
  const path = `/api/skills/${encodeURIComponent(skill.id)}`;
  const acting = async (event, act, told) => {
    try {
      await busy(event.currentTarget, act);
      toast(told);
      await refresh();
    } catch (error) {
      toast(error.message, {error: true});
    }
  };
  const actions = skill.installed ? [
    button(skill.enabled ? "Turn off" : "Turn on", {"aria-label": `Turn ${skill.name} ${skill.enabled ? "off" : "on"}`,
      onclick: (event) => acting(event, () => put(path, {enabled: !skill.enabled, source: skill.source}), skill.enabled ? "Turned off." : "Turned on.")}),
    button("Open", {"aria-label": `Open ${skill.name}`, onclick: () => opened(skill, path, refresh)}),
    iconButton(`Uninstall ${skill.name}`, "trash", {onclick: async (event) => {
      const control = event.currentTarget;
      if (!(await confirmed(`Uninstall ${skill.name}?`, "Its text and files are deleted.", {action: "Uninstall"}))) return;
      await acting({currentTarget: control}, () => remove(`${path}?source=${skill.source}`), "Uninstalled.");
    }}),
  ] : [button("Install", {icon: "plus", "aria-label": `Install ${skill.name}`,
    onclick: (event) => acting(event, () => post("/api/skills/install", {source: skill.source, name: skill.id}), "Installed.")})];
  const made = card("", el("h2", {dir: "auto"}, quoted(skill.name)),
    el("div", {class: "chips"}, chip(skill.source), skill.installed && chip(skill.enabled ? "on" : "off", skill.enabled ? "kind" : "")),
    skill.description && el("p", {dir: "auto"}, shown(skill.description)), el("div", {class: "actions"}, actions));
  return made;
}

async function opened(skill, path, refresh) {
  let content;
  try {
    ({content} = await get(`${path}/readme`, {source: skill.source}));
  } catch (error) {
    toast(error.message, {error: true});
    return;
  }
  const edit = await dialog(skill.name, (close) => [
    el("pre", {dir: "auto", tabindex: "0", class: "tall", "aria-label": "The text of the skill"}, shown(content)),
    el("div", {class: "actions"}, button("Edit", {icon: "edit", onclick: () => close(true)})),
  ], {wide: true});
  if (edit) await write({...skill, content}, refresh);
}

/** Write a new skill, or the text of one. */
async function write(skill, refresh) {
  const saved = await dialog(skill ? `Edit ${skill.name}` : "New skill", (close) => form({
    cancel: () => close(),
    submit: async ({name, content}) => {
      if (skill) await put(`/api/skills/${encodeURIComponent(skill.id)}/content`, {content, source: skill.source});
      else await post("/api/skills", {name: name.trim(), content, source: "mama"});
      close(true);
    },
  },
  !skill && field("Name", el("input", {name: "name", required: true, maxlength: "100", autocapitalize: "none", spellcheck: "false"}), "Letters, digits, dots, - and _."),
  field("Text", el("textarea", {name: "content", required: true, maxlength: "200000", rows: "14", dir: "auto",
    value: skill?.content ?? "# Name of the skill\n\nWhat it is for.\n"}), "Markdown. The first heading and the paragraph under it describe it.")), {wide: true});
  if (saved) { await refresh(); toast("Saved."); }
}

async function installed(refresh) {
  const told = await dialog("Install from GitHub", (close) => form({
    action: "Install",
    cancel: () => close(),
    submit: async ({url}) => close(await post("/api/skills/install-url", {url: url.trim()})),
  },
  el("p", {class: "hint"}, "The files are stored as they are. None of them is run, and MCP servers that they name are listed, not started."),
  field("Address", el("input", {name: "url", type: "url", required: true, placeholder: "github.com/owner/repository, or a directory in it"}))));
  if (told) { toast(`Installed ${told.name}.`); await refresh(); }
}
