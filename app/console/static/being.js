// The robot's head. Its shape says what it does; the sound itself moves it.
const HEAD = 62, RING = 84, MIDDLE = 14; // radii, and the middle's height, in units of the drawing
const POINTS = 96, BANDS = 18, LOWEST_HZ = 180, HIGHEST_HZ = 6000;
const FRAME_MS = 30, EASE_MS = 110, BLINK_EVERY_MS = 4300, BLINK_MS = 130;
const STILL = new Float32Array(BANDS);

// antennas: degrees from upright, outwards; lid: 0 open, 1 shut; look: where the eyes turn; flat: of
// the head's height; heard, voiced: how much the microphone moves the ring, and the player the head.
const POSES = {
  away: { left: 104, right: 104, bend: 26, lid: 1, x: 0, y: 8, eye: 11, flat: 0, heard: 0, voiced: 0 },
  asleep: { left: 128, right: 128, bend: 34, lid: 1, x: 0, y: 12, eye: 11, flat: 0.06, heard: 0, voiced: 0 },
  resting: { left: 62, right: 62, bend: 20, lid: 0.72, x: 0, y: 4, eye: 11, flat: 0, heard: 0, voiced: 0 },
  listening: { left: 16, right: 16, bend: 4, lid: 0, x: 0, y: 0, eye: 11, flat: 0, heard: 26, voiced: 0 },
  thinking: { left: -8, right: 74, bend: 18, lid: 0.15, x: 11, y: -13, eye: 10, flat: 0, heard: 0, voiced: 0 },
  speaking: { left: 34, right: 34, bend: -14, lid: 0, x: 0, y: -4, eye: 12, flat: 0, heard: 0, voiced: 30 },
  interrupted: { left: 88, right: 88, bend: -30, lid: 0, x: 0, y: 6, eye: 15, flat: 0.16, heard: 6, voiced: 0 },
};
export const WORDS = {
  away: "Not connected", asleep: "Asleep", resting: "Ready", listening: "Listening", thinking: "Thinking", speaking: "Speaking", interrupted: "Interrupted",
};

// Of several things that are so at once, the one to show.
export function stateOf({ open, cut, playing, awaited, asleep, listening }) {
  if (!open) return "away";
  if (cut) return "interrupted";
  if (playing) return "speaking";
  if (awaited) return "thinking";
  if (asleep) return "asleep";
  return listening ? "listening" : "resting";
}

export class Being {
  // sound: has analysers `ear` and `mouth` once it is open.
  constructor(sound) {
    this.sound = sound;
    this.element = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    this.element.setAttribute("viewBox", "-120 -96 240 204");
    this.element.setAttribute("class", "being");
    this.element.setAttribute("role", "img");
    const make = (name, kind) => {
      const part = document.createElementNS(this.element.namespaceURI, kind);
      part.setAttribute("class", name);
      this.element.append(part);
      return part;
    };
    this.ring = make("ring", "path");
    this.ring.setAttribute("pathLength", "240");
    this.antennas = [-1, 1].map((side) => ({ side, stem: make("stem", "path"), tip: make("tip", "circle") }));
    this.head = make("head", "path");
    this.eyes = [-1, 1].map((side) => ({ side, eye: make("eye", "ellipse"), glint: make("glint", "circle") }));
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.still.onchange = () => this.settle();
    this.show("away");
  }

  show(state) {
    if (state === this.state) return;
    this.state = state;
    this.element.dataset.state = state;
    this.element.setAttribute("aria-label", `Reachy: ${WORDS[state].toLowerCase()}`);
    this.settle();
  }

