// Models: a profile for this machine, an engine of each kind from a list, and all weights.
import { html, render, nothing } from "./lit-html.js";
import { get, post } from "./api.js";
import { bytes } from "./realtime.js";

const BEFORE = "A job that was begun before"; // the page was opened or loaded again
const EVERY_MS = 500, DONE_SHOWN_MS = 8000;
const MOST_LANGUAGES = 10; // named
export const KINDS = {
  tts: ["Voice", "speaks"], stt: ["Hearing", "understands"], llm: ["Language model", "speaks"],
  turn: ["End of a turn", "understands"], vad: ["Voice activity", "understands"],
};

export const models = {
  show(host) {
    let known = { models: [], profiles: [], choices: [] }, can = [], voices = [], voice = "";
    let steps = [], problem = "", busy = "", done = "", loading = true, over = false, timer = 0, player = null;

    async function load() {
      try {
        const state = await get("state");
        ({ can, voices } = state);
        if (!busy && state.busy.length && !over) begin(BEFORE);
        if (can.includes("models")) known = await get("models");
      } catch (error) { problem = error.message; }
      loading = false;
      draw();
    }

    async function work(what, path, body) {
      begin(what);
      try {
        const answer = await post(path, body);
        end("", answer.steps);
        return answer;
      } catch (error) { end(error.message); }
    }

    function begin(what) {
      busy = what;
      problem = done = "";
      steps = [];
      clearTimeout(timer);
      watch();
    }

    function end(failure, last = []) {
      clearTimeout(timer);
      problem = failure;
      done = failure ? "" : `${busy}: done.`;
      steps = last;
      timer = setTimeout(() => { done = ""; steps = []; draw(); }, DONE_SHOWN_MS);
      busy = "";
      load();
    }

    async function watch() {
      draw();
      const state = await get("state").catch(() => null);
      if (over || !busy) return;
      if (state) steps = state.busy;
      if (state && busy === BEFORE && !steps.length) return end(state.failed.join());
      draw();
      timer = setTimeout(watch, EVERY_MS);
    }

    async function hear({ name, profile, running }) {
      const answer = await work(`The voice ${name}`, "models/try", { profile, voice: running && voices.includes(voice) ? voice : "" });
      if (!answer || over) return;
      player?.pause();
      const url = URL.createObjectURL(new Blob([bytes(answer.wav)], { type: "audio/wav" }));
      player = new Audio(url);
      player.onended = player.onpause = () => URL.revokeObjectURL(url);
      player.play().catch((error) => { problem = error.message; draw(); });
    }

    const put = (name, profile, kind) => work(name, "models/choose", { profile, ...(kind && { kind }) });

    function draw() {
      if (over) return;
      render(html`<div class="models">
        <div class="progress">
          <div role="status">${busy || done ? html`<p class="panel">${busy ? html`<strong>${busy} …</strong>` : done}${steps.length ? html`<span class="note"> ${steps.at(-1)}</span>` : nothing}</p>` : nothing}</div>
          ${problem ? html`<p class="panel bad" role="alert">${problem} <button @click=${() => { problem = ""; draw(); }}>Close</button></p>` : nothing}
        </div>
        ${loading ? html`<p class="note">Looking at this machine …</p>` : problem || can.length ? nothing : html`<p class="note">This server shows no models.</p>`}
        ${known.profiles.length ? proposal() : nothing}
        ${Object.entries(KINDS).map(([kind, names]) => list(kind, names))}
        ${known.models.length ? weights() : nothing}</div>`, host);
    }

    function proposal() {
      const best = known.profiles.find(({ why }) => !why);
      return html`<section class="panel"><h2>For this machine</h2>
        ${best ? html`<p><strong>${best.name}</strong> ${best.summary}</p>
          ${best.in_place ? html`<p class="note">Its engines are in place.</p>` : html`${best.fetches ? html`<p class="note">Fetches ${best.fetches}.</p>` : nothing}
            ${way(best)}`}` : html`<p>No profile fits.</p>`}
        ${known.changed && can.includes("use") ? html`<p><button ?disabled=${busy} @click=${() => put("Your settings", "")}>Go back to my settings</button> <span class="note">What you chose here lasts until the server stops.</span></p>` : nothing}
        <details><summary>All profiles, best first</summary><div class="wide"><table><tbody>${known.profiles.map(({ name, summary, why, fetches }) => html`<tr>
          <th scope="row">${name}</th><td>${summary}<p class="note">${why || "fits this machine"}${fetches ? html`<br>First start fetches ${fetches}` : nothing}</p></td></tr>`)}</tbody></table></div></details>
      </section>`;
    }

    function way({ name, needs_setup }) {
      const serve = html`<code>reachy-voice serve --config ${name}</code>`;
      return needs_setup ? html`<p>It needs packages, which a running server cannot install. Stop it, run <code>reachy-voice setup --config ${name}</code>, then ${serve}</p>` : html`
        ${can.includes("use") ? html`<button class="main" ?disabled=${busy} @click=${() => put(`The profile ${name}`, name)}>Put ${name} in place</button>` : nothing}
        <p class="note">No conversation is cut off. To keep it, with its settings for conversations: ${serve}</p>`;
    }

    function list(kind, [title, verb]) {
      const rows = known.choices.filter((each) => each.kind === kind);
      return rows.length ? html`<section class="panel"><h2>${title}</h2>
        <ul class="choices">${rows.sort((one, other) => other.running - one.running).map((row) => choice(row, verb))}</ul></section>` : nothing;
    }

    function choice(row, verb) {
      const { kind, name, engine, summary, running, here, needs, profile } = row;
      return html`<li class=${running ? "running" : ""}>
        <div><h3>${name}${engine === name ? nothing : html` <span class="note">${engine}</span>`}${running ? html` <span class="badge">in use</span>` : nothing}</h3>
          <p>${summary}</p><p class="note">${facts(row, verb)}</p>
          ${needs && !running ? html`<p class="note">Needs ${needs.replace(/^cannot/, "packages: cannot")}</p>` : nothing}</div>
        <div class="row">
          ${kind === "tts" && running && voices.length > 1 ? html`<select aria-label="Voice to try" @change=${({ target }) => { voice = target.value; }}>
            <option value="">as configured</option>${voices.map((each) => html`<option .selected=${each === voice}>${each}</option>`)}</select>` : nothing}
          ${kind === "tts" && here && (running || !needs) ? html`<button ?disabled=${busy} @click=${() => hear(row)} aria-label=${`Try the voice ${name}`}>Try this voice</button>` : nothing}
          ${running || !can.includes("use") ? nothing : html`<button ?disabled=${busy || needs} @click=${() => put(name, profile, kind)} aria-label=${`${here ? "Use" : "Fetch and use"} ${name}`}>${here ? "Use" : "Fetch and use"}</button>`}
        </div></li>`;
    }

    function weights() {
      return html`<details class="panel"><summary>All weights</summary><div class="wide" tabindex="0" role="region" aria-label="Table of weights"><table>
        <thead><tr><th scope="col">Name</th><th scope="col">Kind</th><th scope="col">Here</th><th scope="col" class="number">Size</th><th scope="col" class="number">Memory</th><th scope="col">Licence</th></tr></thead>
        <tbody>${known.models.map((row) => html`<tr>
          <th scope="row">${row.name}${row.used ? " (in use)" : ""}<p class="note">${row.summary}</p></th><td>${row.kind}</td>
          <td>${row.state === "present" ? "yes" : html`<button ?disabled=${busy} @click=${() => work(`Fetching ${row.name}`, "models/pull", { name: row.name })}>Fetch ${row.name}</button>`}</td>
          <td class="number">${Math.round(row.size_bytes / 1e6)} MB</td><td class="number">${row.memory_mb} MB</td><td>${row.licence}</td></tr>`)}</tbody></table></div></details>`;
    }

    load();
    return () => { over = true; clearTimeout(timer); player?.pause(); };
  },
};

// What an engine speaks, takes and costs.
function facts({ languages, memory_mb: memory, size_bytes: size, here, licence, url }, verb) {
  const names = new Intl.DisplayNames("en", { type: "language" });
  const named = (code) => { try { return names.of(code); } catch { return code; } }; // not a code
  const more = languages.length > MOST_LANGUAGES ? ` and ${languages.length - MOST_LANGUAGES} more` : "";
  return [
    url && `at ${url}`,
    languages.length && `${verb} ${languages.slice(0, MOST_LANGUAGES).map(named).join(", ")}${more}`,
    memory && `${memory.toLocaleString("en")} MB of memory`,
    size && (here ? "fetched" : `${Math.round(size / 1e6).toLocaleString("en")} MB to fetch`),
    licence,
  ].filter(Boolean).join(" · ");
}
