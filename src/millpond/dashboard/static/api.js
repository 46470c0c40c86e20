// The REST service of the dispatcher. Paths are relative to the page, so it works behind a proxy's prefix.

const TOKEN = "millpond.token";
const IN_LINK = "#token=";
const TIMEOUT_MS = 10000;

/** The dispatcher gave no answer at all, or one that says "not now" (no leader, a proxy without it). */
export class Unreachable extends Error {}

/** The dispatcher refused: `status` and its own words. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

let askForToken = async () => null;
let asking = null;

/** `ask(wrong)` shows the form: a promise of a token, or of null when the user gives up. */
export function whenUnauthorized(ask) {
  askForToken = ask;
}

export function token() {
  return sessionStorage.getItem(TOKEN);
}

/**
 * The link that `millpond start-cluster` prints has the token behind #, a part that browsers send to nobody. It is
 * kept for this tab and taken out of the address. Returns whether there was one.
 */
export function takeToken() {
  if (!location.hash.startsWith(IN_LINK)) return false;
  sessionStorage.setItem(TOKEN, decodeURIComponent(location.hash.slice(IN_LINK.length)));
  history.replaceState(null, "", "#/");
  return true;
}

export function get(path, signal) {
  return request("GET", path, { signal });
}

export function post(path, body) {
  return request("POST", path, { body });
}

export function patch(path) {
  return request("PATCH", path, {});
}

export function remove(path) {
  return request("DELETE", path, {});
}

/** One text, for what is not JSON (Prometheus). */
export async function text(path) {
  return (await answerOf("GET", path, {})).text();
}

async function request(method, path, options) {
  const answer = await answerOf(method, path, options);
  const content = await answer.text();
  try {
    return content ? JSON.parse(content) : {};
  } catch {
    throw new Refused(answer.status, `${path} did not answer with JSON: is this a Millpond dispatcher?`);
  }
}

async function answerOf(method, path, { body, signal }) {
  for (;;) {
    const used = token();
    const answer = await fetchOnce(method, path, body, signal, used);
    if (answer.status !== 401) {
      if (answer.ok) return answer;
      throw await refusal(answer);
    }
    // another request may have asked meanwhile: then there is a token to try already
    if (token() === used && !(await newToken(used !== null))) {
      throw new Refused(401, "The dispatcher requires a token.");
    }
    signal?.throwIfAborted();
  }
}

async function fetchOnce(method, path, body, signal, bearer) {
  const headers = { Accept: "application/json" };
  if (bearer) headers.Authorization = `Bearer ${bearer}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const timeout = AbortSignal.timeout(TIMEOUT_MS);
  try {
    return await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
      cache: "no-store",
    });
  } catch (error) {
    if (signal?.aborted) throw error; // the user went elsewhere
    throw new Unreachable("The dispatcher does not answer.");
  }
}

/** All requests that wait for a token share one form. */
async function newToken(wrong) {
  asking ??= askForToken(wrong).finally(() => {
    asking = null;
  });
  const given = await asking;
  if (given) sessionStorage.setItem(TOKEN, given);
  return Boolean(given);
}

async function refusal(answer) {
  const message = messageOf(await answer.text().catch(() => "")) || `${answer.status} ${answer.statusText}`;
  if ([502, 503, 504].includes(answer.status)) return new Unreachable(message);
  return new Refused(answer.status, message);
}

/** Flink's `{"errors": [...]}`, or what else the service answers when something is wrong. */
function messageOf(content) {
  try {
    const { errors, detail } = JSON.parse(content);
    if (Array.isArray(errors)) return errors.map(String).join("\n");
    return detail ? (typeof detail === "string" ? detail : JSON.stringify(detail)) : "";
  } catch {
    return content.startsWith("<") ? "" : content.slice(0, 500);
  }
}

/** Sends a file as multipart field `jarfile`; `progress(ratio)` is told how much has gone. */
export function upload(path, file, progress) {
  return new Promise((resolve, reject) => {
    // not fetch: it does not tell how much of a request has been sent
    const sending = new XMLHttpRequest();
    const form = new FormData();
    form.append("jarfile", file, file.name);
    sending.open("POST", path);
    if (token()) sending.setRequestHeader("Authorization", `Bearer ${token()}`);
    sending.upload.onprogress = (event) => progress(event.lengthComputable ? event.loaded / event.total : null);
    sending.onload = () => {
      if (sending.status >= 200 && sending.status < 300) resolve();
      else
        reject(
          new Refused(sending.status, messageOf(sending.responseText) || `${sending.status} ${sending.statusText}`),
        );
    };
    sending.onerror = () => reject(new Unreachable("The dispatcher broke the upload off."));
    sending.send(form);
  });
}

/** A path with its variable parts quoted: path`jobs/${jid}/report` */
export function path(parts, ...values) {
  return parts.reduce((whole, part, index) => whole + encodeURIComponent(values[index - 1]) + part);
}
