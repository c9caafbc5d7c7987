// What has happened, as it happens: server-sent events where the director has them, and otherwise
// the list asked for again and again.

import { stream } from "./api.js";
import { h, say } from "./dom.js";
import { count, endpoint, moment } from "./format.js";
import { badge, choice, searchField, section } from "./parts.js";
import { Table } from "./table.js";

const KEPT = 1000;
const AGAIN_MS = 3000;

export const title = () => "Events";

/** Shows the page in `root`; gives a function that ends it. */
export function open(root, { feeds }) {
  const view = { events: new Map(), text: "", kind: "", table: eventsTable() };
  view.found = h("span");
  view.way = h("span");
  const search = searchField("Search events", (text) => [(view.text = text), show(view)]);
  const kinds = choice(
    "Which events",
    [
      ["", "All"],
      ["down", "Down"],
      ["up", "Up"],
      ["change", "Changes"],
    ],
    "",
    (kind) => {
      view.kind = kind;
      show(view);
    },
  );
  root.append(
    h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Events"), kinds, search),
    h("p", { class: "about", role: "status" }, view.found, " · ", view.way),
    section("Events", view.table.root),
  );
  say(view.way, "connecting");
  const polled = feeds.events.watch((feed) => feed.now && add(view, feed.now.data.events));
  const over = new AbortController();
  listen(view, feeds, over.signal);
  return () => {
    polled();
    over.abort();
  };
}

/** Reads the stream for as long as the page is open; in between the feed goes on by itself. */
async function listen(view, feeds, signal) {
  // Where the stream was, by its own name for that place.
  let lastId = null;
  while (!signal.aborted) {
    try {
      await stream("/v1/events", {
        signal,
        lastId,
        onOpen: () => {
          say(view.way, "live");
          feeds.events.everyMs = 30_000;
          // What happened between the list and the stream.
          feeds.events.ask();
        },
        onEvent: ({ id, event, data }) => {
          lastId = id ?? lastId;
          if (event === "lost") feeds.events.ask();
          else add(view, [JSON.parse(data)]);
        },
      });
    } catch (problem) {
      // No stream, or it broke: the feed below asks, and a little later this tries again. A place
      // that the director does not know any more is forgotten.
      if (problem.status === 400) lastId = null;
    }
    feeds.events.everyMs = 5000;
    if (signal.aborted) return;
    say(view.way, "asked every 5 s");
    feeds.events.ask();
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
}

function add(view, events) {
  for (const event of events) if (Number.isFinite(event.id)) view.events.set(event.id, event);
  const ids = [...view.events.keys()].sort((a, b) => a - b);
  for (const id of ids.slice(0, Math.max(0, ids.length - KEPT))) view.events.delete(id);
  show(view);
}

function show(view) {
  const all = [...view.events.values()].map(rowOf).sort((a, b) => b.id - a.id);
  const shown = all.filter(
    (row) => (view.kind === "" || row.group === view.kind) && row.search.includes(view.text),
  );
  view.table.update(shown);
  const part = shown.length < all.length ? `${count(shown.length)} of ` : "";
  say(view.found, `${part}${count(all.length)} events`);
}

const HEALTH = { up: "good", down: "bad", unknown: "calm" };
const OTHERS = {
  config: ["change", "calm", "changed"],
  override: ["change", "calm", "override"],
  reload: ["change", "bad", "reload refused"],
  sessions: ["change", "calm", "sessions ended"],
  port: ["port", "warn", "port"],
  drops: ["drops", "warn", "drops"],
};

/** An event as a row: which filter it is for, a badge, of what, and why. */
function rowOf(event) {
  const real = event.address ? endpoint(event.address, event.port) : "";
  const by = event.author ? [event.author.name || event.author.source] : [];
  const epoch = event.epoch === undefined ? [] : [`epoch ${event.epoch}`];
  const what = [event.service, real, ...epoch, ...by].filter(Boolean).join(", ");
  const [group, kind, change] = event.to
    ? [event.to, HEALTH[event.to] || "calm", `${event.from} → ${event.to}`]
    : OTHERS[event.kind] || ["", "calm", event.kind];
  const search = `${what} ${change} ${event.reason}`.toLowerCase();
  return {
    id: event.id,
    at: event.at_unix_ms,
    group,
    kind,
    change,
    what,
    why: event.reason,
    search,
  };
}

function eventsTable() {
  return new Table({
    caption: "Events, the newest first",
    key: (row) => row.id,
    empty: "Nothing like that has happened.",
    columns: [
      { label: "When", value: (row) => row.id, text: (row) => moment(row.at) },
      { label: "Change", value: (row) => row.change, node: (row) => badge(row.kind, row.change) },
      { label: "Of", value: (row) => row.what, text: (row) => row.what },
      { label: "Why", plain: true, text: (row) => row.why },
    ],
  });
}
