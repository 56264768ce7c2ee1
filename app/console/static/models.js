// Models: which exist, fit and run; fetch weights and replace engines.
import { html, render, nothing } from "./lit-html.js";
import { get, post } from "./api.js";

const EVERY_MS = 500;

export const models = {
  show(host) {
    let rows = [], profiles = [], steps = [], problem = "", busy = "", over = false, timer = 0, can = [];

    async function load() {
      try {
        ({ can } = await get("state"));
        if (can.includes("models")) ({ models: rows, profiles } = await get("models"));
      } catch (error) { problem = error.message; }
      draw();
    }

    async function work(what, path, body) {
      busy = what;
      problem = "";
      steps = [];
      watch();
      try {
        const answer = await post(path, body);
        steps = answer.steps ?? ["done"];
      } catch (error) { problem = error.message; }
      busy = "";
      clearTimeout(timer);
      load();
    }

    async function watch() {
      const state = await get("state").catch(() => null);
      if (over || !busy) return;
      if (state) steps = state.busy;
      draw();
      timer = setTimeout(watch, EVERY_MS);
    }

    function use(event) {
      event.preventDefault();
      const text = event.target.elements.assignments.value.trim();
      if (text) work(`Replacing: ${text}`, "models/use", { assignments: text.split(/\s+/) });
    }

    function draw() {
      if (over) return;
      render(html`
        ${problem ? html`<p class="bad" role="alert">${problem}</p>` : nothing}
        ${problem || can.length ? nothing : html`<p class="note">This server shows no models.</p>`}
        <p class="note" role="status">${busy}${steps.length ? ` ${steps.join("; ")}` : ""}</p>
        ${can.includes("use") ? html`<form class="panel" @submit=${use}>
          <h2>Replace an engine</h2>
          <p class="note">No client is disconnected. The change lasts until the server stops; to keep it, add it to your settings.</p>
          <div class="row"><input type="text" name="assignments" aria-label="Engine" placeholder="tts=espeak-ng llm.threads=2">
            <button ?disabled=${busy}>Use it</button></div></form>` : nothing}
        ${profiles.length ? html`<section class="panel"><h2>Profiles</h2>
          <p class="note">Best first; chosen when the server starts: <code>reachy-voice serve --config NAME</code></p>
          <table><tbody>${profiles.map(({ name, why, fetches }) => html`<tr><th scope="row">${name}</th><td>${why || "fits this machine"}${fetches ? html`<p class="note">First start fetches ${fetches}</p>` : nothing}</td></tr>`)}</tbody></table></section>` : nothing}
        ${rows.length ? html`<section class="panel"><h2>Weights</h2><div class="wide" tabindex="0" role="region" aria-label="Table of weights"><table>
          <thead><tr><th scope="col">Name</th><th scope="col">Kind</th><th scope="col">Here</th><th scope="col">Size</th><th scope="col">Memory</th><th scope="col">Licence</th></tr></thead>
          <tbody>${rows.map((row) => html`<tr>
            <th scope="row">${row.name}${row.used ? " (configured)" : ""}<p class="note">${row.summary}</p></th><td>${row.kind}</td>
            <td>${row.state === "present" ? "yes" : html`<button ?disabled=${busy} @click=${() => work(`Fetching ${row.name}`, "models/pull", { name: row.name })}>Fetch ${row.name}</button>`}</td>
            <td>${Math.round(row.size_bytes / 1e6)} MB</td><td>${row.memory_mb} MB</td><td>${row.licence}</td></tr>`)}</tbody></table></div></section>` : nothing}`, host);
    }

    load();
    return () => { over = true; clearTimeout(timer); };
  },
};
