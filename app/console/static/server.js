// Server: is every engine ready, and how many clients are there?
import { html, render } from "./lit-html.js";

const EVERY_MS = 2000;

export const server = {
  show(host) {
    let timer = 0, over = false;
    async function look() {
      try {
        const response = await fetch("api/state");
        if (!response.ok) throw new Error((await response.json()).error.message);
        draw(await response.json());
      } catch (error) {
        render(html`<p class="bad" role="alert">The server cannot be reached: ${error.message}</p>`, host);
      }
      if (!over) timer = setTimeout(look, EVERY_MS);
    }

    function draw({ engines, sessions }) {
      render(html`
        <section class="panel"><h2>Engines</h2>
          <table><tbody>${Object.entries(engines).map(([name, why]) => html`<tr><th scope="row">${name}</th><td class=${why ? "bad" : ""}>${why ?? "ready"}</td></tr>`)}</tbody></table>
        </section>
        <p>Conversations: ${sessions}</p>
        <p><a href="/metrics">All figures, for Prometheus</a></p>`, host);
    }

    look();
    return () => { over = true; clearTimeout(timer); };
  },
};
