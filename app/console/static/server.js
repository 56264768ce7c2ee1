// Server: readiness, latency, who may connect, and checks.
import { html, svg, render, nothing } from "./lit-html.js";
import { follow, get, post } from "./api.js";
import { KINDS } from "./models.js";
import { people } from "./people.js";

const EVERY_MS = 2000;
const DIRECTION_EVERY_MS = 500;
const LOAD_EVERY_MS = 10_000;
const HOUR_S = 3600;

export const server = {
  show(host) {
    const answers = []; // { at, ms } of the turns that the server keeps
    let state = null, who = null, checks = null, checking = false, made = null, problem = "", unreachable = "", timer = 0, over = false;
    let load = null, loaded = 0; // memory and load, and when they were asked for

    const stop = follow("turns", (kind, turn) => {
      if (kind === "begin") answers.length = 0;
      else if (!turn.under_way && turn.first_audio_ms !== null && turn.origin === "voice") answers.push({ at: turn.at, ms: turn.first_audio_ms });
    }, () => {});

    async function look() {
      try {
        state = await get("state");
        if (state.can.includes("access")) who = await get("access");
        if (Date.now() - loaded >= LOAD_EVERY_MS) {
          loaded = Date.now();
          load = await get("load");
        }
        if (unreachable) problem = unreachable = "";
      } catch (error) {
        state = null;
        unreachable = error.message;
      }
      if (over) return;
      draw();
      timer = setTimeout(look, state?.array ? DIRECTION_EVERY_MS : EVERY_MS);
    }

    async function act(path, body) {
      problem = "";
      try {
        return await post(path, body);
      } catch (error) {
        problem = error.message;
      } finally {
        clearTimeout(timer);
        look();
      }
    }

    async function check() {
      checking = true;
      draw();
      try { ({ checks } = await get("doctor")); } catch (error) { problem = error.message; }
      checking = false;
      draw();
    }

    async function makeKey(event) {
      event.preventDefault();
      const { name, admin } = event.target.elements;
      made = await act("access/key", { name: name.value.trim(), admin: admin.checked });
      if (made) event.target.reset();
      draw();
    }

    function draw() {
      if (over) return;
      render(html`
        ${[...new Set([problem, unreachable])].map((why) => why && html`<p class="bad" role="alert">${why}</p>`)}
        ${state ? html`
          <section class="panel"><h2>Engines</h2>
            <table><tbody>${Object.entries(state.engines).map(([name, why]) => html`<tr><th scope="row">${KINDS[name]?.[0] ?? name}</th><td class="note">${state.models[name]}</td><td class=${why ? "bad" : ""}>${why ?? state.notes[name] ?? "ready"}</td></tr>`)}</tbody></table>
            <p class="note">Conversations: ${state.sessions}. <a href="/metrics">All figures, for Prometheus</a></p>
          </section>
          ${state.array ? array(state.array) : nothing}
          ${history()}
          ${state.can.includes("people") ? household() : nothing}
          ${who ? access() : nothing}
          ${state.can.includes("doctor") ? doctor() : nothing}` : nothing}`, host);
    }

    function array({ url, problem, azimuth_deg: azimuth, speech }) {
      const angle = ((azimuth ?? 90) * Math.PI) / 180; // 0 left, 90 front, 180 right
      const text = problem ?? (azimuth === null ? "no speech yet" : `${speech ? "speech" : "last speech"} from ${Math.round(azimuth)}° (0° left, 90° front, 180° right)`);
      return html`<section class="panel"><h2>The robot's microphone array</h2>
        <p class=${problem ? "bad" : "note"}>${url}: ${text}</p>
        ${problem || azimuth === null ? nothing : html`<svg class="compass" viewBox="-50 -50 100 100" role="img" aria-label=${text}>
          <circle r="36"></circle><text y="-40">front</text><text x="-43" y="4">L</text><text x="43" y="4">R</text>
          <line class="needle" x2=${-30 * Math.cos(angle)} y2=${-30 * Math.sin(angle)} opacity=${speech ? 1 : 0.4}></line></svg>`}
      </section>`;
    }

    function history() {
      const now = Date.now() / 1000;
      const last = answers.filter(({ at }) => now - at < HOUR_S);
      const sorted = last.map(({ ms }) => ms).sort((one, other) => one - other);
      const percentile = (share) => Math.round(sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))]);
      const most = Math.max(1000, ...sorted);
      const text = sorted.length ? `${sorted.length} answers: P50 ${percentile(0.5)} ms, P95 ${percentile(0.95)} ms` : "no spoken answer yet";
      return html`<section class="panel"><h2>The last hour</h2>
        <h3>From the end of speech to the first audio</h3><p class="note">${text}</p>
        ${sorted.length ? html`<svg class="plot" viewBox="0 0 1000 120" preserveAspectRatio="none" role="img" aria-label=${text}>
          ${[0.5, 0.95].map((share) => svg`<rect x="0" width="1000" height="1" y=${height(percentile(share), most)} class="fill-pause"></rect>`)}
          ${last.map(({ at, ms }) => svg`<rect x=${when(at, now) - 3} width="4" height="6" y=${height(ms, most) - 3} class="fill-voice"><title>${Math.round(ms)} ms</title></rect>`)}
        </svg>` : nothing}
        ${load?.samples?.length ? [
          course("Memory", load.samples.map(([at, mib]) => [at, mib]), load.memory_mib, now, (mib) => `${Math.round(mib)} MiB`, `${(load.memory_mib / 1024).toFixed(1)} GiB`),
          course("Busy cores", load.samples.map(([at, , cores]) => [at, cores]), load.cores, now, (cores) => cores.toFixed(1), load.cores),
        ] : nothing}
        <p class="note ends"><span>an hour ago</span><span>now</span></p>
      </section>`;
    }

    const household = people(draw);

    function access() {
      return html`<section class="panel"><h2>Who may connect</h2>
        ${who.refused.length ? html`<h3>Refused</h3><ul class="plain">${who.refused.map(({ address, refused }) => html`<li>
          ${address} (${refused} times) <button @click=${() => act("access/allow", { address, allowed: true })}>Allow ${address}</button></li>`)}</ul>` : nothing}
        <h3>Addresses without a key</h3>
        ${who.addresses.length ? html`<ul class="plain">${who.addresses.map(({ address, note }) => html`<li>
          ${address} ${note} <button @click=${() => act("access/allow", { address, allowed: false })}>Remove ${address}</button></li>`)}</ul>` : html`<p class="note">none</p>`}
        <h3>Keys</h3>
        ${made ? html`<p role="status">The new key, shown once: <code>${made.key}</code></p>` : nothing}
        ${who.keys.length ? html`<ul class="plain">${who.keys.map(({ name, created, admin }) => html`<li>
          ${name}, since ${created}${admin ? ", opens the console" : ""} <button @click=${() => act("access/remove-key", { name })}>Remove ${name}</button></li>`)}</ul>` : html`<p class="note">none</p>`}
        <form class="row" @submit=${makeKey}>
          <input type="text" name="name" aria-label="Name of the new key" placeholder="laptop" required pattern=".*\\S.*">
          <label><input type="checkbox" name="admin"> opens the console</label>
          <button>Make a key</button>
        </form>
      </section>`;
    }

    function doctor() {
      return html`<section class="panel"><h2>Checks</h2>
        <button @click=${check} ?disabled=${checking}>${checking ? "Checking …" : "Check this machine"}</button>
        ${checks ? html`<table><tbody>${checks.map(({ name, state: found, detail, fix }) => html`<tr>
          <td class=${found === "ok" ? "" : "bad"}>${found}</td><th scope="row">${name}</th><td>${detail}${fix ? html`<br><strong>${fix}</strong>` : nothing}</td></tr>`)}</tbody></table>` : nothing}
      </section>`;
    }

    look();
    return () => { over = true; clearTimeout(timer); household.close(); stop(); };
  },
};

function when(at, now) {
  return 998 - ((now - at) / HOUR_S) * 996;
}

function height(value, most) {
  return 116 - (value / most) * 110;
}

// A quantity over the last hour, of all that the machine has.
function course(name, samples, whole, now, shown, all) {
  const last = samples.filter(([at]) => now - at < HOUR_S);
  if (!last.length) return nothing;
  const peak = Math.max(...last.map(([, value]) => value));
  const text = `${shown(last.at(-1)[1])} of ${all}; at most ${shown(peak)}`;
  const top = Math.min(whole, Math.max(peak * 1.25, whole / 20));
  const points = last.map(([at, value]) => `${when(at, now).toFixed(1)} ${height(value, top).toFixed(1)}`);
  const [from, to] = [points[0], points.at(-1)].map((point) => point.split(" ")[0]);
  return html`<h3>${name}</h3><p class="note">${text}</p>
    <svg class="plot" viewBox="0 0 1000 120" preserveAspectRatio="none" role="img" aria-label=${`${name}: ${text}`}>
      <path class="area" d=${`M${from} 120L${points.join("L")}L${to} 120Z`}></path><path class="line" d=${`M${points.join("L")}`}></path></svg>`;
}
