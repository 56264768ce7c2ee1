// What both JavaScript clients share: the turns they hold, and the report of each.
//
// A program gets one argument, JSON: {url, levels: {time, weather, story, wait}, limit_s}.
// It holds every turn in a connection of its own, all at once, and prints one line of JSON each.

export const RATE = 24_000;
const CHUNK_MS = 20;

const plan = JSON.parse(process.argv[2]);

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** A person saying the phrase of that level: 16-bit samples. */
export function tone(phrase, ms) {
  return new Int16Array((RATE * ms) / 1000).fill(plan.levels[phrase]);
}

export function silence(ms) {
  return new Int16Array((RATE * ms) / 1000);
}

export function base64(samples) {
  return Buffer.from(samples.buffer, samples.byteOffset, samples.byteLength).toString('base64');
}

/** Send audio at the speed of a microphone; then silence until `done` resolves. */
export async function stream(samples, send, done) {
  const size = (RATE * CHUNK_MS) / 1000;
  const began = Date.now();
  let ended = false;
  done.finally(() => (ended = true)).catch(() => {});
  for (let chunk = 0; !ended; chunk++) {
    const piece = samples.slice(chunk * size, (chunk + 1) * size);
    send(piece.length ? piece : new Int16Array(size));
    await sleep(began + (chunk + 1) * CHUNK_MS - Date.now());
  }
}

/** What one turn was like for the client. */
export class Report {
  constructor(turn) {
    this.turn = turn;
    this.events = [];
    this.heard = '';
    this.said = [];
    this.audio_bytes = 0;
    this.statuses = [];
    this.tool_calls = [];
    this.errors = [];
    this.late_audio_bytes = 0;
    this.failure = null;
  }
}

/** Resolves when `happened()` holds; call `check` after each event. */
export class Moment {
  constructor(happened) {
    this.reached = new Promise((resolve) => {
      this.check = () => happened() && resolve();
    });
  }
}

/** Runs every turn of `turns` ({name: async (report, plan) => {}}) and prints the reports. */
export async function hold(turns) {
  await Promise.all(
    Object.entries(turns).map(async ([name, turn]) => {
      const report = new Report(name);
      const late = sleep(plan.limit_s * 1000).then(() => {
        throw new Error(`not done after ${plan.limit_s} s`);
      });
      try {
        await Promise.race([turn(report, plan), late]);
      } catch (error) {
        report.failure = String(error?.stack ?? error);
      }
      console.log(JSON.stringify(report));
    }),
  );
  process.exit(0);
}
