// One service: how it is set up, what passes, and its real servers, which those who may can weigh
// and drain here.

import { h, say } from "./dom.js";
import { bits, count, endpoint, perSecond, pps, span } from "./format.js";
import { badge, facts, numberColumn, section, shareColumn, stateBadge, Tile } from "./parts.js";
import { Plot } from "./plot.js";
import { changeReal } from "./change.js";
import { Table } from "./table.js";
import { condition, measure, realKey } from "./traffic.js";

export const title = ([name]) => name;

/** Shows the page in `root`; gives a function that ends it. */
export function open(root, context, [name]) {
  const view = frame(name, context);
  root.append(...view.parts);
  const hour = context.hour(name);
  const show = () => update(view, context.feeds, name);
  const stops = [
    context.feeds.services.watch(show),
    context.feeds.health.watch(show),
    hour.watch(() => showHour(view, hour)),
  ];
  return () => stops.forEach((stop) => stop());
}

function frame(name, context) {
  const tiles = {
    sessions: new Tile("Sessions"),
    opened: new Tile("New connections"),
    packets: new Tile("Packets"),
    traffic: new Tile("Traffic"),
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
    opened: new Plot({
      label: "Connections",
      unit: perSecond,
      series: [{ label: "new", column: "opened" }],
    }),
  };
  const reals = realsTable(name, context);
  const view = {
    tiles,
    plots,
    reals,
    badge: h("span"),
    facts: h("div"),
    none: h("p", { class: "empty" }),
  };
  view.body = h(
    "div",
    {},
    h(
      "div",
      { class: "tiles" },
      Object.values(tiles).map((tile) => tile.root),
    ),
    h(
      "div",
      { class: "plots" },
      Object.values(plots).map((plot) => plot.root),
    ),
    section("Real servers", reals.root),
    section("Settings", view.facts),
  );
  view.parts = [
    h("p", { class: "path" }, h("a", { href: "#/services" }, "Services"), " /"),
    h("div", { class: "head" }, h("h1", { tabindex: "-1" }, name), view.badge),
    view.none,
    view.body,
  ];
  return view;
}

function update(view, feeds, name) {
  if (!feeds.services.now) return;
  const service = measure(feeds.services).services.find((it) => it.name === name);
  view.body.hidden = !service;
  view.none.hidden = Boolean(service);
  if (!service) return say(view.none, `There is no service ${name} (any more).`);
  view.badge.replaceChildren(badge(...condition(service.reals)));
  showTiles(view.tiles, service);
  showFacts(view, service);
  const checks = new Map();
  for (const check of feeds.health.now?.data.checks || []) {
    if (check.service === name) checks.set(endpoint(check.address, check.port), check);
  }
  const sum = (pick) => service.reals.reduce((total, real) => total + (pick(real) || 0), 0);
  const [sessions, bytes] = [sum((it) => it.sessions_active), sum((it) => it.rates.bytes)];
  view.reals.update(
    service.reals.map((real) => ({
      ...real,
      at: endpoint(real.address, real.port),
      check: checks.get(endpoint(real.address, real.port)),
      sessionShare: sessions > 0 ? real.sessions_active / sessions : null,
      trafficShare: bytes > 0 ? (real.rates.bytes || 0) / bytes : null,
    })),
  );
}

function showTiles(tiles, { rates, sessions_active: live, sessions_total: all }) {
  tiles.sessions.set(count(live), `${count(all)} since the start`);
  tiles.opened.set(perSecond(rates.opened), "sessions opened");
  const both = (inbound, outbound) => `${inbound} inbound, ${outbound} outbound`;
  tiles.packets.set(pps(rates.packets), both(pps(rates.inPackets), pps(rates.outPackets)));
  tiles.traffic.set(bits(rates.bytes), both(bits(rates.inBytes), bits(rates.outBytes)));
}

function showFacts(view, service) {
  const { persistence } = service;
  const told = facts([
    ["Virtual address", `${endpoint(service.vip, service.ports === "*" ? "any" : service.ports)}`],
    ["Protocol", service.protocol],
    ["Forwarding", service.mode],
    ["Scheduler", service.scheduler],
    ["Local pool", service.pool],
    ["Client's address", service.client_address],
    ["Persistence", persistence && `${span(persistence.timeout_s)}, /${persistence.prefix}`],
    ["One packet at a time", service.one_packet ? "yes" : null],
  ]);
  if (view.facts.textContent !== told.textContent) view.facts.replaceChildren(told);
}

function showHour({ plots }, hour) {
  if (hour.at.length === 0) return;
  const end = hour.at.at(-1);
  for (const plot of Object.values(plots)) plot.update(hour, end - 3600, end);
}

function realsTable(name, context) {
  const columns = [
    { label: "Real server", value: (row) => row.at, text: (row) => row.at },
    { label: "State", value: (row) => row.state, node: (row) => stateBadge(row.state) },
    { label: "Check", plain: true, text: checkText },
    numberColumn("Weight", (row) => row.weight, count),
    shareColumn("Sessions", (row) => row.sessionShare, {
      value: (row) => row.sessions_active,
      text: (row) => count(row.sessions_active),
    }),
    numberColumn("New", (row) => row.rates.opened, perSecond),
    shareColumn("Traffic", (row) => row.trafficShare, {
      value: (row) => row.rates.bytes ?? -1,
      text: (row) => bits(row.rates.bytes),
    }),
  ];
  if (context.may("operate")) columns.push(changeColumn(name, context));
  return new Table({
    caption: `Real servers of ${name}`,
    key: realKey,
    empty: "This service has no real servers.",
    columns,
  });
}

function changeColumn(name, context) {
  return {
    label: "Change",
    control: (row) =>
      h(
        "button",
        {
          type: "button",
          class: "plain",
          onclick: () => changeReal(context, name, row()),
        },
        "Change…",
      ),
    refresh: (cell, row) =>
      cell.firstChild.setAttribute("aria-label", `Change ${row.at}: weight, drain`),
  };
}

function checkText({ check, upper_sessions: upper, full_at: fullAt }) {
  const full =
    fullAt.length > 0 ? `full at ${fullAt.length} workers (${count(upper)} sessions); ` : "";
  if (!check) return `${full}not checked`;
  const since = `${check.check}: ${check.state} for ${span(check.for_s)}`;
  const probe = check.last ? `, ${check.last.text} in ${check.last.took_ms.toFixed(1)} ms` : "";
  const reason = check.state === "down" ? `, ${check.reason}` : probe;
  return `${full}${since}${reason}`;
}
