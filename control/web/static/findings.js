// What an operator should look at, from what the director tells: worst first, each with a link to
// where more is said.

import { count, endpoint, percent } from "./format.js";
import { to } from "./router.js";
import { peerState } from "./sync.js";

const LISTED = 5;

/** Findings `{ kind, word, text, href? }`, from the last answers of some resources. */
export function findings({ status, health, ports, drops, ha }, feeds) {
  return [
    ...(ports?.ports.filter((port) => port.state !== "up").map(deadPort) || []),
    ...(health ? unwell(health) : []),
    ...(ha?.sync ? apart(ha.sync) : []),
    ...(ha?.sync ? rivals(ha) : []),
    ...(status ? standing(status) : []),
    ...(drops ? dropping(feeds.drops) : []),
  ];
}

function deadPort(port) {
  const why = port.state === "gone" ? "its device is gone" : "it is down or has no carrier";
  return { kind: "bad", word: port.state, text: `Port ${port.name} (${port.device}): ${why}.` };
}

function unwell({ checks, restarts }) {
  const down = checks.filter((check) => check.state === "down");
  const found = down.slice(0, LISTED).map((check) => ({
    kind: "bad",
    word: "down",
    text: `${check.service}, ${endpoint(check.address, check.port)}: ${check.reason}`,
    href: to("services", check.service),
  }));
  const rest = down.length - found.length;
  if (rest > 0) {
    const text = `${count(rest)} more real servers are down.`;
    found.push({ kind: "bad", word: "down", text, href: "#/services" });
  }
  if (restarts > 0) {
    const times = restarts === 1 ? "once" : `${count(restarts)} times`;
    found.push({
      kind: "warn",
      word: "checks",
      text: `The health checks were restarted ${times}.`,
    });
  }
  return found;
}

/** What keeps another director from taking over without loss. */
function apart({ synchronised, peers }) {
  const found = peers
    .map((peer) => [...peerState(peer), peer])
    .filter(([kind]) => kind === "bad")
    .map(([kind, word, peer]) => {
      return { kind, word, text: `Peer ${peer.address}: ${whyBad(peer)}.` };
    });
  if (!synchronised) {
    const text = "This director does not have the sessions of the others yet.";
    found.push({ kind: "warn", word: "sessions", text });
  }
  return found;
}

/** Other directors that have all virtual addresses, as this one has. */
function rivals({ role, sync }) {
  if (role !== "active") return [];
  return sync.peers
    .filter(({ standing }) => standing?.role === "active")
    .map(({ address }) => {
      const text = `Peer ${address} has all virtual addresses too: a split brain.`;
      return { kind: "bad", word: "split brain", text };
    });
}

function whyBad({ up, behind }) {
  if (!up) return "no session is synchronised with it";
  if (behind) return "it lacks the newest sessions";
  return "it has other services, real servers or local addresses";
}

function standing(status) {
  const found = [];
  const warn = (word, text, href) => found.push({ kind: "warn", word, text, href });
  const { live, capacity } = status.sessions;
  if (live > 0.9 * capacity) {
    warn("sessions", `The session table is ${percent(live / capacity)} full (limits.sessions).`);
  }
  const busy = status.workers.filter((worker) => worker.busy_share > 0.95);
  if (busy.length > 0) {
    const which = busy.map((worker) => worker.worker).join(", ");
    warn("busy", `Worker ${which} has no time left.`, "#/workers");
  }
  if (status.last_reload && !status.last_reload.ok) {
    const text = `The last reload was refused: ${status.last_reload.error || "see the log"}`;
    found.push({ kind: "bad", word: "reload", text, href: "#/config" });
  }
  if (status.differs_from_file) {
    warn("file", "What runs is not what the configuration file says.", "#/config");
  }
  if (!status.durable) {
    warn("state", "Changes made at run time will not survive a restart (state_dir).", "#/config");
  }
  if (!status.huge_pages) {
    warn("memory", "Packet memory is not in huge pages: forwarding is slower than it could be.");
  }
  return found;
}

function dropping(feed) {
  const before = new Map(feed.before?.data.drops.map((drop) => [drop.reason, drop.packets]));
  const growing = feed.now.data.drops.filter(
    (drop) =>
      drop.fate === "dropped" && before.has(drop.reason) && drop.packets > before.get(drop.reason),
  );
  return growing.slice(0, LISTED).map((drop) => ({
    kind: "warn",
    word: "drops",
    text: `${drop.reason}: ${drop.meaning}`,
  }));
}
