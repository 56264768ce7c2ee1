// Shows one of the pages. A page's `show(host)` returns a function that ends it.
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
  let state = {}, refused = "";
  try { state = await get("state"); } catch (error) { if (error instanceof Forbidden) refused = error.message; }
  const secure = isSecureContext ? undefined : await secured();
  if (mine !== shows) return;
  const fresh = document.createElement("div");
  host.replaceChildren(fresh);
  if (!isSecureContext) {
    const warning = document.createElement("div");
    render(warn(secure), warning);
    host.prepend(warning);
  }
  if (refused) askForKey(fresh, refused);
  else leave = pages[name].show(fresh, state) ?? (() => {});
}

// The encrypted port, if there is one and the server can be reached. Anybody may ask, with any key.
async function secured() {
  try { return (await (await fetch("secure")).json()).secure; } catch { return null; }
}

function warn(secure) {
  const address = secure && `https://${location.hostname}:${secure.port}/console/`;
  return html`<section class="panel" role="alert"><h2>This page is not encrypted</h2>
    <p>Others on the network can read a key that you type here, and the browser gives it neither microphone nor sound.</p>
    ${secure
      ? html`<p>Open <a href=${address}>${address}</a>. Its certificate, SHA-256:</p><p><code>${secure.fingerprint}</code></p>
        <p class="note">To avoid the browser's warning, trust <a href="authority">the server's authority</a> on this device. It can vouch for this server and private addresses only.</p>`
      : html`<p>On the server, set <code>server.browser_port: 8766</code>; or open the page on the server itself, as <code>http://localhost:${location.port}/console/</code>.</p>`}
  </section>`;
}

function askForKey(place, why) {
  function send(event) {
    event.preventDefault();
    key.set(event.target.elements.key.value.trim());
    show();
  }
  render(html`<form class="panel" @submit=${send}>
    <h2>This console needs a key</h2>
    <p class=${key.get() ? "bad" : "note"} role="status">${key.get() ? `That key was not accepted. ${why}` : why}</p>
    <div class="row"><input type="password" name="key" autocomplete="off" aria-label="Admin key" placeholder="rv_…" required><button class="main">Open</button></div>
  </form>`, place);
}

addEventListener("hashchange", show);
show();
