// Weighing and draining a real server: a dialogue that says what it would do, asks, and makes the
// change only if nobody made another since it was opened (If-Match with the epoch).

import { getTagged, patch, realPath } from "./api.js";
import { announce, h, newId, say } from "./dom.js";
import { count, endpoint } from "./format.js";
import { problemBox } from "./parts.js";

const STATES = [
  ["", "As configured", "no override of the state"],
  ["drain", "Drain", "no new sessions; open ones go on until they end"],
  ["down", "Down", "no new sessions; open ones as the service's on_down says"],
  ["up", "Up", "new sessions even if the configuration says otherwise"],
];

/** Opens the dialogue for a real server of a service. */
export async function changeReal(context, service, real) {
  const form = new Form(context, service, real);
  document.body.append(form.dialog);
  form.dialog.showModal();
  await form.load();
}

class Form {
  constructor(context, service, real) {
    Object.assign(this, { context, service, real });
    this.at = endpoint(real.address, real.port);
    this.epoch = null;
    const title = newId("dialogue");
    const name = newId("state");
    this.states = STATES.map(([value]) =>
      h("input", { type: "radio", name, value, onchange: () => this.tell() }),
    );
    const options = STATES.map(([, label, meaning], at) =>
      h("label", {}, this.states[at], h("span", {}, h("b", {}, label), ` – ${meaning}`)),
    );
    this.weight = h("input", {
      type: "number",
      min: "0",
      max: "65535",
      step: "1",
      inputmode: "numeric",
      oninput: () => this.tell(),
    });
    this.usual = h("span", { class: "hint" });
    this.effect = h("p", { class: "effect", role: "status" });
    this.trouble = h("div");
    this.confirm = h("button", { type: "submit", class: "main", disabled: true }, "Change");
    this.again = h(
      "button",
      { type: "button", hidden: true, onclick: () => this.load() },
      "Look again",
    );
    const cancel = h("button", { type: "button", onclick: () => this.dialog.close() }, "Cancel");
    // Nothing can be chosen before it is known what is in force.
    this.choices = h("fieldset", { disabled: true }, h("legend", {}, "State"), options);
    this.dialog = h(
      "dialog",
      { "aria-labelledby": title, onclose: () => this.dialog.remove() },
      h(
        "form",
        { method: "dialog", novalidate: true, onsubmit: (event) => this.submit(event) },
        h("h2", { id: title }, `Change ${this.at}`),
        h("p", { class: "about" }, `Real server of ${service}`),
        this.choices,
        h("label", { class: "field" }, "Weight", this.weight, this.usual),
        this.effect,
        this.trouble,
        h("div", { class: "buttons" }, cancel, this.again, this.confirm),
      ),
    );
  }

  /** Reads what is in force, and the epoch that the change will hold on to. */
  async load() {
    this.trouble.replaceChildren();
    this.again.hidden = true;
    this.choices.disabled = true;
    this.weight.disabled = true;
    try {
      const path = `/v1/config/services/${encodeURIComponent(this.service)}`;
      const { data, epoch } = await getTagged(path);
      this.epoch = epoch;
      this.fill(data);
    } catch (problem) {
      this.fail(problem);
    }
  }

  fill({ value, overrides = [] }) {
    const configured = (value.real || []).find((real) => sameReal(real, this.real));
    this.configured = configured?.weight ?? 1;
    const over = overrides.find((it) => sameEndpoint(it.real, this.real)) || {};
    this.over = { state: over.state ?? "", weight: over.weight ?? null };
    for (const state of this.states) state.checked = state.value === this.over.state;
    this.weight.value = over.weight ?? "";
    this.weight.placeholder = String(this.configured);
    say(this.usual, `Configured: ${this.configured}. Empty means as configured.`);
    this.choices.disabled = false;
    this.weight.disabled = false;
    this.tell();
    (this.states.find((state) => state.checked) || this.states[0]).focus();
  }

  /** What would be changed: the body of the request; null when nothing would. */
  wanted() {
    const state = this.states.find((it) => it.checked)?.value ?? "";
    const text = this.weight.value.trim();
    const body = {};
    if (state !== this.over.state) body.state = state || null;
    const weight = text === "" ? null : Number(text);
    if (weight !== this.over.weight) body.weight = weight;
    return Object.keys(body).length > 0 ? body : null;
  }

  tell() {
    if (this.epoch === null || !this.over) return;
    const body = this.wanted();
    const bad = this.weight.validity.badInput;
    this.confirm.disabled = !body || bad;
    say(this.effect, bad ? "The weight must be a number." : this.effects(body));
    const verbs = { drain: "Drain it", down: "Take it down", up: "Put it up" };
    say(this.confirm, verbs[body?.state] || "Change");
  }

  effects(body) {
    if (!body) return "Nothing is changed yet.";
    const live = this.real.sessions_active;
    const open = live === 1 ? "1 open session" : `${count(live)} open sessions`;
    const parts = [];
    if (body.state === "drain")
      parts.push(`It gets no new sessions; its ${open} go on until they end.`);
    if (body.state === "down") parts.push(`It gets no new sessions; its ${open} may be ended.`);
    if (body.state === "up") parts.push("It gets new sessions.");
    if (body.state === null) parts.push("Its state is as configured again.");
    if (body.weight === null) parts.push(`Its weight is ${this.configured} again.`);
    else if (body.weight === 0) parts.push("With weight 0 it gets no new sessions.");
    else if (body.weight !== undefined) parts.push(`Its weight becomes ${body.weight}.`);
    return parts.join(" ");
  }

  async submit(event) {
    event.preventDefault();
    const body = this.wanted();
    if (!body || this.epoch === null) return;
    this.confirm.disabled = true;
    this.trouble.replaceChildren();
    try {
      const path = realPath(this.service, this.real.address, this.real.port);
      const { data } = await patch(path, body, this.epoch);
      this.dialog.close();
      announce(`${this.service}, ${this.at}: ${data.summary || "changed"} (epoch ${data.epoch})`);
      this.context.feeds.services.ask();
      this.context.feeds.config.ask();
    } catch (problem) {
      this.confirm.disabled = false;
      this.fail(problem);
    }
  }

  fail(problem) {
    const stale = problem.status === 412;
    if (stale) {
      problem.title = "Somebody else changed the configuration meanwhile";
      problem.message =
        `Epoch ${problem.epoch} is in force, and this was made for epoch ` +
        `${this.epoch}. Nothing was changed. Look at it again before you decide.`;
      this.confirm.disabled = true;
    }
    this.again.hidden = !stale && !problem.unreachable;
    this.trouble.replaceChildren(problemBox(problem));
    if (!this.again.hidden) this.again.focus();
  }
}

function sameReal(configured, real) {
  return configured.address === real.address && (configured.port ?? real.port) === real.port;
}

function sameEndpoint(text, real) {
  return text === endpoint(real.address, real.port) || text === `${endpoint(real.address, "0")}`;
}
