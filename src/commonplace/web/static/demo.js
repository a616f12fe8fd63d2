// Sample memories in a space of their own: looking at them, and removing them again.

import {post, remove, signIn, whoIsHere} from "./api.js";
import {el} from "./dom.js";
import {busy, button, confirmed, toast} from "./ui.js";

/** A button that shows the sample memories. */
export function demoButton({me, enter}, label = "Look at sample memories") {
  return button(label, {icon: "play", onclick: async (event) => {
    const sure = !me.signed_in || await confirmed("Look at sample memories?",
      "They are in a space of their own, so this signs you out of yours. Sign in again afterwards.", {action: "Show them", kind: "main"});
    if (!sure) return;
    try {
      await busy(event.currentTarget, async () => {
        const {code} = await post("/api/console/demo");
        await signIn({code});
      });
      await enter();
    } catch (error) {
      toast([error.message, error.hint].filter(Boolean).join(" "), {error: true});
    }
  }});
}

/** The notice above every page while the sample memories are shown; null otherwise. */
export function demoNotice(me, enter) {
  if (!me?.demo) return null;
  return el("aside", {class: "demo", "aria-label": "Sample memories"},
    el("p", {}, "These are sample memories of a small team. Try everything: they are apart from yours."),
    button("Remove them and go back", {onclick: async (event) => {
      try {
        await busy(event.currentTarget, () => remove("/api/console/demo"));
        await whoIsHere();
        history.pushState(null, "", "/viewer");
        await enter();
        toast("The sample memories are deleted.");
      } catch (error) {
        toast([error.message, error.hint].filter(Boolean).join(" "), {error: true});
      }
    }}));
}
