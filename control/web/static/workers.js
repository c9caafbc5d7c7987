// Workers: how busy each is, how full its bursts are, and where its cycles go, stage by stage.

import { h, svg } from "./dom.js";
import { rateOf } from "./feed.js";
import { count, memory, percent, perSecond, pps } from "./format.js";
import { facts, numberColumn, section, shareColumn } from "./parts.js";
import { Plot } from "./plot.js";
import { Table } from "./table.js";

export const title = () => "Workers";

/** Shows the page in `root`; gives a function that ends it. */
export function open(root, context) {
  const { feeds } = context;
  const view = { table: workersTable(), stages: h("div", { class: "stages" }) };
  view.facts = h("div");
  view.plots = h("div", { class: "plots" });
  root.append(
    h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Workers")),
    section("Workers", view.table.root),
    section(
      "Cycles a packet, by stage",
      h(
        "p",
        { class: "about" },
        "From one burst in 32, and as many sweeps, over the last few seconds. ",
        "Fewer cycles a packet is what full bursts are for.",
      ),
      view.stages,
    ),
    view.plots,
    section("Director", view.facts),
  );
  const hour = context.hour();
  const show = () => update(view, feeds);
  const stops = [
    feeds.status.watch(show),
    feeds.stages.watch(show),
    hour.watch(() => busy(view, hour)),
  ];
  return () => stops.forEach((stop) => stop());
}

function update(view, { status, stages }) {
  if (!status.now || !stages.now) return;
  const measured = stages.now.data.workers.map((worker) => {
    const old = stages.before?.data.workers.find((it) => it.worker === worker.worker);
    return stagesOf(worker, old);
  });
  const rows = status.now.data.workers.map((worker) => {
    const old = status.before?.data.workers.find((it) => it.worker === worker.worker);
    const seconds = status.before ? status.seconds : 0;
    const rate = (pick) => rateOf(pick(worker), old && pick(old), seconds);
    const stage = measured.find((it) => it.worker === worker.worker);
    return {
      ...worker,
      pps: rate((it) => it.packets),
      sleeping: rate((it) => it.sleeps),
      full: worker.session_capacity > 0 ? worker.sessions / worker.session_capacity : null,
      fill: stage?.fill ?? null,
      hits: stage?.hits ?? null,
    };
  });
  view.table.update(rows);
  view.stages.replaceChildren(...measured.map((worker) => stageBar(worker)));
  showFacts(view, status.now.data);
}

/** What came between two answers, or since the start when nothing did. */
function stagesOf(worker, old) {
  const moved = old && worker.timed_packets > old.timed_packets;
  const since = moved ? old : null;
  const grown = (pick) => pick(worker) - (since ? pick(since) : 0);
  const packets = grown((it) => it.timed_packets);
  const bursts = grown((it) => it.timed_bursts);
  const looked = grown((it) => it.looked_up);
  const stages = worker.stages.map(({ stage, ticks }, at) => {
    const spent = ticks - (since?.stages[at]?.ticks ?? 0);
    return { stage, cycles: packets > 0 ? spent / packets : 0 };
  });
  return {
    worker: worker.worker,
    old: !moved,
    packets,
    stages,
    total: stages.reduce((sum, { cycles }) => sum + cycles, 0),
    fill: bursts > 0 ? packets / bursts : null,
    hits: looked > 0 ? grown((it) => it.found) / looked : null,
  };
}

function workersTable() {
  return new Table({
    caption: "Workers",
    key: (row) => row.worker,
    columns: [
      { label: "Worker", value: (row) => row.worker, text: (row) => `worker ${row.worker}` },
      numberColumn("Core", (row) => row.core),
      shareColumn("Busy", (row) => row.busy_share),
      numberColumn("Packets", (row) => row.pps, pps),
      numberColumn(
        "Burst fill",
        (row) => row.fill,
        (fill) => (fill === null ? "–" : `${fill.toFixed(1)} of 256`),
      ),
      numberColumn(
        "Found at once",
        (row) => row.hits,
        (hits) => percent(hits ?? NaN),
      ),
      numberColumn("Sessions", (row) => row.sessions, count),
      shareColumn("Table full", (row) => row.full),
      numberColumn("Sleeps", (row) => row.sleeping, perSecond),
      numberColumn("Frames held", (row) => row.held_frames, count),
    ],
  });
}

function stageBar({ worker, stages, total, packets, old }) {
  const when = old ? " (no traffic now; since the start)" : "";
  const head =
    packets > 0 ? `${total.toFixed(0)} cycles a packet${when}` : "no packets were timed yet";
  const bar = svg("svg", { class: "cycles", width: "100%", height: 22, "aria-hidden": "true" });
  let left = 0;
  stages.forEach(({ cycles }, at) => {
    const share = total > 0 ? (100 * cycles) / total : 0;
    bar.append(
      svg("rect", { class: tone(at), x: `${left}%`, width: `${share}%`, height: 22 }),
    );
    left += share;
  });
  const some = stages.map((stage, at) => ({ ...stage, at })).filter(({ cycles }) => cycles > 0);
  const list = some.map(({ stage, cycles, at }) =>
    h(
      "li",
      {},
      svg(
        "svg",
        { width: 12, height: 12, "aria-hidden": "true" },
        svg("rect", { class: tone(at), width: 12, height: 12, rx: 3 }),
      ),
      h("span", {}, stage.replace("_", " ")),
      h("b", {}, cycles.toFixed(1)),
      h("span", { class: "quiet" }, percent(total > 0 ? cycles / total : NaN)),
    ),
  );
  return h(
    "div",
    { class: "worker" },
    h("h3", {}, `Worker ${worker}: ${head}`),
    bar,
    h("ul", { class: "legend wide" }, list),
  );
}

/** Five colours, each in three shades: there are more stages than colours told apart. */
const tone = (at) => `piece tone${at % 5} shade${Math.floor(at / 5)}`;

function busy(view, hour) {
  if (hour.at.length === 0) return;
  const names = Object.keys(hour.columns).filter((name) => name.startsWith("busy_"));
  if (!view.plot || view.names !== names.join()) {
    view.names = names.join();
    const series = names.map((column) => ({ label: `worker ${column.slice(5)}`, column }));
    view.plot = new Plot({ label: "Busy", unit: (value) => percent(value ?? NaN), series, top: 1 });
    view.sessions = new Plot({
      label: "Sessions",
      unit: count,
      series: [{ label: "open", column: "sessions" }],
    });
    view.plots.replaceChildren(view.plot.root, view.sessions.root);
  }
  const end = hour.at.at(-1);
  view.plot.update(hour, end - 3600, end);
  view.sessions.update(hour, end - 3600, end);
}

function showFacts(view, status) {
  const idle =
    status.idle === "busy" ? "workers go on polling" : "workers sleep and wake on traffic";
  const told = facts([
    ["When idle", idle],
    ["Packet memory", status.huge_pages ? "huge pages" : "ordinary pages"],
    ["Session tables", `${memory(status.memory.bytes)} of ${status.memory.pages} pages`],
    ["Handed to the worker that owns it", `${count(status.handed_off)} packets`],
    ["Sessions opened", count(status.sessions.created)],
    ["Ended by themselves", count(status.sessions.closed)],
    ["Timed out", count(status.sessions.expired)],
  ]);
  if (view.facts.textContent !== told.textContent) view.facts.replaceChildren(told);
}
