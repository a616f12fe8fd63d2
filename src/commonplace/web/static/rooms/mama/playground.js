// Playground: pages that agents made, each in a frame that cannot act as the person.

import {get, remove} from "../../api.js";
import {el, icon, moment, quoted, shown} from "../../dom.js";
import {button, confirmed, empty, iconButton, page, toast} from "../../ui.js";

export async function render({rest, signal, go, refresh}) {
  const found = await get("/api/playgrounds", {}, {signal});
  const slug = rest[0];
  if (slug) return one(found.find((each) => each.slug === slug), go);
  const lede = "Pages that agents made. They run in a frame of their own, without your rights.";
  if (!found.length) return page("Playground", {lede}, empty("No pages yet", "Ask an agent in the chat to make one."));
  return page("Playground", {lede}, el("ul", {class: "cards"}, found.map((each) => el("li", {class: "card row"},
    el("div", {class: "grow"},
      el("a", {href: `/viewer/playground/${each.slug}`, dir: "auto"}, quoted(each.name)),
      each.description && el("p", {dir: "auto"}, shown(each.description)),
      el("p", {class: "hint"}, moment(each.created_at))),
    iconButton(`Delete ${each.name}`, "trash", {onclick: () => deleted(each, refresh)})))));
}

function one(found, go) {
  const back = {href: "/viewer/playground", title: "Playground"};
  if (!found) return page("Not found", {back}, empty("There is no such page", "It may have been deleted."));
  const frame = el("iframe", {src: `/playgrounds/${found.slug}.html`, sandbox: "allow-scripts", title: found.name, class: "playground", referrerpolicy: "no-referrer"});
  return page(quoted(found.name), {
    back, lede: found.description && quoted(found.description),
    actions: [
      el("a", {class: "button", href: `/playgrounds/${found.slug}.html`, target: "_blank", rel: "noopener"}, icon("link"), el("span", {}, "Open alone")),
      button("Delete", {icon: "trash", onclick: () => deleted(found, () => go("/viewer/playground"))}),
    ],
  }, frame);
}

async function deleted(found, after) {
  if (!(await confirmed(`Delete ${found.name}?`, "The page is removed from the list and from the workspace.", {action: "Delete"}))) return;
  try {
    await remove(`/api/playgrounds/${found.slug}`);
    toast("Deleted.");
    await after();
  } catch (error) {
    toast(error.message, {error: true});
  }
}
