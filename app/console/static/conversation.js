// What was said, from the events of a Realtime connection.
import { call } from "./tools.js";

export class Conversation {
  constructor(send) {
    this.send = send;
    this.items = new Map(); // by id, in order: { role, text, name, rest, cut, picture }; rest: not heard
    this.responding = ""; // the id of the answer that is under way
    this.awaited = false;
    this.owed = false; // whether another answer is to be asked for after this one
    this.sounded = false; // whether anything of the answer that is under way has
    this.asleep = false;
    this.problem = ""; // until the user speaks or writes again
    this.spoken = ""; // the last whole line, for screen readers
  }

  // Whether something to show has changed.
  hear(event) {
    switch (event.type) {
      case "conversation.item.added": {
        const { id, type, role } = event.item;
        if (type !== "message" || role === "system" || this.items.has(id)) return false;
        this.line(id, role).text = textOf(event.item);
        return true;
      }
      case "input_audio_buffer.speech_started":
        this.awaited = false;
        this.problem = "";
        return true;
      case "input_audio_buffer.committed":
        this.awaited = true;
        return true;
      case "conversation.item.input_audio_transcription.delta":
        this.line(event.item_id, "user").text += event.delta;
        return true;
      case "conversation.item.input_audio_transcription.completed":
        this.line(event.item_id, "user").text = event.transcript;
        if (event.transcript) this.spoken = `You: ${event.transcript}`;
        this.awaited &&= Boolean(event.transcript);
        return true;
      case "reachy_voice.speaker":
        this.line(event.item_id, "user").name = event.name;
        return true;
      case "conversation.item.input_audio_transcription.failed":
        this.line(event.item_id, "user").text = "(not understood)";
        this.awaited = false;
        return true;
      case "reachy_voice.asleep":
      case "reachy_voice.awake":
        this.asleep = event.type === "reachy_voice.asleep";
        this.awaited &&= !this.asleep;
        return true;
      case "response.created":
        this.responding = event.response.id;
        this.awaited = true;
        this.sounded = false;
        return true;
      case "response.output_audio_transcript.delta":
      case "response.output_text.delta":
        this.line(event.item_id, "assistant").text += event.delta;
        return true;
      case "response.function_call_arguments.done":
        this.answerCall(event);
        return true;
      case "response.done":
        this.finish(event.response);
        return true;
      case "conversation.item.retrieved":
        return this.cut(event.item);
      case "error":
        if (event.error.code === "input_audio_buffer_commit_empty") return false; // a mere tap
        if (event.error.code === "conversation_already_has_active_response") { // written as speech was answered
          this.owed = true;
          return false;
        }
        this.problem = event.error.message;
        this.awaited = Boolean(this.responding);
        return true;
      default:
        return false;
    }
  }

  line(id, role) {
    if (!this.items.has(id)) this.items.set(id, { role, text: "" });
    return this.items.get(id);
  }

  lost() {
    this.responding = "";
    this.awaited = this.owed = this.asleep = false;
  }

  finish({ status, status_details: details, output }) {
    this.responding = "";
    this.awaited = false;
    if (status === "failed") this.problem = details?.error?.message ?? "The answer failed.";
    const messages = output.filter(({ type }) => type === "message");
    for (const { id } of messages) {
      if (status === "cancelled") this.send("conversation.item.retrieve", { item_id: id });
      else this.spoken = `Reachy: ${this.items.get(id)?.text ?? ""}`;
    }
    if (this.owed && ["completed", "incomplete"].includes(status)) this.send("response.create");
    this.owed = false;
  }

  // Of an interrupted answer, the words that were heard, with which its text begins; the rest stays,
  // but apart. A long one is told in several events, each with all words.
  cut(item) {
    const line = this.items.get(item.id), heard = textOf(item);
    if (!line || line.cut) return false;
    line.rest = line.text.slice(heard.length);
    line.text = heard;
    line.cut = true;
    this.spoken = `Reachy, interrupted: ${heard}`;
    return true;
  }

  answerCall({ call_id, name, arguments: given }) {
    const output = JSON.stringify(call(name, given));
    this.line(call_id, "tool").text = `${name}(${given}) → ${output}`;
    this.send("conversation.item.create", { item: { type: "function_call_output", call_id, output } });
    this.owed = true;
  }

  write(text) {
    this.problem = "";
    this.say([{ type: "input_text", text }]);
    this.send("response.create");
    this.awaited = true;
  }

  show(image_url) {
    this.say([{ type: "input_image", image_url }]);
    this.line(image_url, "user").picture = image_url;
  }

  say(content) {
    this.send("conversation.item.create", { item: { type: "message", role: "user", content } });
  }
}

function textOf(item) {
  return item.content.map((part) => part.text ?? part.transcript ?? "").join("");
}
