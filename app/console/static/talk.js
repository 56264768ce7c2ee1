// Talk: by microphone or by text.
import { html, render, nothing } from "./lit-html.js";
import { Realtime, base64, bytes } from "./realtime.js";
import { Sound, microphones } from "./sound.js";
import { get } from "./api.js";
import { call, offered } from "./tools.js";
import { fromCamera, fromFile } from "./picture.js";

const LANGUAGES = { "": "as configured", en: "English", de: "Deutsch", fr: "Français", es: "Español", it: "Italiano", pt: "Português", nl: "Nederlands" };
const DRAW_EVERY_MS = 100; // the level; chunks of audio come five times as often
const LOUD = 0.02; // RMS (0 to 1) above which there is speech
const NAMES = { connecting: "Connecting …", open: "Connected", lost: "Connection lost; trying again …" };

export const talk = {
  show(host) {
    const items = new Map(); // by id, in the conversation's order: { role, text, cut }
    let state = "connecting", problem = "", devices = [], device = "";
    let voices = [], voice = "", language = "", tools = false;
    let listening = false, held = false, byKey = false, level = 0, playing = false, responding = false, called = false;
    let lastLoud = 0, waited = 0; // ms: when the microphone was last loud, and from then to the first sound

    get("state").then((answer) => { ({ voices } = answer); draw(); }, () => {});

    const sound = new Sound(
      (pcm, loudness) => {
        level = loudness;
        if (loudness > LOUD && !playing) lastLoud = performance.now();
        if (!byKey || held) client.send("input_audio_buffer.append", { audio: base64(pcm) });
        later();
      },
      (sounding) => {
        playing = sounding;
        if (sounding && lastLoud) {
          waited = performance.now() - lastLoud;
          lastLoud = 0;
        }
        draw();
      },
    );
    const client = new Realtime(hear, (now, why) => {
      state = now;
      problem = now === "lost" && why ? why : "";
      if (now === "lost") responding = false;
      if (now === "open") setUp();
      draw();
    });

    function hear(event) {
      switch (event.type) {
        case "conversation.item.added": {
          const { id, type, role, content } = event.item;
          if (type !== "message" || role === "system" || items.has(id)) return;
          items.set(id, { role, text: content.map((part) => part.text ?? part.transcript ?? "").join("") });
          break;
        }
        case "conversation.item.input_audio_transcription.delta":
          note(event.item_id, "user").text += event.delta;
          break;
        case "conversation.item.input_audio_transcription.completed":
          note(event.item_id, "user").text = event.transcript;
          break;
        case "conversation.item.input_audio_transcription.failed":
          note(event.item_id, "user").text = "(not understood)";
          break;
        case "response.created": responding = true; break;
        case "response.output_audio_transcript.delta":
        case "response.output_text.delta":
          note(event.item_id, "assistant").text += event.delta;
          break;
        case "response.function_call_arguments.done":
          answerCall(event);
          break;
        case "response.output_audio.delta":
          sound.play(bytes(event.delta));
          return;
        case "input_audio_buffer.speech_started":
          sound.flush();
          break;
        case "response.done":
          responding = false;
          if (event.response.status === "cancelled") sound.flush();
          if (event.response.status === "failed") problem = event.response.status_details?.error?.message ?? "The answer failed.";
          if (called) { called = false; client.send("response.create"); }
          for (const item of event.response.output) {
            if (item.type === "message" && event.response.status === "cancelled") client.send("conversation.item.retrieve", { item_id: item.id });
          }
          break;
        case "conversation.item.retrieved": {
          // An interrupted answer: keep only the words that were heard.
          const item = items.get(event.item.id);
          if (!item) return;
          item.text = event.item.content.map((part) => part.text ?? part.transcript ?? "").join("");
          item.cut = true;
          break;
        }
        case "error": problem = event.error.message; break;
        default: return;
      }
      draw();
    }

    function note(id, role) {
      if (!items.has(id)) items.set(id, { role, text: "" });
      return items.get(id);
    }

    async function toggle() {
      problem = "";
      try {
        if (listening) sound.mute();
        else await sound.listen(device);
        listening = !listening;
        level = 0;
        devices = await microphones();
      } catch (error) {
        problem = `The microphone cannot be used: ${error.message}`;
        listening = false;
      }
      draw();
    }

    async function choose({ target }) {
      device = target.value;
      if (listening) { listening = false; await toggle(); }
    }

    function setUp() {
      const transcription = { model: "default", delay: "low", ...(language && { language }) };
      const input = { transcription, turn_detection: byKey ? null : { type: "server_vad" } };
      const output = voice ? { voice } : {};
      client.send("session.update", { session: { type: "realtime", audio: { input, output }, tools: tools ? offered : [] } });
    }

    function answerCall({ call_id, name, arguments: given }) {
      const output = JSON.stringify(call(name, given));
      items.set(call_id, { role: "tool", text: `${name}(${given}) → ${output}` });
      client.send("conversation.item.create", { item: { type: "function_call_output", call_id, output } });
      called = true;
    }

    async function show(picture) {
      problem = "";
      try {
        const image_url = await picture();
        client.send("conversation.item.create", { item: { type: "message", role: "user", content: [{ type: "input_image", image_url }] } });
        items.set(image_url, { role: "user", picture: image_url, text: "" });
      } catch (error) { problem = `The picture cannot be sent: ${error.message}`; }
      draw();
    }

    function press(down) {
      if (!byKey || !listening || held === down) return;
      held = down;
      if (down) {
        stop();
        client.send("input_audio_buffer.clear");
      } else {
        client.send("input_audio_buffer.commit");
        client.send("response.create");
      }
      draw();
    }

    function stop() {
      if (responding) client.send("response.cancel");
      sound.flush();
    }

    async function write(event) {
      event.preventDefault();
      const field = event.target.elements.words;
      const text = field.value.trim();
      if (!text || state !== "open") return;
      field.value = "";
      await sound.open();
      stop();
      client.send("conversation.item.create", { item: { type: "message", role: "user", content: [{ type: "input_text", text }] } });
      client.send("response.create");
    }

    let waiting = 0;
    function later() {
      waiting ||= setTimeout(() => { waiting = 0; draw(); }, DRAW_EVERY_MS);
    }

    function draw() {
      render(html`
        <p class="note" role="status">${NAMES[state]}${playing ? " · speaking" : listening ? " · listening" : ""}${waited ? ` · first sound ${Math.round(waited)} ms after your last` : ""}</p>
        ${problem ? html`<p class="bad" role="alert">${problem}</p>` : nothing}
        <div class="row">
          <button class="main" @click=${toggle} ?disabled=${!isSecureContext}>${listening ? "Mute the microphone" : "Start talking"}</button>
          <button aria-pressed=${byKey} @click=${() => { byKey = !byKey; setUp(); draw(); }}>Push to talk</button>
          ${byKey ? html`<button aria-pressed=${held} ?disabled=${!listening}
              @pointerdown=${() => press(true)} @pointerup=${() => press(false)} @pointerleave=${() => press(false)}
              @keydown=${(event) => { if (event.key === " ") { event.preventDefault(); press(true); } }}
              @keyup=${(event) => { if (event.key === " ") press(false); }}>Hold to talk</button>` : nothing}
          <button @click=${stop} ?disabled=${!responding && !playing}>Stop</button>
          <label>Level <meter min="0" max="0.3" .value=${listening ? level : 0}></meter></label>
          ${devices.length > 1 ? html`<label>Microphone <select @change=${choose}>
              ${devices.map((each) => html`<option value=${each.deviceId} ?selected=${each.deviceId === device}>${each.label || "Microphone"}</option>`)}
            </select></label>` : nothing}
        </div>
        <ol class="talk panel" aria-live="polite" aria-label="Conversation">
          ${[...items.values()].filter((item) => item.text || item.picture).map((item) => html`<li class=${item.role}>
            <span class="who">${item.role === "user" ? "You" : item.role === "tool" ? "Tool" : item.cut ? "Reachy, interrupted; you heard" : "Reachy"}</span>${item.picture ? html`<img src=${item.picture} alt="The picture you sent" width="160">` : item.text}</li>`)}
        </ol>
        <form class="row" @submit=${write}>
          <input type="text" name="words" aria-label="Write to Reachy" placeholder="Write to Reachy" autocomplete="off">
          <button>Send</button>
        </form>
        <details class="panel"><summary>Voice, language, pictures, tools</summary>
          <div class="row">
            ${voices.length > 1 ? html`<label>Voice <select @change=${({ target }) => { voice = target.value; setUp(); }}>
              <option value="">as configured</option>${voices.map((name) => html`<option>${name}</option>`)}</select></label>` : nothing}
            <label>You speak <select @change=${({ target }) => { language = target.value; setUp(); }}>
              ${Object.entries(LANGUAGES).map(([code, name]) => html`<option value=${code}>${name}</option>`)}</select></label>
            <label><input type="checkbox" @change=${({ target }) => { tools = target.checked; setUp(); }}> Tools: clock, dice</label>
            <label>Picture <input type="file" accept="image/*" @change=${({ target }) => { const [file] = target.files; if (file) show(() => fromFile(file)); target.value = ""; }}></label>
            <button ?disabled=${!isSecureContext} @click=${() => show(fromCamera)}>Take a picture</button>
          </div>
        </details>`, host);
    }

    draw();
    return () => { client.close(); sound.close(); clearTimeout(waiting); };
  },
};
