// One round of openapi-fetch over `docs/schema.d.ts`: a topic and a group, a message sent, taken and acked.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

declare const process: { argv: string[] };

type Code = components["schemas"]["TopicNotFoundOrGroupNotFoundProblem"]["code"];
const codes: Code[] = ["TopicNotFound", "GroupNotFound"];
// @ts-expect-error: not a code of that problem
codes.push("QueueFull");

const client = createClient<paths>({ baseUrl: process.argv[2] });
const topic = { topic: "orders" };
const group = { ...topic, group: "billing" };

function given<T>(answer: { data?: T; error?: { detail: string } }): T {
  if (answer.data === undefined) throw new Error(answer.error?.detail);
  return answer.data;
}

given(await client.PUT("/topics/{topic}", { params: { path: topic }, body: { queues: 1 } }));
const settings = await client.PUT("/topics/{topic}/groups/{group}", { params: { path: group }, body: { ordered: "key" } });

const messages = [{ body: "paid", key: "customer-42" }];
await client.POST("/topics/{topic}/messages", { params: { path: topic }, body: { messages } });

const popped = given(
  await client.POST("/topics/{topic}/groups/{group}/pop", { params: { path: group }, body: { max_messages: 1 } }),
);
const receipts = popped.messages.map((message) => message.receipt);
const acked = given(
  await client.POST("/topics/{topic}/groups/{group}/ack", { params: { path: group }, body: { receipts } }),
);

const missing = await client.GET("/topics/{topic}", { params: { path: { topic: "invoices" } } });
console.log(
  JSON.stringify({
    ordered: given(settings).ordered,
    taken: popped.messages.map((message) => [message.body, message.key]),
    acked: acked.acked,
    missing: missing.error?.code,
  }),
);
