// Talk: by microphone or by text.
import { html, render, nothing } from "./lit-html.js";
import { get } from "./api.js";
import { Realtime, base64, bytes } from "./realtime.js";
import { LOST, Sound, leave, microphones, refusal } from "./sound.js";
import { Being, WORDS, stateOf } from "./being.js";
import { Conversation } from "./conversation.js";
import { offered } from "./tools.js";
import { fromCamera, fromFile } from "./picture.js";

const LANGUAGES = { "": "as configured", en: "English", de: "Deutsch", fr: "Français", es: "Español", it: "Italiano", pt: "Português", nl: "Nederlands" };
const DRAW_EVERY_MS = 100; // the level; chunks of audio come five times as often
const LOUD = 0.02; // RMS (0 to 1) above which there is speech
const CUT_SHOWN_MS = 1500;
const LINKS = { connecting: "Connecting …", open: "Connected", lost: "Connection lost; trying again …" };
const SUGGESTED = ["What can you do?", "Tell me a joke.", "My name is Ada. What is yours?"];

export const talk = {
  show(host, { voices = [], models = {}, can = [] }) {
    let link = "connecting", devices = [], device = "", allowed = "prompt";
    let voice = "", language = "", tools = false;
    let suggested = false, held = false, byKey = false, level = 0, playing = false, cut = 0;
    let shown = 0, followed = 0; // how much of the conversation; where its end was scrolled to
    // ms: when the microphone was last loud, when the speech or writing ended that is to be answered,
    // and from then to the first sound.
    let loud = 0, asked = 0, waited = 0;

    leave().then((answer) => { allowed = answer; draw(); });

    const sound = new Sound(
      (pcm, loudness) => {
        level = loudness;
        if (loudness > LOUD) loud = performance.now();
        if (!client.calling && (!byKey || held)) client.send("input_audio_buffer.append", { audio: base64(pcm) });
        later();
      },
      sounds,
      () => { device = ""; mute(LOST); },
    );
    const being = new Being(sound);
    const conversation = new Conversation((type, fields) => client.send(type, fields));
    const client = new Realtime(can.includes("call") && isSecureContext, hear, (now, why) => {
      link = now;
      conversation.problem = now === "open" ? "" : conversation.problem || why || "";
      if (now === "lost") conversation.lost();
      if (now === "open") {
        setUp();
        client.send("input_audio_buffer.clear"); // a conversation that is resumed goes on at the first message
        look();
      }
      if (now !== "open") playing = suggested = false;
      draw();
    }, (voice) => sound.hear(voice));

    function sounds(sounding) {
      playing = sounding;
      conversation.sounded ||= sounding;
      if (sounding && asked) {
        waited = performance.now() - asked;
        asked = 0;
      }
      draw();
    }

    function hear(event) {
      if (event.type === "response.output_audio.delta") return sound.play(bytes(event.delta));
      if (event.type.startsWith("output_audio_buffer.")) return sounds(event.type.endsWith(".started")); // of a call
      const speaking = playing || conversation.responding;
      const ended = event.type === "response.done" && event.response.status;
      if (ended === "cancelled") interrupt();
      if (ended === "failed") asked = 0;
      if (ended) look();
      if (event.type === "input_audio_buffer.speech_started") {
        asked = 0;
        if (speaking) interrupt();
      }
      if (event.type === "input_audio_buffer.committed") {
        asked = loud;
        if (byKey) client.send("response.create");
      }
      if (conversation.hear(event)) draw();
    }

    function interrupt() {
      sound.flush();
      clearTimeout(cut);
      cut = setTimeout(() => { cut = 0; draw(); }, CUT_SHOWN_MS);
    }

    async function listen() {
      conversation.problem = "";
      await sound.listen(device).catch((error) => { conversation.problem = refusal(error); });
      await list();
    }

    async function list() {
      devices = await microphones();
      allowed = await leave();
      draw();
    }

    function mute(why = "") {
      conversation.problem = why;
      sound.mute();
      held = false;
      level = 0;
      draw();
    }

    function choose({ target }) {
      device = target.value;
      if (sound.listening) listen();
    }

    // Engines may have been exchanged.
    async function look() {
      ({ voices, models } = await get("state").catch(() => ({ voices, models })));
      draw();
    }

    function setUp() {
      const transcription = { model: "default", delay: "low", language: language || null };
      const input = { transcription, turn_detection: byKey ? null : { type: "server_vad" } };
      const output = { voice: voice || null };
      const output_modalities = [isSecureContext ? "audio" : "text"]; // only an encrypted page can play
      client.send("session.update", { session: { type: "realtime", output_modalities, audio: { input, output }, tools: tools ? offered : [] } });
    }

    async function show(picture) {
      conversation.problem = "";
      try {
        const image = await picture();
        if (link !== "open") throw new Error("there is no connection.");
        conversation.show(image);
      } catch (error) { conversation.problem = `The picture cannot be sent: ${error.message}`; }
      draw();
    }

    function press(down) {
      if (!byKey || !sound.listening || held === down) return;
      held = down;
      if (down) {
        conversation.problem = "";
        stop();
      }
      client.send(`input_audio_buffer.${down ? "clear" : "commit"}`);
      draw();
    }

    function stop() {
      asked = 0;
      // By its id: it may be over there.
      if (conversation.responding) client.send("response.cancel", { response_id: conversation.responding });
      else if (client.calling && playing) client.send("output_audio_buffer.clear");
      sound.flush();
    }

    // Whether it could be sent.
    async function write(text) {
      await sound.open().catch(() => {}); // then the answer is only read
      if (!text || link !== "open") return false;
      stop();
      asked = performance.now();
      followed = 0;
      conversation.write(text);
      draw();
      return true;
    }

    // Once: somebody may click twice.
    async function suggest(text) {
      if (suggested) return;
      suggested = true;
      suggested = await write(text);
    }

    async function send(event) {
      event.preventDefault();
      const field = event.target.elements.words, text = field.value.trim();
      field.value = "";
      if (!(await write(text))) field.value ||= text;
    }

    let waiting = 0;
    function later() {
      waiting ||= setTimeout(() => { waiting = 0; draw(); }, DRAW_EVERY_MS);
    }

    // Whether a person scrolled up since the captions were last scrolled to their end.
    function read(list) {
      if (!list) return false;
      const { scrollTop, scrollHeight, clientHeight } = list;
      return scrollTop < followed - 24 && scrollTop + clientHeight < scrollHeight - 24;
    }

    function draw() {
      if (client.closed) return;
      const { listening } = sound;
      client.speak(!byKey || held ? sound.track : null);
      const open = link === "open", { problem, items, responding } = conversation;
      // A voice that is late for a moment is still speaking.
      const speaking = playing || (responding && conversation.sounded);
      const { awaited, asleep } = conversation;
      const state = stateOf({ open, cut, playing: speaking, awaited, asleep, listening });
      const lines = [...items.values()].filter((item) => item.text || item.picture || item.cut);
      being.show(state);
      const focused = host.contains(document.activeElement), reading = read(host.querySelector(".captions"));
      render(html`<div class="place" @keydown=${({ key }) => { if (key === "Escape") stop(); }}>
        ${being.element}
        <p class="state" aria-hidden="true">${open ? WORDS[state] : LINKS[link]}</p>
        <p class="hidden" role="status">${LINKS[link]}${listening ? ", the microphone is on" : ""}${asleep ? ", Reachy is asleep" : ""}</p>
        <p class="hidden" aria-live="polite">${conversation.spoken}</p>
        ${problem ? html`<p class="bad" role="alert">${problem}</p>` : nothing}
        ${lines.length ? html`<ol class="captions" aria-label="Conversation" tabindex="0">${lines.map(caption)}</ol>` : welcome()}
        ${controls(open, responding, listening)}
        <p class="quiet">${quiet()}</p>
        ${client.fellBack ? html`<p class="quiet">A call by WebRTC did not connect, so sound goes by the WebSocket.</p>` : nothing}
        ${options()}
      </div>`, host);
      if (focused && !host.contains(document.activeElement)) host.querySelector(".controls button:enabled")?.focus();
      const written = lines.reduce((sum, { text }) => sum + text.length, lines.length);
      if (written === shown || reading) return;
      shown = written;
      const list = host.querySelector(".captions");
      list?.scrollTo(0, Number.MAX_SAFE_INTEGER);
      followed = list?.scrollTop ?? 0;
    }

    function welcome() {
      return html`<section class="welcome">
        <h2>Say something to Reachy</h2>
        <p>Speak as you would to a person, and interrupt it when you like. For instance:</p>
        <p class="row">${SUGGESTED.map((text) => html`<button class="plain" ?disabled=${link !== "open"} @click=${() => suggest(text)}>${text}</button>`)}</p>
        ${sound.listening ? nothing : html`<p class="note">${reason(allowed)}</p>`}
      </section>`;
    }

    function controls(open, responding, listening) {
      return html`<div class="controls">
        <div class="row">
          <button class=${listening ? "" : "main"} @click=${listening ? () => mute() : listen} ?disabled=${!isSecureContext}>${listening ? "Mute the microphone" : "Start talking"}</button>
          ${byKey ? html`<button class="main" aria-pressed=${held} ?disabled=${!listening}
              @pointerdown=${() => press(true)} @pointerup=${() => press(false)} @pointerleave=${() => press(false)} @blur=${() => press(false)}
              @keydown=${(event) => { if (event.key === " ") { event.preventDefault(); press(true); } }}
              @keyup=${(event) => { if (event.key === " ") press(false); }}>Hold to talk</button>` : nothing}
          <button @click=${stop} ?disabled=${!responding && !playing}>Stop</button>
          ${conversation.asleep ? html`<button @click=${() => client.send("reachy_voice.wake")}>Wake it up</button>` : nothing}
          ${listening ? html`<meter aria-label="Level of the microphone" min="0" max="0.3" .value=${level}></meter>` : nothing}
        </div>
        <form class="row" @submit=${send}>
          <input type="text" name="words" dir="auto" aria-label="Write to Reachy" placeholder="Or write to Reachy" autocomplete="off" enterkeyhint="send">
          <button ?disabled=${!open}>Send</button>
        </form>
      </div>`;
    }

    function quiet() {
      const names = ["stt", "llm", "tts"].map((kind) => models[kind]).filter(Boolean).map((name) => name.replace(/^.*\((.*)\)$/, "$1"));
      const latency = waited ? html`<strong>${(waited / 1000).toFixed(2)} s</strong> to the first sound` : nothing;
      return html`${latency}${waited && names.length ? " · " : ""}${names.map((name, index) => html`${index ? " → " : ""}<span class="name">${name}</span>`)}`;
    }

    function options() {
      return html`<details class="options"><summary>Voice, language, pictures, tools</summary>
        <div class="row">
          ${voices.length > 1 ? html`<label>Voice <select @change=${({ target }) => { voice = target.value; setUp(); }}>
            <option value="">as configured</option>${voices.map((name) => html`<option .selected=${name === voice}>${name}</option>`)}</select></label>` : nothing}
          <label>You speak <select @change=${({ target }) => { language = target.value; setUp(); }}>
            ${Object.entries(LANGUAGES).map(([code, name]) => html`<option value=${code}>${name}</option>`)}</select></label>
          ${devices.length > 1 ? html`<label>Microphone <select @change=${choose}>
              ${devices.map((each) => html`<option value=${each.deviceId} ?selected=${each.deviceId === device}>${each.label || "Microphone"}</option>`)}
            </select></label>` : nothing}
          <label><input type="checkbox" @change=${({ target }) => { byKey = target.checked; held = false; setUp(); draw(); }}> Push to talk</label>
          <label><input type="checkbox" @change=${({ target }) => { tools = target.checked; setUp(); }}> Tools: clock, dice</label>
        </div>
        <div class="row">
          <label>Picture <input type="file" accept="image/*" @change=${({ target }) => { const [file] = target.files; if (file) show(() => fromFile(file)); target.value = ""; }}></label>
          <button ?disabled=${!isSecureContext} @click=${() => show(fromCamera)}>Take a picture</button>
        </div>
      </details>`;
    }

    client.connect();
    navigator.mediaDevices?.addEventListener("devicechange", list);
    return () => { navigator.mediaDevices?.removeEventListener("devicechange", list); client.close(); sound.close(); being.close(); clearTimeout(waiting); clearTimeout(cut); };
  },
};

function caption({ role, text, name, rest, cut, picture }) {
  const who = { user: name ?? "You", tool: "Tool", assistant: cut ? "Reachy, interrupted" : "Reachy" }[role];
  return html`<li class=${role}><span class="who">${who}</span>
    ${picture ? html`<img src=${picture} alt="The picture you sent" width="160" @load=${({ target }) => target.scrollIntoView({ block: "nearest" })}>` : html`<p dir="auto">${text}${cut ? html`<span class="unheard"><bdi class="hidden">not heard: </bdi>${rest.trim() ? rest : " …"}</span>` : nothing}</p>`}</li>`;
}

// Why the microphone is asked for, before the browser asks.
function reason(allowed) {
  if (!isSecureContext) return "The browser gives this page neither microphone nor sound, because it is not encrypted. You can write; the answers come as text.";
  if (allowed === "granted") return `Your voice goes from here only to your own server, ${location.host}.`;
  if (allowed === "denied") return "The microphone is blocked for this page. Allow it beside the browser's address bar, or write.";
  return `Reachy needs your microphone to hear you, so the browser will ask you. Your voice goes from here only to your own server, ${location.host}. Without a microphone, write.`;
}
