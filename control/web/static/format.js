// Numbers, times and endpoints as people read them. Missing values are a dash, never a zero.

const PREFIXES = ["", "k", "M", "G", "T", "P"];
const NONE = "–";
const NARROW = "\u202f";

/** Three significant digits with an SI prefix: `si(1234567, "bit/s")` is `1.23 Mbit/s`. */
export function si(value, unit = "") {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  let [scaled, step] = [Math.abs(value), 0];
  while (scaled >= 999.5 && step < PREFIXES.length - 1) [scaled, step] = [scaled / 1000, step + 1];
  const whole = step === 0 && Number.isInteger(value);
  const digits = whole || scaled >= 99.95 ? 0 : scaled >= 9.995 ? 1 : 2;
  const number = (value < 0 ? "-" : "") + scaled.toFixed(scaled === 0 ? 0 : digits);
  const end = PREFIXES[step] + unit;
  return end ? number + NARROW + end : number;
}

/** A count in full: `1,234,567`. */
export const count = (value) =>
  Number.isFinite(value) ? Math.round(value).toLocaleString("en-GB") : NONE;

/** A share of one: `12.5 %`. */
export function percent(share) {
  if (!Number.isFinite(share)) return NONE;
  if (share > 0 && share < 0.0005) return `< 0.1${NARROW}%`;
  const digits = share > 0 && share < 0.0995 ? 1 : 0;
  return `${(share * 100).toFixed(digits)}${NARROW}%`;
}

/** Packets a second. */
export const pps = (value) => si(value, "pps");

/** Bits a second, of bytes a second. */
export const bits = (bytes) => si(Number.isFinite(bytes) ? bytes * 8 : null, "bit/s");

/** Something a second. */
export const perSecond = (value) => si(value, "/s");

/** Bytes of memory, by powers of two. */
export function memory(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let [scaled, step] = [bytes, 0];
  while (scaled >= 1024 && step < units.length - 1) [scaled, step] = [scaled / 1024, step + 1];
  return `${scaled.toFixed(scaled < 10 && step > 0 ? 1 : 0)}${NARROW}${units[step]}`;
}

/** A span of time by its two largest units: `3 d 4 h`, `42 s`. */
export function span(seconds) {
  if (!Number.isFinite(seconds)) return NONE;
  const whole = Math.max(0, Math.floor(seconds));
  const parts = [
    [Math.floor(whole / 86400), "d"],
    [Math.floor(whole / 3600) % 24, "h"],
    [Math.floor(whole / 60) % 60, "min"],
    [whole % 60, "s"],
  ];
  const first = parts.findIndex(([number]) => number > 0);
  if (first < 0) return `0${NARROW}s`;
  const told = parts.slice(first, first + 2).filter(([number]) => number > 0);
  return told.map(([number, unit]) => number + NARROW + unit).join(" ");
}

const two = (number) => String(number).padStart(2, "0");

/** The time of day, by the browser's clock and zone: `14:03:05`. */
export function clock(unixMs, seconds = true) {
  const at = new Date(unixMs);
  const text = `${two(at.getHours())}:${two(at.getMinutes())}`;
  return seconds ? `${text}:${two(at.getSeconds())}` : text;
}

/** Day and time: `2026-03-01 14:03:05`. */
export function moment(unixMs) {
  const at = new Date(unixMs);
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${clock(unixMs)}`;
}

/** An address with a port or ports, IPv6 in brackets: `[2001:db8::1]:80`. */
export function endpoint(address, port) {
  const plain = port === 0 || port === undefined || port === null || port === "";
  if (plain) return address;
  return address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
}

/** What a number with a unit says without zeros at its end: `15.0 Gbit/s` is `15 Gbit/s`. */
export function brief(text) {
  const shorter = text.replace(/(\.\d*?)0+(?!\d)/, "$1").replace(/\.(?!\d)/, "");
  return /^0(?!\.)/.test(shorter) && !shorter.includes("%") ? "0" : shorter;
}
