// Session synchronisation: the other directors, and what became of reports of sessions.

import { h } from "./dom.js";
import { count, span } from "./format.js";
import { badge, facts, numberColumn, section } from "./parts.js";
import { Table } from "./table.js";

const LISTED = 8;

/** A section that is hidden while synchronisation is not configured. */
export class Synchronisation {
  constructor() {
    this.state = h("p", { class: "about" });
    this.peers = peersTable();
    this.facts = h("div");
    const figures = h("div", { class: "sync" }, this.peers.root, this.facts);
    this.root = section("Session synchronisation", this.state, figures);
    this.root.hidden = true;
  }

  /** Shows what `/v1/ha` said. */
  update({ role, addresses, sync }) {
    this.root.hidden = !sync;
    if (!sync) return;
    replace(this.state, h("p", {}, ...stateOf(sync)));
    this.peers.update(sync.peers);
    replace(this.facts, h("div", {}, figures(role, addresses, sync)));
  }
}

/** Brings `shown` up to date by what `told` has, if that reads differently. */
function replace(shown, told) {
  if (shown.textContent !== told.textContent) shown.replaceChildren(...told.childNodes);
}

function stateOf({ synchronised, pulling_from: from, pulled }) {
  if (synchronised) {
    return [badge("good", "synchronised"), " This director has the sessions of the others."];
  }
  const how = from ? `${count(pulled)} reports have come from ${from}.` : "No peer is being asked.";
  return [badge("warn", "not synchronised"), ` It should not take over yet. ${how}`];
}

/** Kind and word of a peer's state. */
export function peerState({ up, behind, differs, synchronised }) {
  if (!up) return ["bad", "down"];
  if (behind) return ["bad", "behind"];
  if (differs) return ["bad", "configuration differs"];
  return synchronised ? ["good", "up"] : ["warn", "not synchronised"];
}

/** What a peer says that it is. */
function roleOf({ standing }) {
  if (!standing) return "–";
  return standing.draining ? `${standing.role}, draining` : standing.role;
}

function peersTable() {
  return new Table({
    caption: "Peers of session synchronisation",
    key: (row) => row.address,
    columns: [
      { label: "Peer", value: (row) => row.address, text: (row) => row.address },
      { label: "Name", value: (row) => row.name, text: (row) => row.name || "–" },
      {
        label: "State",
        value: (row) => peerState(row)[1],
        node: (row) => badge(...peerState(row)),
      },
      { label: "Role", value: roleOf, text: roleOf },
      numberColumn(
        "Sessions",
        (row) => row.standing?.sessions ?? -1,
        (sessions) => (sessions < 0 ? "–" : count(sessions)),
      ),
      numberColumn("For", (row) => row.for_s, span),
      numberColumn(
        "Lag",
        (row) => row.lag_ms,
        (lag) => `${lag.toFixed(1)}\u202fms`,
      ),
      numberColumn("Unacknowledged", (row) => row.unacknowledged, count),
      { label: "Key", value: (row) => row.key, text: (row) => row.key },
    ],
  });
}

function figures(role, addresses, sync) {
  const { reports_waiting: waiting, reports_sent: sent, reports_received: got, datagrams } = sync;
  const here = addresses.filter((address) => address.interface).map((address) => address.vip);
  const more = here.length > LISTED ? ` and ${count(here.length - LISTED)} more` : "";
  const rejected = datagrams.forged + datagrams.replayed + datagrams.malformed;
  return facts([
    ["Role", role],
    ["Virtual addresses here", here.slice(0, LISTED).join(", ") + more || "none"],
    ["Reports waiting at the workers", count(waiting)],
    ["Reports sent", count(sent)],
    ["Reports received and used", count(got.new + got.newer + got.ended)],
    ["Already known", count(got.older)],
    ["Not configured here", count(got.unknown)],
    ["Refused", count(got.refused)],
    ["Datagrams lost", count(datagrams.lost)],
    ["Datagrams rejected", `${count(rejected)}, ${count(datagrams.forged)} of them forged`],
  ]);
}
