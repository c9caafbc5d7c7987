// Resources that are asked for again and again while somebody looks at them. A feed keeps the last
// two answers, since most of what the director tells are counters and their difference is the rate.
// It asks less often when answers take long, and not at all in a tab that nobody sees.

import { get, Problem } from "./api.js";

const RETRY_MS = [1000, 2000, 3000, 5000];
// The longest pause after an answer, however long it took: one that had to wait says little of the
// next.
const LONGEST_MS = 15_000;

/** Whether the director answers; `changed` is called when that changes, or the answer is 401. */
export class Link {
  constructor(changed) {
    this.changed = changed;
    this.reached = true;
    this.lastMs = null;
  }

  found() {
    this.lastMs = Date.now();
    if (this.reached) return;
    this.reached = true;
    this.changed(this);
  }

  lost(problem) {
    if (problem.status === 401) this.changed(this, problem);
    if (!problem.unreachable || !this.reached) return;
    this.reached = false;
    this.changed(this, problem);
  }
}

/** One resource. */
export class Feed {
  constructor(link, path, everyMs) {
    Object.assign(this, { link, path, everyMs });
    this.now = null;
    this.before = null;
    this.problem = null;
    this.watchers = new Set();
    this.timer = null;
    this.failures = 0;
    this.asking = false;
  }

  /** Calls `watcher` with this feed at each answer or failure, and now if there is one. */
  watch(watcher) {
    this.watchers.add(watcher);
    if (this.now || this.problem) watcher(this);
    if (this.watchers.size === 1) this.ask();
    return () => this.leave(watcher);
  }

  leave(watcher) {
    this.watchers.delete(watcher);
    if (this.watchers.size === 0) clearTimeout(this.timer);
  }

  /** Asks at once. */
  async ask() {
    clearTimeout(this.timer);
    if (this.asking) return;
    this.asking = true;
    const began = performance.now();
    try {
      this.take(await get(typeof this.path === "function" ? this.path() : this.path));
    } catch (problem) {
      this.fail(problem);
    } finally {
      this.asking = false;
    }
    if (this.watchers.size > 0) this.plan(performance.now() - began);
  }

  take(data) {
    const at = performance.now();
    // What was known before a long pause says nothing about now.
    const stale = this.now && at - this.now.at > 6 * this.everyMs + 5000;
    this.before = stale ? null : this.now;
    this.now = { at, data };
    this.problem = null;
    this.failures = 0;
    this.link.found();
    this.tell();
  }

  fail(problem) {
    if (!(problem instanceof Problem)) throw problem;
    this.problem = problem;
    this.failures += 1;
    this.link.lost(problem);
    this.tell();
  }

  tell() {
    for (const watcher of [...this.watchers]) watcher(this);
  }

  plan(tookMs) {
    const retry = RETRY_MS[Math.min(this.failures, RETRY_MS.length) - 1];
    const pause = Math.max(this.everyMs, Math.min(10 * tookMs, LONGEST_MS));
    const wait = this.failures > 0 ? retry : pause;
    this.timer = setTimeout(() => (document.hidden ? this.rest() : this.ask()), wait);
  }

  rest() {
    const wake = () => {
      document.removeEventListener("visibilitychange", wake);
      if (this.watchers.size > 0) this.ask();
    };
    document.addEventListener("visibilitychange", wake);
  }

  /** How fast what `pick` finds in the answer grows a second; null when that is not known. */
  rate(pick) {
    if (!this.now || !this.before) return null;
    return rateOf(pick(this.now.data), pick(this.before.data), this.seconds);
  }

  /** Seconds between the last two answers. */
  get seconds() {
    return (this.now.at - this.before.at) / 1000;
  }
}

/** The rate of a counter; null when it is missing or began anew. */
export function rateOf(now, before, seconds) {
  const known = Number.isFinite(now) && Number.isFinite(before) && seconds > 0;
  return known && now >= before ? (now - before) / seconds : null;
}
