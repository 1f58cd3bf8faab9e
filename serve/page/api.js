// What the page asks the server: all of it is the public API, with the key that was typed, if any.

export const key = {
  get: () => sessionStorage.getItem("terrace-key") || "",
  set: (text) => sessionStorage.setItem("terrace-key", text),
};

function headers() {
  const h = {"Content-Type": "application/json"};
  if (key.get()) h.Authorization = "Bearer " + key.get();
  return h;
}

// message is the server's own line of an answer that is an error.
async function message(answer) {
  try {
    return (await answer.json()).error.message;
  } catch {
    return answer.status === 401 ? "an API key is needed (Settings)" : "the server answered " + answer.status;
  }
}

export async function get(path) {
  const answer = await fetch(path, {headers: headers()});
  if (!answer.ok) throw Object.assign(new Error(await message(answer)), {status: answer.status});
  return answer.json();
}

// events yields the data of server-sent events; body makes it a POST.
export async function* events(path, body, signal) {
  const answer = await fetch(path, {method: body ? "POST" : "GET", headers: headers(), body: body && JSON.stringify(body), signal});
  if (!answer.ok) throw Object.assign(new Error(await message(answer)), {status: answer.status});
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    rest += value;
    for (let at; (at = rest.indexOf("\n\n")) >= 0; rest = rest.slice(at + 2)) {
      const data = rest.slice(0, at).split("\n").filter((l) => l.startsWith("data:")).map((l) => l.slice(5).trimStart()).join("\n");
      if (data === "[DONE]") return;
      if (data) yield JSON.parse(data);
    }
  }
}
