// The sign-in page.

import {signIn} from "./api.js";
import {el} from "./dom.js";
import {field, form} from "./ui.js";

/** Asks for an account or a token; `done` is called when one was accepted. */
export function signInPage(done) {
  const enter = async (fields) => { await signIn(fields); await done(); };
  const account = form({
    action: "Sign in",
    submit: ({name, password}) => enter({name, password}),
  },
  field("Name", el("input", {name: "name", autocomplete: "username", autocapitalize: "none", spellcheck: "false", required: true})),
  field("Password", el("input", {name: "password", type: "password", autocomplete: "current-password", required: true})));
  const token = form({
    action: "Sign in with the token",
    kind: "",
    submit: ({token: given}) => enter({token: given.trim()}),
  },
  field("Token", el("input", {name: "token", type: "password", autocomplete: "off", required: true}),
    "It is sent once; after that the browser holds a cookie that ends after twelve hours."));
  return el("article", {class: "page sign-in"},
    el("img", {src: "/viewer/assets/icons/icon.svg", alt: "", width: "56", height: "56"}),
    el("h1", {tabindex: "-1"}, "Sign in"),
    el("p", {class: "lede"}, "You see what your account or token may see."),
    el("section", {class: "card"}, account),
    el("details", {class: "card"}, el("summary", {}, "Use a token instead"), token,
      el("p", {class: "hint"}, "At the server's own machine, ", el("code", {}, "commonplace open"), " opens this page signed in.")));
}
