// Asks again and again, one request at a time, and only while somebody can see the page.

const INTERVAL_MS = 1000;
const SLOWEST_MS = 5000;

/**
 * Calls `load(signal)` every second and hands its result to `done`, or its error to `failed`; after errors it waits
 * longer. Returns {stop, now}: `now` asks at once, for example after a button was pressed.
 */
export function poll(load, done, failed) {
  const leaving = new AbortController();
  let timer = 0;
  let wait = INTERVAL_MS;
  let running = false;
  let again = false;

  async function round() {
    clearTimeout(timer);
    if (running) {
      again = true;
      return;
    }
    running = true;
    try {
      const data = await load(leaving.signal);
      if (leaving.signal.aborted) return;
      wait = INTERVAL_MS;
      done(data);
    } catch (error) {
      if (leaving.signal.aborted) return;
      wait = Math.min(wait * 1.5, SLOWEST_MS);
      failed(error);
    } finally {
      running = false;
    }
    if (again) {
      again = false;
      round();
    } else if (document.visibilityState === "visible") {
      timer = setTimeout(round, wait);
    }
  }

  function seen() {
    if (document.visibilityState === "visible") round();
    else clearTimeout(timer);
  }

  document.addEventListener("visibilitychange", seen);
  round();
  return {
    now: round,
    stop() {
      leaving.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    },
  };
}