  // Without motion, a pose is drawn once; otherwise until it is left.
  settle() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    if (!this.still.matches && this.pose) return this.move();
    this.pose = { ...POSES[this.state] };
    this.draw(STILL, STILL, 0, false);
    if (!this.still.matches) this.move();
  }

  move() {
    this.frame = requestAnimationFrame((now) => {
      const passed = now - (this.drawn ?? 0);
      if (passed >= FRAME_MS) {
        const share = 1 - Math.exp(-Math.min(passed, 200) / EASE_MS);
        for (const [name, value] of Object.entries(POSES[this.state])) this.pose[name] += (value - this.pose[name]) * share;
        this.drawn = now;
        this.draw(bands(this.sound.ear), bands(this.sound.mouth), now, now % BLINK_EVERY_MS < BLINK_MS);
      }
      this.move();
    });
  }

  draw(ear, mouth, now, blinks) {
    const { left, right, bend, lid, x, y, eye, flat, heard, voiced } = this.pose;
    const breath = now ? Math.sin(now / 900) : 0;
    const loud = mouth.reduce((sum, each) => sum + each, 0) / BANDS;
    this.ring.setAttribute("d", contour(RING + breath, 1 - flat / 2, ear, heard));
    this.ring.setAttribute("transform", this.state === "thinking" ? `rotate(${now / 60} 0 ${MIDDLE})` : "");
    this.head.setAttribute("d", contour(HEAD + 0.8 * breath, 1 - flat, mouth, voiced));
    for (const { side, stem, tip } of this.antennas) {
      const sway = voiced * loud * Math.sin(now / 170 + side) + breath;
      const lean = (((side < 0 ? left : right) + sway) * Math.PI) / 180;
      const curve = lean - (bend * Math.PI) / 90;
      const [fromX, fromY] = [side * 27, MIDDLE - (HEAD - 7) * (1 - flat)];
      const [toX, toY] = [fromX + side * 40 * Math.sin(lean), fromY - 40 * Math.cos(lean)];
      stem.setAttribute("d", `M${fromX} ${fromY}Q${fromX + side * 24 * Math.sin(curve)} ${fromY - 24 * Math.cos(curve)} ${toX} ${toY}`);
      place(tip, { cx: toX, cy: toY, r: 6 });
    }
    for (const { side, eye: ellipse, glint } of this.eyes) {
      const open = blinks ? 0 : 1 - lid;
      const [cx, cy] = [side * 24 + x, MIDDLE - 4 + y];
      place(ellipse, { cx, cy, rx: eye, ry: Math.max(2, eye * open) });
      place(glint, { cx: cx + 3.5, cy: cy - 4, r: open > 0.6 ? 2.8 : 0 });
    }
  }

  close() {
    cancelAnimationFrame(this.frame);
    this.still.onchange = null;
  }
}

function place(part, where) {
  for (const [name, value] of Object.entries(where)) part.setAttribute(name, value.toFixed(2));
}

// A circle whose radius follows the bands: the lowest at the chin, the highest at the top.
function contour(radius, height, levels, most) {
  let path = "";
  for (let i = 0; i < POINTS; i++) {
    const turn = (2 * Math.PI * i) / POINTS;
    const at = (1 - Math.abs(1 - (2 * i) / POINTS)) * (BANDS - 1);
    const low = Math.floor(at), between = (1 - Math.cos(Math.PI * (at - low))) / 2;
    const r = radius + most * (levels[low] * (1 - between) + (levels[low + 1] ?? levels[low]) * between);
    path += `${i ? "L" : "M"}${(r * Math.sin(turn)).toFixed(1)} ${(MIDDLE + r * height * Math.cos(turn)).toFixed(1)}`;
  }
  return `${path}Z`;
}

// How loud each band of an analyser is, 0 to 1.
function bands(analyser) {
  if (!analyser) return STILL;
  const bins = new Uint8Array(analyser.frequencyBinCount);
  analyser.getByteFrequencyData(bins);
  const perBin = analyser.context.sampleRate / 2 / bins.length;
  const at = (band) => {
    const hz = LOWEST_HZ * (HIGHEST_HZ / LOWEST_HZ) ** (band / (BANDS - 1));
    return bins[Math.min(bins.length - 1, Math.round(hz / perBin))] / 255;
  };
  return Float32Array.from(STILL, (_, band) => (at(band - 1) + at(band - 0.5) + at(band) + at(band + 0.5) + at(band + 1)) / 5);
}
