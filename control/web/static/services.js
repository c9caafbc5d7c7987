// All services: state, sessions, traffic, share. What one looks for is found by typing.

import { h, say } from "./dom.js";
import { bits, count, endpoint, perSecond, pps } from "./format.js";
import {
  badge,
  choice,
  linkColumn,
  numberColumn,
  searchField,
  section,
  shareColumn,
} from "./parts.js";
import { to } from "./router.js";
import { Table } from "./table.js";
import { condition, measure, standing } from "./traffic.js";

export const title = () => "Services";

const RANK = { bad: 0, warn: 1, calm: 2, good: 3 };

/** Shows the page in `root`; gives a function that ends it. */
export function open(root, { feeds }) {
  const wanted = { text: "", troubled: false };
  const [services, snat] = [servicesTable(), snatTable()];
  const found = h("p", { class: "about", role: "status" });
  const rules = section("Source NAT", snat.root);
  const show = () =>
    feeds.services.now && update(feeds.services, wanted, { services, snat, rules, found });
  const search = searchField("Search services and real servers", (text) => {
    wanted.text = text;
    show();
  });
  const states = choice(
    "Which services",
    [
      [false, "All"],
      [true, "With trouble"],
    ],
    false,
    (value) => {
      wanted.troubled = value;
      show();
    },
  );
  root.append(
    h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Services"), states, search),
    found,
    section("Virtual services", services.root),
    rules,
  );
  return feeds.services.watch(show);
}

function update(feed, wanted, { services, snat, rules, found }) {
  const all = measure(feed);
  const total = all.services.reduce((sum, it) => sum + (it.rates.bytes || 0), 0);
  const rows = all.services.map((it) => ({
    ...it,
    at: endpoint(it.vip, it.ports === "*" ? "any" : it.ports),
    condition: condition(it.reals),
    counts: standing(it.reals),
    share: total > 0 ? (it.rates.bytes || 0) / total : null,
  }));
  const shown = rows.filter((row) => matches(row, wanted));
  services.update(shown);
  snat.update(all.snat);
  rules.hidden = all.snat.length === 0;
  const reals = rows.reduce((sum, row) => sum + row.reals.length, 0);
  const part = shown.length < rows.length ? `${count(shown.length)} of ` : "";
  say(found, `${part}${count(rows.length)} services, ${count(reals)} real servers`);
}

function matches(row, { text, troubled }) {
  if (troubled && row.condition[0] === "good") return false;
  if (text === "") return true;
  const words = [row.name, row.at, row.protocol, row.mode, row.scheduler];
  const reals = row.reals.map((real) => endpoint(real.address, real.port));
  return [...words, ...reals].some((word) => word.toLowerCase().includes(text));
}

function servicesTable() {
  return new Table({
    caption: "Virtual services",
    key: (row) => row.name,
    empty: "No service is like that.",
    columns: [
      linkColumn(
        "Service",
        (row) => row.name,
        (row) => to("services", row.name),
      ),
      { label: "Address", value: (row) => row.at, text: (row) => `${row.at} ${row.protocol}` },
      {
        label: "State",
        value: (row) => RANK[row.condition[0]],
        node: (row) => badge(...row.condition),
      },
      {
        label: "Up",
        number: true,
        value: (row) => row.counts.up,
        text: (row) => `${count(row.counts.up)} of ${count(row.reals.length)}`,
      },
      {
        label: "How",
        value: (row) => `${row.mode} ${row.scheduler}`,
        text: (row) => `${row.mode}, ${row.scheduler}`,
      },
      numberColumn("Sessions", (row) => row.sessions_active, count),
      numberColumn("New", (row) => row.rates.opened, perSecond),
      numberColumn("Packets", (row) => row.rates.packets, pps),
      shareColumn("Traffic", (row) => row.share, {
        value: (row) => row.rates.bytes ?? -1,
        text: (row) => bits(row.rates.bytes),
      }),
    ],
  });
}

function snatTable() {
  return new Table({
    caption: "Rules of source NAT",
    key: (row) => row.name,
    columns: [
      { label: "Rule", value: (row) => row.name, text: (row) => row.name },
      { label: "From", text: (row) => row.sources.join(", ") },
      { label: "Pool", value: (row) => row.pool, text: (row) => row.pool },
      numberColumn("Sessions", (row) => row.sessions_active, count),
      numberColumn("New", (row) => row.rates.opened, perSecond),
      numberColumn("In", (row) => row.rates.inBytes, bits),
      numberColumn("Out", (row) => row.rates.outBytes, bits),
    ],
  });
}
