// The last hour, of the director or of one service: columns of equal length that grow at the end.
// The director keeps them; this asks for what came since the last point that it has.

import { Feed } from "./feed.js";

const KEPT_S = 3600;

/** The columns of an answer of `/v1/rates`, by plain names. */
function columnsOf(answer) {
  const columns = {
    in_packets: answer.inbound.packets_per_s,
    out_packets: answer.outbound.packets_per_s,
    in_bytes: answer.inbound.bytes_per_s,
    out_bytes: answer.outbound.bytes_per_s,
    opened: answer.new_sessions_per_s,
    sessions: answer.sessions,
  };
  if (answer.received_packets_per_s) columns.received = answer.received_packets_per_s;
  if (answer.drops_per_s) columns.drops = answer.drops_per_s;
  for (const { worker, busy_share: busy } of answer.workers || []) columns[`busy_${worker}`] = busy;
  return columns;
}

/** The hour of the director, or of the service that `name` names. */
export class Hour {
  constructor(link, name, everyMs = 2000) {
    this.name = name;
    this.at = [];
    this.columns = {};
    this.stepS = 2;
    this.feed = new Feed(link, () => this.path(), everyMs);
    this.taken = null;
  }

  path() {
    const query = new URLSearchParams();
    if (this.name !== undefined) query.set("service", this.name);
    if (this.at.length > 0) query.set("since", String(this.at.at(-1)));
    const text = query.toString();
    return text ? `/v1/rates?${text}` : "/v1/rates";
  }

  /** Calls `watcher` with this hour when there are new points, or it could not be had. */
  watch(watcher) {
    return this.feed.watch((feed) => {
      if (feed.now && feed.now !== this.taken) this.add(feed.now.data);
      this.taken = feed.now;
      watcher(this);
    });
  }

  add(answer) {
    const columns = columnsOf(answer);
    const last = this.at.at(-1) ?? -Infinity;
    const first = answer.at_unix_s.findIndex((at) => at > last);
    this.stepS = answer.step_s;
    if (first >= 0) {
      const before = this.at.length;
      this.at.push(...answer.at_unix_s.slice(first));
      for (const [name, values] of Object.entries(columns)) {
        // A column that was not there before, such as a worker's, has nothing to say of that time.
        const column = (this.columns[name] ??= new Array(before).fill(null));
        column.push(...values.slice(first));
      }
    }
    this.forget(answer.now_unix_s - KEPT_S);
  }

  forget(before) {
    const old = this.at.findIndex((at) => at >= before);
    if (old <= 0) return;
    this.at.splice(0, old);
    for (const column of Object.values(this.columns)) column.splice(0, old);
  }

  /** The newest value of a column, the mean of those of the last few seconds. */
  newest(name, seconds = 4) {
    const column = this.columns[name];
    if (!column || this.at.length === 0) return null;
    const from = this.at.at(-1) - seconds;
    const recent = column.filter((value, at) => this.at[at] > from && Number.isFinite(value));
    return recent.length > 0 ? recent.reduce((a, b) => a + b, 0) / recent.length : null;
  }
}
