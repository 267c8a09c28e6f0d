// Requests to the server, with readable errors, and jobs, followed until they end.

export class ApiError extends Error {
  constructor(message, status, retryAfter) {
    super(message);
    this.name = "ApiError";
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

const sleep = (ms, signal) => new Promise((resolve, reject) => {
  if (signal?.aborted) {
    reject(signal.reason);
    return;
  }
  const timer = setTimeout(resolve, ms);
  signal?.addEventListener("abort", () => { clearTimeout(timer); reject(signal.reason); }, { once: true });
});

export const GONE = "The server does not answer.";
let watching = false;

/** Shows that the server does not answer, and asks again until it does. */
export async function gone() {
  if (watching) return;
  watching = true;
  const notice = document.querySelector("#gone");
  notice.textContent = `${GONE} Start it again with “scorefield serve”; this page reconnects by itself.`;
  notice.hidden = false;
  for (;;) {
    await sleep(2000);
    if (await fetch("/api/models").then((answer) => answer.ok, () => false)) break;
  }
  notice.hidden = true;
  watching = false;
  document.dispatchEvent(new Event("server-back"));
}

async function request(path, options) {
  let answer;
  try {
    answer = await fetch(path, options);
  } catch (error) {
    if (options?.signal?.aborted) throw error;
    gone();
    throw new ApiError(GONE, 0);
  }
  if (answer.ok) return answer;
  let words;
  try {
    words = (await answer.json()).error;
  } catch { /* not JSON */ }
  if (answer.status === 401) words = "This server needs a token: open the address that it printed in the terminal, with ?token=… at the end.";
  throw new ApiError(words ?? `The server answered ${answer.status} ${answer.statusText}.`, answer.status, Number(answer.headers.get("Retry-After")));
}

export const get = async (path) => (await request(path)).json();
export const blobOf = async (path, options) => (await request(path, options)).blob();
export const post = async (path, body, signal) => {
  const form = body instanceof FormData;
  const headers = form ? {} : { "Content-Type": "application/json" };
  return request(path, { method: "POST", headers, body: form ? body : JSON.stringify(body), signal });
};

const LONGEST_WAIT = 5; // seconds between two tries while the queue is full
const ENDS = ["done", "cancelled", "failed"];

/**
 * Starts a job and follows it to its end; returns its last status.
 *
 * If the queue is full, it tries again after the time that the server names, or sooner, and calls `onWait(seconds)`
 * every second. Aborting the signal cancels the job. `again` is the name of an earlier job, which is followed instead.
 * `onJob` gets the job's name.
 */
export async function runJob(path, body, { onStatus, onFrame, onWait, onJob, signal, again }) {
  let job = again;
  while (!job) {
    try {
      // the request itself is not aborted: a job can be cancelled only when its name is known
      job = (await (await post(path, body)).json()).job;
    } catch (error) {
      if (error.status !== 429 && error.status !== 503) throw error;
      for (let left = Math.min(LONGEST_WAIT, Math.ceil(error.retryAfter || 5)); left > 0; left--) {
        onWait?.(left, error.message);
        await sleep(1000, signal);
      }
    }
  }
  onJob?.(job);
  const lost = new AbortController(); // aborted if even cancelling fails
  const cancel = () => request(`/api/jobs/${job}`, { method: "DELETE" }).catch((error) => lost.abort(error));
  if (signal.aborted) cancel();
  signal.addEventListener("abort", cancel, { once: true });
  try {
    return await follow(job, onStatus, onFrame, lost.signal);
  } finally {
    signal.removeEventListener("abort", cancel);
  }
}

/** The job, if the server still has it, and it has not failed or been cancelled; otherwise null. */
export async function stillThere(job) {
  if (!job) return null;
  try {
    return ["queued", "running", "done"].includes((await get(`/api/jobs/${job}`)).state) ? job : null;
  } catch {
    return null;
  }
}

/** The seconds that a job with these settings takes on the server's machine; 0 if it is refused, null if it is not known. */
export async function estimate(asked) {
  try {
    return (await (await post("/api/estimate", asked)).json()).seconds ?? null;
  } catch (error) {
    return error.status >= 400 && error.status < 500 ? 0 : null;
  }
}

/** Follows a job's events until it ends. A broken connection is opened again; frames that come twice are ignored. */
function follow(job, onStatus, onFrame, lost) {
  return new Promise((resolve, reject) => {
    let stream, seen = 0, broken = 0, closed = false;
    lost.addEventListener("abort", () => { close(); reject(lost.reason); });
    const leave = () => stream.close();
    const back = (event) => { if (event.persisted) connect(); }; // the browser shows a page from its cache again
    const close = () => {
      closed = true;
      stream.close();
      removeEventListener("pagehide", leave);
      removeEventListener("pageshow", back);
    };
    const connect = () => {
      if (closed) return;
      stream = new EventSource(`/api/jobs/${job}/events`);
      stream.addEventListener("frame", (event) => {
        const frame = JSON.parse(event.data);
        if (frame.frame < seen) return;
        seen = frame.frame + 1;
        onFrame?.(frame, job);
      });
      stream.addEventListener("status", (event) => {
        const status = JSON.parse(event.data);
        broken = 0;
        onStatus?.(status);
        if (ENDS.includes(status.state)) {
          close();
          resolve(status);
        }
      });
      stream.onerror = async () => {
        stream.close();
        if (++broken > 5) {
          close();
          gone();
          reject(new ApiError("The connection to the server was lost before the job was done.", 0));
          return;
        }
        try {
          const status = await get(`/api/jobs/${job}`);
          if (ENDS.includes(status.state) && status.frames <= seen) {
            close();
            onStatus?.(status);
            resolve(status);
            return;
          }
        } catch (error) {
          if (error.status) { // it answers, but has no such job
            close();
            reject(error);
            return;
          }
        }
        if (!closed) setTimeout(connect, 400);
      };
    };
    addEventListener("pagehide", leave);
    addEventListener("pageshow", back);
    connect();
  });
}
