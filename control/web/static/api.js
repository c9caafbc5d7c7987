// The director's API: requests with the token, answers as objects, and what goes wrong as a
// `Problem` that has words for people. The token lives in this tab's session storage and in the
// Authorization header, and nowhere else: never in an address.

const TOKEN = "sluice-token";
const PATIENCE_MS = 10_000;

/** Why a request has no answer. `status` is 0 when the director was not reached. */
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || `the director answered ${status}`);
    this.status = status;
    this.title = body.title || "";
    this.fields = body.errors || [];
    this.epoch = body.epoch;
    this.owner = body.owner;
  }

  get unreachable() {
    return this.status === 0 || this.status === 502 || this.status === 503;
  }
}

export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  set: (text) => sessionStorage.setItem(TOKEN, text),
  forget: () => sessionStorage.removeItem(TOKEN),
};

function headers(more) {
  const held = token.get();
  return held ? { ...more, Authorization: `Bearer ${held}` } : more;
}

async function problemOf(response) {
  const body = await response.json().catch(() => ({}));
  return new Problem(response.status, body);
}

async function send(path, options) {
  try {
    return await fetch(path, { cache: "no-store", credentials: "omit", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    const late = error.name === "TimeoutError";
    const detail = late ? "the director did not answer in time" : "the director does not answer";
    throw new Problem(0, { detail });
  }
}

async function ask(method, path, { body, epoch } = {}) {
  const more = { Accept: "application/json" };
  if (body !== undefined) more["Content-Type"] = "application/json";
  if (epoch !== undefined) more["If-Match"] = `"${epoch}"`;
  const response = await send(path, {
    method,
    headers: headers(more),
    body: body === undefined ? undefined : JSON.stringify(body),
    signal: AbortSignal.timeout(PATIENCE_MS),
  });
  if (!response.ok) throw await problemOf(response);
  const tag = response.headers.get("ETag");
  try {
    return { data: await response.json(), epoch: tag ? Number(tag.replaceAll('"', "")) : null };
  } catch {
    throw new Problem(0, { detail: "the director's answer broke off" });
  }
}

/** What a path answers. */
export const get = async (path) => (await ask("GET", path)).data;

/** What a path answers, with the epoch that it tells of. */
export const getTagged = (path) => ask("GET", path);

/** A change that holds only if `epoch` is still in force. */
export const patch = (path, body, epoch) => ask("PATCH", path, { body, epoch });

/** Asks the director to do something. */
export const post = async (path, body) => (await ask("POST", path, { body })).data;

/** The path of one real server's override. */
export function realPath(service, address, port) {
  const host = address.includes(":") ? `[${address}]` : address;
  const real = port ? `${host}:${port}` : address;
  return `/v1/config/services/${encodeURIComponent(service)}/reals/${encodeURIComponent(real)}`;
}

/**
 * Reads server-sent events until the connection ends. `EventSource` cannot carry a token in a
 * header, so this reads the stream itself.
 */
export async function stream(path, { signal, lastId, onOpen, onEvent }) {
  const more = { Accept: "text/event-stream" };
  if (lastId) more["Last-Event-ID"] = lastId;
  const response = await send(path, { headers: headers(more), signal });
  if (!response.ok) throw await problemOf(response);
  const type = response.headers.get("Content-Type") || "";
  if (!type.startsWith("text/event-stream")) {
    await response.body?.cancel();
    throw new Problem(406, { detail: "this director has no event stream" });
  }
  onOpen();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value.replaceAll("\r\n", "\n")).split("\n\n");
    rest = blocks.pop();
    blocks.map(parseEvent).filter(Boolean).forEach(onEvent);
  }
}

function parseEvent(block) {
  const found = { id: null, event: "message", data: [] };
  for (const line of block.split("\n")) {
    const [, name, text] = /^([^:]*):? ?(.*)$/.exec(line);
    if (name === "data") found.data.push(text);
    else if (name === "id" || name === "event") found[name] = text;
  }
  return found.data.length > 0 ? { ...found, data: found.data.join("\n") } : null;
}
