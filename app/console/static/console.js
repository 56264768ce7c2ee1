// The pages, and which of them is shown. A page has `show(host)`, which returns what ends it.
import { html, render } from "./lit-html.js";
import { Forbidden, get, key } from "./api.js";
import { talk } from "./talk.js";
import { turns } from "./turns.js";
import { server } from "./server.js";
import { models } from "./models.js";

const pages = { talk, turns, server, models };
const host = document.getElementById("page");
let leave = () => {}, shows = 0;

async function show() {
  const name = pages[location.hash.slice(1)] ? location.hash.slice(1) : "talk";
  const mine = ++shows;
  leave();
  leave = () => {};
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${name[0].toUpperCase()}${name.slice(1)} – reachy-voice`;
  const refused = await forbidden();
  if (mine !== shows) return;
  const fresh = document.createElement("div");
  host.replaceChildren(fresh);
  if (refused) askForKey(fresh, refused);
  else leave = pages[name].show(fresh) ?? (() => {});
}

async function forbidden() {
  try {
    await get("state");
  } catch (error) {
    if (error instanceof Forbidden) return error.message;
  }
  return "";
}

function askForKey(place, why) {
  function send(event) {
    event.preventDefault();
    key.set(event.target.elements.key.value.trim());
    show();
  }
  render(html`<form class="panel" @submit=${send}>
    <h2>This console needs a key</h2>
    <p class=${key.get() ? "bad" : "note"} role="status">${key.get() ? `That key does not open it. ${why}` : why}</p>
    <div class="row"><input type="password" name="key" autocomplete="off" aria-label="Key of an admin" placeholder="rv_…" required><button class="main">Open</button></div>
  </form>`, place);
}

addEventListener("hashchange", show);
show();
