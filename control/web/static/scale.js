// Where the marks of a plot's axes go: round numbers, round times.

const TIME_STEPS = [5, 10, 30, 60, 120, 300, 600, 900, 1800];

/** Up to five round values from 0 to just above `top`. */
export function ticks(top) {
  if (!(top > 0)) return [0, 1];
  const rough = top / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((it) => it >= rough);
  const marks = Math.ceil(top / step - 1e-9);
  return Array.from({ length: marks + 1 }, (_, at) => at * step);
}

/** Round times between two Unix times in seconds, at most `most`. */
export function times(from, to, most) {
  const step = TIME_STEPS.find((it) => (to - from) / it <= most) || 3600;
  // Round by the clock that people see, which some time zones set apart by half hours.
  const offset = new Date(from * 1000).getTimezoneOffset() * 60;
  const marks = [];
  for (let at = Math.ceil((from - offset) / step) * step + offset; at <= to; at += step) {
    marks.push(at);
  }
  return { marks, step };
}

/** Points `[at, value]` thinned to at most `most` by means; `null` where there is a hole. */
export function thin(at, values, [first, last], most, stepS) {
  const bucket = Math.max(1, Math.ceil((last - first) / most));
  const points = [];
  let before = null;
  for (let start = first; start < last; start += bucket) {
    const end = Math.min(start + bucket, last);
    let [sum, known] = [0, 0];
    for (let index = start; index < end; index += 1) {
      if (!Number.isFinite(values[index])) continue;
      [sum, known] = [sum + values[index], known + 1];
    }
    const hole = before !== null && at[start] - before > 3.5 * stepS;
    if (hole || known === 0) points.push(null);
    if (known > 0) points.push([at[end - 1], sum / known]);
    before = at[end - 1];
  }
  return points;
}
