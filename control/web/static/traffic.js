// What the counters of services and real servers say about now: rates, and each one's share. Source
// NAT's rules are services as well here; only what they are called differs.

import { rateOf } from "./feed.js";
import { endpoint } from "./format.js";

/** The name of a real server within its service. */
export const realKey = (real) => `${endpoint(real.address, real.port)} ${real.mode}`;

/** Services and rules of source NAT with rates, from the last two answers of a feed. */
export function measure(feed) {
  const before = new Map();
  for (const it of all(feed.before?.data)) before.set(it.name, it);
  const seconds = feed.before ? feed.seconds : 0;
  const with_ = (it) => measured(it, before.get(it.name), seconds);
  const { services, snat = [] } = feed.now.data;
  return { services: services.map(with_), snat: snat.map(with_) };
}

const all = (data) => (data ? [...data.services, ...(data.snat || [])] : []);

function measured(it, old, seconds) {
  const reals = new Map((old?.reals || []).map((real) => [realKey(real), real]));
  const rated = (it.reals || []).map((real) => {
    const rates = ratesOf(real, reals.get(realKey(real)), seconds);
    return { ...real, rates };
  });
  return { ...it, rates: ratesOf(it, old, seconds), reals: rated };
}

function ratesOf(now, old, seconds) {
  const rate = (pick) => rateOf(pick(now), old && pick(old), seconds);
  const rates = {
    opened: rate((it) => it.sessions_total),
    inPackets: rate((it) => it.packets.inbound),
    outPackets: rate((it) => it.packets.outbound),
    inBytes: rate((it) => it.bytes.inbound),
    outBytes: rate((it) => it.bytes.outbound),
  };
  const sum = (a, b) => (a === null || b === null ? null : a + b);
  rates.packets = sum(rates.inPackets, rates.outPackets);
  rates.bytes = sum(rates.inBytes, rates.outBytes);
  return rates;
}

/** How many real servers are in each state. */
export function standing(reals) {
  const counts = { up: 0, draining: 0, down: 0, standby: 0, full: 0 };
  for (const real of reals) counts[real.state] = (counts[real.state] ?? 0) + 1;
  return counts;
}

/** How a service does as a whole, worst first: kind and word of a badge. */
export function condition(reals) {
  const counts = standing(reals);
  const serving = counts.up;
  if (reals.length === 0) return ["calm", "no real servers"];
  if (serving === 0) return ["bad", "none up"];
  if (counts.down > 0) return ["warn", `${counts.down} down`];
  if (counts.full > 0) return ["warn", `${counts.full} full`];
  if (counts.draining > 0) return ["warn", `${counts.draining} draining`];
  return ["good", "up"];
}
