// Sends a create to each TOKEN@URL given, and prints the statuses that they end with.
import OpenAI from "openai";

const ends = process.argv.slice(2).map(async (target) => {
  const [apiKey, baseURL] = target.split("@");
  const client = new OpenAI({ apiKey, baseURL, maxRetries: 2 });
  try {
    await client.post("tasks", { body: { title: "x" }, headers: { "Idempotency-Key": "a" } });
    return 200;
  } catch (err) {
    return err.status ?? String(err);
  }
});
console.log(JSON.stringify(await Promise.all(ends)));
