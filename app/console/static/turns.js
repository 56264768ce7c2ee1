// Turns: why each answer took as long as it did. All sessions, live.
import { html, svg, render, nothing } from "./lit-html.js";
import { blob, follow } from "./api.js";

const SLOW_MS = 1000;
const FILTERS = {
  all: () => true,
  slow: (turn) => turn.first_audio_ms > SLOW_MS,
  "cut off": (turn) => turn.answers_also.length > 0 || turn.outcome === "merged",
  interrupted: (turn) => turn.outcome === "interrupted" || turn.origin === "rest",
  failed: (turn) => turn.outcome === "failed" || Boolean(turn.error),
};
const ASIDES = { call: "only called", farewell: "sent to sleep", stranger: "a voice that is not known", elsewhere: "from elsewhere in the room", "not called": "somebody who has not called", background: "somebody in the background" };
const RATE = 16; // samples in a millisecond
const LEVEL_MS = 20;

export const turns = {
  show(host) {
    // By the turn's number: { turn, item, piece, url, problem }. Its item is the same as long as it is
    // shown, with what is opened, focused or played there. piece: the one of its bar that is explained.
    const rows = new Map();
    const list = document.createElement("ol");
    list.className = "turns";
    let filter = "all", live = false, kept = 0; // how many the server keeps
    const stop = follow("turns", (kind, turn) => {
      live = true;
      if (kind === "begin") {
        rows.forEach(drop);
        ({ kept } = turn);
      } else put(turn);
      later();
    }, (now) => { live = now; draw(); });

    function put(turn) {
      const row = rows.get(turn.number) ?? { item: document.createElement("li") };
      rows.set(turn.number, Object.assign(row, { turn }));
      drawRow(row);
      if (!row.item.parentNode) list.prepend(row.item);
      if (rows.size > kept) drop(rows.values().next().value);
    }

    function drop(row) {
      row.item.remove();
      rows.delete(row.turn.number);
      if (row.url) URL.revokeObjectURL(row.url);
    }

    let waiting = 0;
    function later() {
      waiting ||= requestAnimationFrame(() => { waiting = 0; draw(); });
    }

    async function listen(row) {
      try {
        const sound = await blob(`turns/${row.turn.number}/sound`);
        if (row.item.isConnected) row.url = URL.createObjectURL(sound);
      } catch (error) { row.problem = error.message; }
      drawRow(row);
    }

    function drawRow(row) {
      row.item.hidden = !FILTERS[filter](row.turn);
      render(content(row, () => listen(row), (piece) => { row.piece = piece; drawRow(row); }), row.item);
    }

    function draw() {
      const shown = [...rows.values()].filter(({ item }) => !item.hidden).length;
      render(html`
        <div class="row" role="group" aria-label="Show">
          ${Object.keys(FILTERS).map((name) => html`<button aria-pressed=${name === filter} @click=${() => { filter = name; rows.forEach(drawRow); draw(); }}>${name}</button>`)}
        </div>
        <p class="note">${legend()}Point at a bar, or focus it and use the arrow keys, for what it means.</p>
        <p class="note" role="status">${live ? `${shown} of ${rows.size} turns` : "The server cannot be reached; trying again …"}</p>
        ${live && !kept ? html`<p>This server keeps no turns: <code>server.turns_kept</code> is 0.</p>` : nothing}
        ${live && kept && !rows.size ? html`<p>Nothing has been said yet. <a href="#talk">Talk</a>, and each answer shows here why it came when it came.</p>` : nothing}
        ${list}`, host);
    }

    draw();
    return () => {
      stop();
      cancelAnimationFrame(waiting);
      rows.forEach(drop);
    };
  },
};

function legend() {
  const names = { speech: "speech", pause: "silence", think: "waiting for the answer", voice: "answer", cut: "interruption" };
  return Object.entries(names).map(([key, name]) => html`<span class=${`key ${key}`}></span>${name}&ensp;`);
}

