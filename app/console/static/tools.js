// Sample functions that the model may call, and their results.
const none = { type: "object", properties: {}, required: [] };

export const tools = {
  clock: {
    about: "Tells the local time and date.",
    parameters: none,
    run: () => ({ now: new Date().toLocaleString() }),
  },
  dice: {
    about: "Throws dice.",
    parameters: { type: "object", properties: { count: { type: "integer", minimum: 1, maximum: 6 } }, required: ["count"] },
    run: ({ count = 1 }) => ({ dice: Array.from({ length: Math.min(6, Math.max(1, count)) }, () => 1 + Math.floor(6 * Math.random())) }),
  },
};

export const offered = Object.entries(tools).map(([name, { about, parameters }]) => ({ type: "function", name, description: about, parameters }));

export function call(name, text) {
  try {
    return tools[name].run(JSON.parse(text || "{}"));
  } catch (error) {
    return { error: error.message };
  }
}
