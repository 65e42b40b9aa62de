// A service behind a Gateway: node service.mjs PORT, with GATEWAY_SECRET in hexadecimal.
import crypto from "node:crypto";
import http from "node:http";

const secret = Buffer.from(process.env.GATEWAY_SECRET, "hex");
const names = ["Request", "Organization", "Environment", "Key", "Subject", "Scopes"];

// caller returns who calls, or null unless a Gateway has signed this request.
function caller(r) {
  const fields = names.map((name) => r.headersDistinct["svc-caller-" + name.toLowerCase()] ?? [""]);
  const signatures = r.headersDistinct["svc-caller-signature"] ?? [""];
  if ([...fields, signatures].some((values) => values.length > 1)) return null;
  const [expires, sent] = signatures[0].split(".");
  const text = [expires, r.method, r.url, ...fields.map((values) => values[0])].join("\n");
  const want = crypto.createHmac("sha256", secret).update(text, "latin1").digest();
  const got = Buffer.from(sent ?? "", "hex");
  if (got.length !== want.length || !crypto.timingSafeEqual(want, got) || expires < Date.now() / 1000) return null;
  return Object.fromEntries(names.map((name, i) => [name, decodeURIComponent(fields[i][0])]));
}

http.createServer((r, w) => {
  const who = caller(r);
  w.writeHead(who ? 200 : 401, { "Content-Type": "application/json", "Svc-Request-Id": r.headers["svc-request-id"] ?? "" });
  w.end(JSON.stringify(who ?? { code: "api_key_missing" }));
}).listen(Number(process.argv[2]), "127.0.0.1");
