// People whose voices the robot knows: a part of the server's page.
import { html, nothing } from "./lit-html.js";
import { get, post } from "./api.js";
import { base64 } from "./realtime.js";
import { LOST, Sound, refusal } from "./sound.js";

const RECORD_S = 32; // 20 s of speech, with pauses
const TEXT = "I live here, and I would like you to know my voice. In the morning I ask what the weather will be like, and whether I need an umbrella. Later I want to know how long the eggs have been on the stove, and when the next bus goes. Sometimes I only want to hear a story, or the name of a bird that I saw in the garden. When somebody else talks, or the radio, you need not answer.";

// Returns a function that shows the panel; draw() shows the page anew.
export function people(draw) {
  let known = null, name = "", left = 0, busy = false, problem = "", done = "";
  let pieces = [], sound = null;

  async function ask(path, body) {
    try {
      known = (path ? await post(path, body) : await get("people")).people;
      problem = "";
      return true;
    } catch (error) {
      known ??= [];
      problem = error.message;
      return false;
    } finally { draw(); }
  }

  async function record(event) {
    event.preventDefault();
    if (sound) return; // the browser is asking already
    name = event.target.elements.name.value.trim();
    pieces = [];
    problem = done = "";
    sound = new Sound(hear, () => {}, () => fail(LOST));
    if (!(await ask("people/check", { name }))) stop(); // before anybody reads for nothing
    if (!sound) return; // or the page was left
    try { await sound.listen(); } catch (error) { return fail(refusal(error)); }
    if (!sound) return;
    left = RECORD_S;
    draw();
  }

  function fail(why) {
    stop();
    problem = why;
    draw();
  }

  async function hear(pcm) {
    if (!left) return;
    pieces.push(pcm);
    const now = Math.max(0, Math.ceil(RECORD_S - pieces.length / 50));
    if (now === left) return;
    left = now;
    draw();
    if (left) return;
    stop();
    busy = true;
    draw();
    const recording = pieces.map(base64).join(""); // a piece has 960 bytes, so none is padded
    pieces = [];
    const learned = await ask("people/add", { name, pcm: recording });
    busy = false;
    done = learned ? `${name} is known now.` : "";
    draw();
  }

  function stop() {
    left = 0;
    sound?.close();
    sound = null;
  }

  function show() {
    if (known === null) { known = []; ask(); }
    return html`<section class="panel"><h2>Who speaks</h2>
      ${known.length ? html`<ul class="plain">${known.map((each) => html`<li>
        ${each.name}, since ${each.added} <button @click=${() => ask("people/remove", { name: each.name })}>Forget ${each.name}</button></li>`)}</ul>` : html`<p class="note">Nobody's voice is known.</p>`}
      ${problem ? html`<p class="bad" role="alert">${problem}</p>` : nothing}
      ${done ? html`<p role="status">${done}</p>` : nothing}
      ${left ? html`<p role="status">Read this aloud, alone and at your usual distance: ${left} s</p><p>${TEXT}</p><button @click=${() => { stop(); draw(); }}>Cancel</button>` : html`
        <form class="row" @submit=${record}>
          <input type="text" name="name" aria-label="Name of the person" placeholder="Tom" maxlength="40" required pattern=".*\\S.*">
          <button ?disabled=${busy}>${busy ? "Learning …" : "Learn a voice"}</button>
        </form>`}
    </section>`;
  }

  show.close = stop;
  return show;
}
