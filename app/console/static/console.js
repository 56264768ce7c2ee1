// The pages, and which of them is shown. A page has `show(host)`, which returns what ends it.
import { talk } from "./talk.js";
import { turns } from "./turns.js";
import { server } from "./server.js";

const pages = { talk, turns, server };
const host = document.getElementById("page");
let leave = () => {};

function show() {
  const name = pages[location.hash.slice(1)] ? location.hash.slice(1) : "talk";
  leave();
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const fresh = document.createElement("div");
  host.replaceChildren(fresh);
  document.title = `${name[0].toUpperCase()}${name.slice(1)} – reachy-voice`;
  leave = pages[name].show(fresh) ?? (() => {});
}

addEventListener("hashchange", show);
show();
