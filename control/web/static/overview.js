// The director at a glance: what passes, how full it is, what is wrong.

import { h, say } from "./dom.js";
import { bits, count, perSecond, percent, pps, span } from "./format.js";
import { badge, choice, linkColumn, numberColumn, section, Tile } from "./parts.js";
import { Plot } from "./plot.js";
import { to } from "./router.js";
import { Synchronisation } from "./sync.js";
import { Table } from "./table.js";
import { measure } from "./traffic.js";
import { findings } from "./findings.js";

const RANGES = [
  [300, "5 min"],
  [900, "15 min"],
  [3600, "1 hour"],
];
const BUSIEST = 6;

export const title = () => "Overview";

/** Shows the page in `root`; gives a function that ends it. */
export function open(root, context) {
  const { feeds } = context;
  const view = frame();
  root.append(...view.parts);
  const known = {};
  const look = (name, show) => (feed) => {
    if (feed.now) known[name] = feed.now.data;
    show(feed);
    showFindings(view, known, feeds);
  };
  const hour = context.hour();
  const stops = [
    hour.watch(() => showRates(view, hour)),
    feeds.status.watch(look("status", (feed) => feed.now && showStatus(view, feed.now.data))),
    feeds.health.watch(look("health", (feed) => feed.now && showHealth(view, feed.now.data))),
    feeds.drops.watch(look("drops", (feed) => feed.now && showDrops(view, feed))),
    feeds.ports.watch(look("ports", (feed) => feed.now && showPorts(view, feed))),
    feeds.ha.watch(look("ha", (feed) => feed.now && showHa(view, feed.now.data))),
    feeds.services.watch((feed) => feed.now && showBusiest(view, feed)),
  ];
  view.redraw = () => showRates(view, hour);
  return () => stops.forEach((stop) => stop());
}

function frame() {
  const tiles = {
    packets: new Tile("Packets"),
    traffic: new Tile("Traffic"),
    opened: new Tile("New connections"),
    sessions: new Tile("Sessions"),
    drops: new Tile("Drops"),
    health: new Tile("Health", { href: "#/services" }),
    ha: new Tile("High availability"),
  };
  const plots = {
    traffic: new Plot({
      label: "Traffic",
      unit: (value) => bits(value === null ? null : value / 8),
      series: [
        { label: "to real servers", column: "in_bytes", scale: 8 },
        { label: "to clients", column: "out_bytes", scale: 8 },
      ],
    }),
    packets: new Plot({
      label: "Packets",
      unit: pps,
      series: [
        { label: "to real servers", column: "in_packets" },
        { label: "to clients", column: "out_packets" },
      ],
    }),
    opened: new Plot({
      label: "Connections",
      unit: perSecond,
      series: [{ label: "new", column: "opened" }],
    }),
    drops: new Plot({
      label: "Drops",
      unit: perSecond,
      series: [{ label: "dropped", column: "drops" }],
    }),
  };
  const view = { tiles, plots, range: 900, findings: h("ul", { class: "findings" }) };
  view.drops = dropsTable();
  view.busiest = busiestTable();
  view.ports = portsTable();
  view.sync = new Synchronisation();
  const ranges = choice("Time shown", RANGES, view.range, (range) => {
    view.range = range;
    view.redraw();
  });
  view.about = h("p", { class: "about" });
  const head = h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Overview"), ranges);
  const plotted = h(
    "div",
    { class: "plots" },
    Object.values(plots).map((plot) => plot.root),
  );
  view.parts = [
    head,
    view.about,
    h(
      "div",
      { class: "tiles seven" },
      Object.values(tiles).map((tile) => tile.root),
    ),
    h(
      "section",
      { class: "panel attention", "aria-labelledby": "attention" },
      h("h2", { id: "attention" }, "Needs attention"),
      view.findings,
    ),
    plotted,
    h(
      "div",
      { class: "pair" },
      section("Busiest services", view.busiest.root),
      section("Packets dropped or left to Linux", view.drops.root),
    ),
    section("Ports", view.ports.root),
    view.sync.root,
  ];
  return view;
}

function showRates({ tiles, plots, range }, hour) {
  const [inward, outward] = [hour.newest("in_packets"), hour.newest("out_packets")];
  const sum = (a, b) => (a === null || b === null ? null : a + b);
  tiles.packets.set(pps(sum(inward, outward)), `${pps(inward)} inbound, ${pps(outward)} outbound`);
  const [inBytes, outBytes] = [hour.newest("in_bytes"), hour.newest("out_bytes")];
  const traffic = `${bits(inBytes)} inbound, ${bits(outBytes)} outbound`;
  tiles.traffic.set(bits(sum(inBytes, outBytes)), traffic);
  tiles.opened.set(perSecond(hour.newest("opened")), "sessions opened");
  const drops = hour.newest("drops");
  const received = hour.newest("received");
  const share = received > 0 ? `${percent(drops / received)} of what came` : "nothing came";
  tiles.drops.set(perSecond(drops), share, drops > 0 ? "warn" : "");
  if (hour.at.length === 0) return;
  const end = hour.at.at(-1);
  for (const plot of Object.values(plots)) plot.update(hour, end - range, end);
}

function showStatus({ tiles, about }, status) {
  const { live, capacity } = status.sessions;
  const full = live / capacity;
  tiles.sessions.set(
    count(live),
    `${percent(full)} of ${count(capacity)}`,
    full > 0.9 ? "warn" : "",
  );
  const workers = status.workers.length === 1 ? "1 worker" : `${status.workers.length} workers`;
  say(
    about,
    `Sluice ${status.version}, up for ${span(status.uptime_s)}, ${workers}, ` +
      `configuration epoch ${status.config_epoch}`,
  );
}

