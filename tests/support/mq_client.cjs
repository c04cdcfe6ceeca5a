// What `mq_clients.by_python` does, with `@aliyunmq/mq-http-sdk`; prints what it got.
// Its arguments: the endpoint, the id and the secret of a key, the topic.
const dns = require("dns");
const { MQClient, MessageProperties } = require("@aliyunmq/mq-http-sdk");

const [endpoint, id, secret, topic] = process.argv.slice(2);
const DELAY_MS = 300;

// The host of a function URL exists in AWS; its emulator is on this machine.
const { lookup } = dns;
dns.lookup = (host, options, found) => lookup("127.0.0.1", options, found);

function propertiesOf(set) {
  const properties = new MessageProperties();
  set(properties);
  return properties;
}

// The SDK does not throw when single handles are refused.
async function succeeded(answer) {
  const { code, body } = await answer;
  if (code !== 204) throw new Error(`${code} ${JSON.stringify(body)}`);
}

async function main() {
  const mq = new MQClient(endpoint, id, secret);
  const producer = mq.getProducer("MQ_INST_1", topic);
  const halves = mq.getTransProducer("MQ_INST_1", topic, "GID_all");
  const consumer = mq.getConsumer("MQ_INST_1", topic, "GID_all", "paid||due");
  const inOrder = mq.getConsumer("MQ_INST_1", topic, "GID_order");
  const next = async () => {
    const { body: [message] } = await consumer.consumeMessage(16, 5);
    return succeeded(consumer.ackMessage([message.ReceiptHandle])).then(() => message);
  };

  const ordered = [];
  for (const body of ["a", "b"]) {
    await producer.publishMessage(body, "", propertiesOf((each) => each.shardingKey("s")));
  }
  for (let count = 0; count < 2; count++) {
    const { body: [message] } = await inOrder.consumeMessageOrderly(1, 5);
    await succeeded(inOrder.ackMessage([message.ReceiptHandle]));
    ordered.push([message.MessageBody, message.ShardingKey]);
  }

  const described = propertiesOf((each) => { each.messageKey("k"); each.putProperty("a", "b"); });
  const sent = await producer.publishMessage("grüß <&>", "paid", described);
  const taken = await next();

  const dueMs = Date.now() + DELAY_MS;
  await producer.publishMessage("later", "due", propertiesOf((each) => each.startDeliverTime(dueMs)));
  const late = await next();
  const isInTime = late.StartDeliverTime === dueMs && dueMs <= Date.now();

  const immunity = propertiesOf((each) => each.transCheckImmunityTime(10));
  const half = await halves.publishMessage("half", "paid", immunity);
  const hidden = await consumer.consumeMessage(16).catch((error) => error.Code);
  await succeeded(halves.commit(half.body.ReceiptHandle));
  const whole = await next();

  const other = new MQClient(endpoint, id, "x".repeat(40)).getProducer("MQ_INST_1", topic);
  const refused = await other.publishMessage("c").catch((error) => error.Code);
  console.log(JSON.stringify({
    ordered,
    isThatSent: taken.MessageId === sent.body.MessageId,
    taken: [taken.MessageBody, taken.MessageTag, taken.MessageKey, taken.Properties.a],
    late: [late.MessageBody, isInTime],
    hidden,
    whole: whole.MessageBody,
    refused,
  }));
}

main().then(() => process.exit(0));
