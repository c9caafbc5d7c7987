// The sessions with the most traffic, from one packet in 128.

import { h } from "./dom.js";
import { bits, clock, count, percent, pps, span } from "./format.js";
import { linkColumn, numberColumn, section, shareColumn } from "./parts.js";
import { to } from "./router.js";
import { Table } from "./table.js";

export const title = () => "Elephants";

/** Shows the page in `root`; gives a function that ends it. */
export function open(root, { feeds }) {
  const table = elephantsTable();
  const spread = spreadTable();
  const flows = section(
    "Spread flows",
    h(
      "p",
      { class: "about" },
      "Flows that several workers process, in order. By helpers: the share of packets that other ",
      "workers rewrote for the owner. Before: in the last second before the flow was spread. ",
      "Rates are estimated from one packet in 128.",
    ),
    spread.root,
  );
  flows.hidden = true;
  root.append(
    h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Elephants")),
    h(
      "p",
      { class: "about" },
      "The sessions with the most traffic over the last second or so, ",
      "estimated from one packet in 128.",
    ),
    section("Sessions", table.root),
    flows,
  );
  return feeds.elephants.watch((feed) => {
    if (!feed.now) return;
    const { data } = feed.now;
    table.update(rowsOf(data.elephants));
    flows.hidden = !data.spread?.length;
    spread.update(data.spread ?? []);
  });
}

function rowsOf(elephants) {
  const bytes = ({ inbound, outbound }) => inbound.bytes_per_s + outbound.bytes_per_s;
  const total = elephants.reduce((sum, it) => sum + bytes(it), 0);
  return elephants.map((it) => ({
    ...it.session,
    bytes: bytes(it),
    packets: it.inbound.packets_per_s + it.outbound.packets_per_s,
    inBytes: it.inbound.bytes_per_s,
    outBytes: it.outbound.bytes_per_s,
    share: total > 0 ? bytes(it) / total : null,
  }));
}

function elephantsTable() {
  return new Table({
    caption: "Sessions with the most traffic",
    key: (row) => `${row.protocol} ${row.client} ${row.virtual} ${row.real} ${row.worker}`,
    sort: { column: 3, down: true },
    empty: "No session has much traffic now.",
    columns: [
      { label: "Client", value: (row) => row.client, text: (row) => row.client },
      linkColumn(
        "Service",
        (row) => row.service,
        (row) => to("services", row.service),
      ),
      { label: "Real server", value: (row) => row.real, text: (row) => row.real },
      shareColumn("Traffic", (row) => row.share, {
        value: (row) => row.bytes,
        text: (row) => bits(row.bytes),
      }),
      numberColumn("In", (row) => row.inBytes, bits),
      numberColumn("Out", (row) => row.outBytes, bits),
      numberColumn("Packets", (row) => row.packets, pps),
      { label: "State", value: (row) => row.state, text: (row) => `${row.protocol} ${row.state}` },
      numberColumn("Worker", (row) => row.worker),
    ],
  });
}

function spreadTable() {
  const author = ({ pinned }) => (pinned ? "operator" : "policy");
  const helpers = (row) => row.helpers.join(", ");
  const began = (row) => Date.now() - row.for_s * 1000;
  const since = (row) => `${clock(began(row), false)} (${span(row.for_s)})`;
  const relief = ({ dealt, own, kept }) => {
    const all = dealt + own + kept;
    return all > 0 ? dealt / all : null;
  };
  const brought = ({ redirect, redirect_reason: why }) => {
    if (redirect === "hardware") return "NIC rule";
    return why ? `software: ${why}` : "software";
  };
  const ends = ({ client, virtual, direction }) =>
    direction === "inbound" ? `${client} > ${virtual}` : `${virtual} > ${client}`;
  const wasAndIs = (label, of, text) => ({
    label,
    number: true,
    value: ({ now }) => (now ? of(now) : -1),
    text: ({ before, now }) => [before, now].map((it) => text(it && of(it))).join(" → "),
  });
  return new Table({
    caption: "Flows that several workers process",
    key: (row) => `${row.network ?? ""} ${row.protocol} ${ends(row)}`,
    columns: [
      { label: "Flow", value: ends, text: (row) => `${row.protocol} ${ends(row)}` },
      { label: "By", value: author, text: author },
      numberColumn("Owner", (row) => row.worker),
      { label: "Helpers", value: helpers, text: helpers },
      { label: "Since", value: began, text: since },
      wasAndIs("Packets, before → now", (load) => load.packets_per_s, pps),
      wasAndIs("Traffic, before → now", (load) => load.bytes_per_s, bits),
      wasAndIs("Owner busy, before → now", (load) => load.owner_busy_share, percent),
      shareColumn("By helpers", relief),
      numberColumn("Dealt", (row) => row.dealt, count),
      numberColumn("Own", (row) => row.own, count),
      numberColumn("Kept", (row) => row.kept, count),
      numberColumn("Late", (row) => row.late, count),
      { label: "Brought to the owner by", value: brought, text: brought },
    ],
  });
}