function showHealth({ tiles }, { checks }) {
  const number = (state) => checks.filter((check) => check.state === state).length;
  const [up, down, unknown] = [number("up"), number("down"), number("unknown")];
  if (checks.length === 0) return tiles.health.set("–", "no health checks are configured");
  const of = `of ${count(checks.length)} checked`;
  if (down > 0) return tiles.health.set(`${count(down)} down`, `${count(up)} up ${of}`, "bad");
  const more = unknown > 0 ? `, ${count(unknown)} not known yet` : "";
  tiles.health.set(`${count(up)} up`, of + more, unknown > 0 ? "" : "good");
}

function showHa({ tiles, sync }, ha) {
  const { role, addresses } = ha;
  sync.update(ha);
  if (addresses.length === 0) return tiles.ha.set("–", "there are no virtual addresses");
  const here = addresses.filter((address) => address.interface).length;
  const whole = `${count(here)} of ${count(addresses.length)} virtual addresses here`;
  tiles.ha.set(role, whole, role === "partial" ? "warn" : "");
}

function showFindings(view, known, feeds) {
  const found = findings(known, feeds);
  const text = JSON.stringify(found);
  if (text === view.found) return;
  view.found = text;
  const lines = found.map(({ kind, word, text: words, href }) =>
    h("li", {}, badge(kind, word), " ", href ? h("a", { href }, words) : words),
  );
  const fine = h("li", {}, badge("good", "fine"), " Nothing does.");
  view.findings.replaceChildren(...(lines.length > 0 ? lines : [fine]));
}

function dropsTable() {
  const fate = (row) => (row.fate === "kernel" ? "left to Linux" : "dropped");
  return new Table({
    caption: "Packets dropped or left to Linux, by reason",
    key: (row) => row.reason,
    sort: { column: 2, down: true },
    empty: "None since the start.",
    columns: [
      {
        label: "Reason",
        value: (row) => row.reason,
        control: () => reasonCell(),
        refresh: refreshReason,
      },
      { label: "Fate", value: fate, text: fate },
      numberColumn("Rate", (row) => row.rate, perSecond),
      numberColumn("Packets", (row) => row.packets, count),
    ],
  });
}

function reasonCell() {
  return h("details", { class: "reason" }, h("summary", {}), h("p", {}));
}

function refreshReason(cell, row) {
  const [summary, text] = cell.firstChild.children;
  say(summary, row.reason);
  say(text, row.meaning);
}

function showDrops(view, feed) {
  const before = new Map(feed.before?.data.drops.map((drop) => [drop.reason, drop.packets]));
  const rows = feed.now.data.drops
    .filter((drop) => drop.packets > 0)
    .map((drop) => ({
      ...drop,
      rate: feed.rate((data) => (data === feed.now.data ? drop.packets : before.get(drop.reason))),
    }));
  view.drops.update(rows);
}

function busiestTable() {
  return new Table({
    caption: "Busiest services",
    key: (row) => row.name,
    empty: "No services are configured.",
    columns: [
      linkColumn(
        "Service",
        (row) => row.name,
        (row) => to("services", row.name),
      ),
      numberColumn("Sessions", (row) => row.sessions_active, count),
      numberColumn("New", (row) => row.rates.opened, perSecond),
      numberColumn("Traffic", (row) => row.rates.bytes, bits),
    ],
  });
}

function showBusiest(view, feed) {
  const rows = measure(feed).services;
  const rank = (row) => [row.rates.bytes ?? 0, row.sessions_active];
  rows.sort((a, b) => rank(b)[0] - rank(a)[0] || rank(b)[1] - rank(a)[1]);
  view.busiest.update(rows.slice(0, BUSIEST));
}

const PORT_STATES = { up: ["good", "up"], down: ["bad", "down"], gone: ["bad", "gone"] };

function portsTable() {
  return new Table({
    caption: "Ports",
    key: (row) => row.name,
    columns: [
      { label: "Port", value: (row) => row.name, text: (row) => row.name },
      {
        label: "State",
        value: (row) => row.state,
        node: (row) => badge(...PORT_STATES[row.state]),
      },
      { label: "Device", value: (row) => row.device, text: (row) => row.device },
      numberColumn("Received", (row) => row.rx_bps, bits),
      numberColumn("Packets in", (row) => row.rx_pps, pps),
      numberColumn("Sent", (row) => row.tx_bps, bits),
      numberColumn("Packets out", (row) => row.tx_pps, pps),
      numberColumn("Lost and errors", lost, count),
    ],
  });
}

const lost = (port) => port.rx.missed + port.rx.errors + port.tx.errors;

function showPorts(view, feed) {
  const before = new Map(feed.before?.data.ports.map((port) => [port.name, port]));
  const rows = feed.now.data.ports.map((port) => {
    const old = before.get(port.name);
    const rate = (pick) =>
      feed.rate((data) => (data === feed.now.data ? pick(port) : old && pick(old)));
    return {
      ...port,
      rx_bps: rate((it) => it.rx.bytes),
      rx_pps: rate((it) => it.rx.packets),
      tx_bps: rate((it) => it.tx.bytes),
      tx_pps: rate((it) => it.tx.packets),
    };
  });
  view.ports.update(rows);
}