function content({ turn, piece, url, problem }, listen, choose) {
  const when = new Date(turn.at * 1000).toLocaleTimeString();
  const audio = turn.first_audio_ms === null ? "no audio" : `first audio after ${Math.round(turn.first_audio_ms)} ms`;
  return html`<p dir="auto">${turn.speaker ? `${turn.speaker}: ` : ""}<strong>${turn.text || `(${turn.origin})`}</strong></p>
    ${turn.heard ? html`<p dir="auto">${turn.heard}</p>` : nothing}
    <p class="note">${when} · session ${turn.session} (${turn.place}) · ${turn.under_way ? "speaking" : turn.outcome}${turn.cut_by ? `: ${turn.cut_by}` : ""}${turn.exclusion ? ` · ${ASIDES[turn.exclusion] ?? `does not count: ${turn.exclusion}`}` : ""} · ${audio}</p>
    ${turn.doubt ? html`<p class="note">Recognised: ${turn.doubt.text} (certainty ${turn.doubt.certainty.toFixed(2)}, ${turn.doubt.speech_s.toFixed(1)} s)</p>` : nothing}
    ${turn.error ? html`<p class="bad">${turn.error}</p>` : nothing}
    ${bar(turn, piece, choose)}
    ${url ? html`<audio controls autoplay src=${url} aria-label="You left, Reachy right"></audio>` : problem ? html`<span class="bad" role="alert">${problem}</span>` : turn.recorded ? html`<button @click=${listen}>Listen</button>` : nothing}
    ${why(turn)}`;
}

// One axis: 0 is the end of the speech, or the request. What never sounded has no bar.
function bar(turn, chosen, choose) {
  const pieces = explained(turn);
  if (!pieces.length) return nothing;
  const begin = Math.min(0, ...pieces.map(({ from }) => from));
  const marks = moments(turn);
  const end = Math.max(400, turn.ended_ms ?? 0, ...pieces.map(({ to }) => to), ...marks.map(([, at]) => at));
  const x = (at) => ((at - begin) / (end - begin)) * 1000;
  const spoken = turn.levels.length > 0;
  const summary = [begin < 0 ? `${Math.round(-begin)} ms of speech` : "a written turn", ...marks.map(([name, at]) => `${name} at ${Math.round(at)} ms`)].join(", ");
  const at = Math.min(chosen ?? 0, pieces.length - 1);
  function step(event) {
    const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    choose(chosen === undefined ? 0 : Math.max(0, Math.min(pieces.length - 1, at + by)));
  }
  return html`<div class="bar" role="slider" tabindex="0" aria-label=${summary} aria-valuemin="1" aria-valuemax=${pieces.length} aria-valuenow=${at + 1} aria-valuetext=${pieces[at].text}
      @keydown=${step} @focus=${() => choose(at)} @pointerover=${({ target }) => { if (target.dataset.piece) choose(Number(target.dataset.piece)); }}>
    <svg viewBox=${`0 ${spoken ? 0 : 18} 1000 ${spoken ? 42 : 24}`} height=${spoken ? 42 : 24} preserveAspectRatio="none" aria-hidden="true">
    ${spoken ? svg`<path d=${wave(turn, x)} class="fill-speech"></path>` : nothing}
    ${pieces.map(({ kind, from, to }, index) => svg`<rect data-piece=${index} x=${kind === "bad" ? x(to) - 8 : x(from)} width=${kind === "bad" ? 8 : Math.max(2, x(to) - x(from))} y=${kind === "bad" ? 18 : 20} height=${kind === "bad" ? 18 : 14} class=${`fill-${kind}${index === chosen ? " chosen" : ""}`}></rect>`)}
    ${marks.map(([, at]) => svg`<rect x=${x(at)} y="35" width="2" height="7" class="fill-ink"></rect>`)}
  </svg></div><p class="note">${chosen === undefined ? marks.map(([name, at]) => `${name} ${Math.round(at)} ms`).join(" · ") : pieces[at].text}</p>`;
}

// The pieces of the bar, each with its explanation.
function explained(turn) {
  const ms = (length) => `${Math.round(length)} ms`;
  const pieces = parts(turn).map((part) => ({ ...part, text: part.kind === "speech" ? `Speech, ${ms(part.to - part.from)}.` : pausing(part, ms) }));
  const first = turn.first_audio_ms;
  if (first !== null) {
    const over = Math.max(first, turn.last_audio_ms ?? first);
    const steps = moments(turn).map(([name, at]) => `${name} at ${ms(at)}`).join(", ");
    pieces.push({ kind: "think", from: 0, to: first, text: `Waiting for the answer, ${ms(first)} from ${pieces.length ? "the end of the speech" : "the request"}: ${steps}.` });
    pieces.push({ kind: "voice", from: first, to: over, text: `The answer, ${ms(over - first)} of sound.` });
  }
  if (turn.outcome === "interrupted" && pieces.length) pieces.push({ kind: "bad", from: turn.ended_ms, to: turn.ended_ms, text: `Interrupted after ${ms(turn.ended_ms)}${turn.cut_by ? `, by a ${turn.cut_by}` : ""}.` });
  return pieces;
}

