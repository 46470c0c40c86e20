// Numbers as people read them. What is not known (null, undefined, NaN) is a dash.

export const DASH = "–";

const known = (value) => typeof value === "number" && Number.isFinite(value);

function scaled(value, base, units) {
  let index = 0;
  let size = Math.abs(value);
  while (size >= base * 0.9995 && index < units.length - 1) {
    size /= base;
    index += 1;
  }
  const digits = size >= 99.95 || index === 0 ? 0 : 1;
  const text = (value < 0 ? -size : size).toFixed(digits); // also a last 0: numbers that move keep their width
  return units[index] ? `${text} ${units[index]}` : text;
}

/** 980, 12.3 k, 1.2 M */
export function count(value) {
  if (!known(value)) return DASH;
  if (Math.abs(value) < 10 && !Number.isInteger(value)) return value.toFixed(1).replace(/\.0$/, "");
  return scaled(value, 1000, ["", "k", "M", "G", "T"]);
}

/** 12.3 k/s */
export function rate(value) {
  return known(value) ? `${count(value)}/s` : DASH;
}

/** 512 B, 3.4 MB */
export function bytes(value) {
  return known(value) ? scaled(value, 1000, ["B", "kB", "MB", "GB", "TB"]) : DASH;
}

/** +3.4 kB/s, -120 B/s */
export function bytesRate(value) {
  if (!known(value)) return DASH;
  if (Math.abs(value) < 0.5) return "0 B/s";
  return `${value > 0 ? "+" : ""}${bytes(value)}/s`;
}

/** 340 ms, 2.1 s, 2 m 5 s, 3 h 12 m, 4 d 2 h */
export function duration(ms) {
  if (!known(ms) || ms < 0) return DASH;
  if (ms < 1000) return `${ms < 10 && !Number.isInteger(ms) ? ms.toFixed(1) : Math.round(ms)} ms`;
  if (ms < 59950) return `${(ms / 1000).toFixed(1)} s`;
  return long(ms);
}

/** As `duration`, in whole seconds: for clocks that tick. */
export function clock(ms) {
  if (!known(ms) || ms < 0) return DASH;
  return ms < 60000 ? `${Math.floor(ms / 1000)} s` : long(ms);
}

function long(ms) {
  const seconds = Math.floor(ms / 1000);
  const parts = [
    [Math.floor(seconds / 86400), "d"],
    [Math.floor(seconds / 3600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "m"],
    [seconds % 60, "s"],
  ];
  const first = parts.findIndex(([value]) => value > 0);
  return parts
    .slice(first, first + 2)
    .map(([value, unit]) => `${value} ${unit}`)
    .join(" ");
}

/** 0.423 -> 42 % */
export function percent(ratio) {
  return known(ratio) ? `${Math.round(ratio * 100)} %` : DASH;
}

/** 6.2× */
export function times(value) {
  return known(value) ? `${value >= 10 ? Math.round(value) : value.toFixed(1)}×` : DASH;
}

/** 1,234,567.25, with the separators of the reader's language: where every digit counts */
export function exact(value) {
  if (!known(value)) return DASH;
  return value.toLocaleString(undefined, { maximumFractionDigits: 3 });
}

const TIME = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const MINUTE = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const YEAR = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });

const isTime = (ms) => known(ms) && Math.abs(ms) < 8.64e15;

/** 14:03:22, with the day unless it is today */
export function time(ms) {
  if (!isTime(ms) || ms < 0) return DASH;
  const date = new Date(ms);
  const today = new Date();
  if (date.toDateString() === today.toDateString()) return TIME.format(date);
  const day = date.getFullYear() === today.getFullYear() ? DAY : YEAR;
  return `${day.format(date)}, ${TIME.format(date)}`;
}

/** 14:03:22 */
export function timeOfDay(ms) {
  return isTime(ms) ? TIME.format(new Date(ms)) : DASH;
}

/** 14:03 */
export function minuteOfDay(ms) {
  return isTime(ms) ? MINUTE.format(new Date(ms)) : DASH;
}

/** Event time. Its two ends have names: before the first watermark, and after the end of bounded input. */
export function watermark(ms) {
  if (!known(ms)) return "no watermark";
  if (ms >= 8.64e15) return "end of input";
  if (ms <= -8.64e15) return "no watermark";
  return new Date(ms)
    .toISOString()
    .replace("T", " ")
    .replace(/(\.000)?Z$/, "");
}

/** "1 job", "2 jobs" */
export function plural(number, word) {
  return `${exact(number)} ${word}${number === 1 ? "" : "s"}`;
}

/** The first eight digits of an id are enough to tell jobs apart. */
export function shortId(id) {
  return String(id).slice(0, 8);
}