function pausing({ from, to, pause }, ms) {
  const last = pause.judgements.at(-1);
  return `A pause of ${ms(to - from)}${last ? `, over with probability ${last.probability.toFixed(2)}, so it would have waited ${last.wait_ms} ms` : ""}; then the speech went on.`;
}

// Samples of the session as milliseconds from the end of the speech.
function clock(turn) {
  const last = turn.pauses.at(-1)?.start_sample ?? turn.speech_end_sample;
  return (sample) => (sample - last) / RATE;
}

// The peaks of the committed speech, mirrored about a line.
function wave(turn, x) {
  const begin = clock(turn)(turn.speech_start_sample ?? 0);
  const loudest = Math.max(10, ...turn.levels);
  const points = turn.levels.map((level, index) => [x(begin + index * LEVEL_MS).toFixed(1), (level / loudest) * 8 + 0.5]);
  const line = (side) => points.map(([at, height]) => `${at} ${(9 + side * height).toFixed(1)}`);
  return `M${[...line(-1), ...line(1).reverse()].join("L")}Z`;
}

function parts(turn) {
  if (turn.speech_start_sample === null) return [];
  const at = clock(turn);
  const found = [];
  let from = turn.speech_start_sample;
  for (const pause of turn.pauses) {
    found.push({ kind: "speech", from: at(from), to: at(pause.start_sample) });
    if (pause.lasted_ms === null) return found;
    from = pause.start_sample + pause.lasted_ms * RATE;
    found.push({ kind: "pause", from: at(pause.start_sample), to: at(from), pause });
  }
  found.push({ kind: "speech", from: at(from), to: Math.max(at(from), 0) });
  return found;
}

function moments(turn) {
  const names = { endpoint: "turn over", transcript: "transcript", first_token: "first token", first_clause: "first clause", first_audio: "first audio" };
  return Object.entries(names).map(([key, name]) => [name, turn[`${key}_ms`]]).filter(([, at]) => at !== null).sort(([, one], [, other]) => one - other);
}

function why(turn) {
  const judged = turn.pauses.flatMap((pause, index) => pause.judgements.map((each) => [index + 1, pause, each]));
  if (!judged.length && !turn.ignored.length) return nothing;
  const last = turn.pauses.at(-1)?.judgements.at(-1);
  const wentOn = turn.background_db ? `; ended: what went on was ${Math.round(turn.background_db)} dB below the speaker` : "";
  const headline = last ? `Over with probability ${last.probability.toFixed(2)}: waited ${last.wait_ms} ms (${last.reasons.join(", ") || "no evidence"})${wentOn}` : "Speech over the answer";
  const waste = turn.engine_wasted_s ? `${turn.speculations_discarded} discarded unused, ${turn.engine_wasted_s.toFixed(2)} s of engine time; ${turn.engine_used_s.toFixed(2)} s used.` : "";
  return html`<details><summary>${headline}</summary>
    ${judged.length ? html`<table><thead><tr><th scope="col">Pause</th><th scope="col">Judged after</th><th scope="col">Over?</th><th scope="col">Wait</th><th scope="col">By</th></tr></thead>
      <tbody>${judged.map(([index, pause, each]) => html`<tr><td>${index}${pause.lasted_ms === null ? "" : ` (lasted ${pause.lasted_ms} ms)`}</td><td>${Math.round(each.after_ms)} ms</td><td>${each.probability.toFixed(2)}</td><td>${each.wait_ms} ms</td><td>${each.reasons.join(", ")}</td></tr>`)}</tbody></table>` : nothing}
    ${turn.ignored.map((each) => html`<p class="note">Not an interruption (${each.reason}, ${each.lasted_ms} ms): ${each.text}</p>`)}
    ${waste ? html`<p class="note">${waste}</p>` : nothing}
  </details>`;
}
