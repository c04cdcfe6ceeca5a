// Publishes, consumes and acks with `@aliyunmq/mq-http-sdk`, and prints what it got.
// Its arguments: the endpoint, the id and the secret of a key, another secret.
const { MQClient, MessageProperties } = require("@aliyunmq/mq-http-sdk");

const [endpoint, id, secret, otherSecret] = process.argv.slice(2);

async function main() {
  const mq = new MQClient(endpoint, id, secret);
  const properties = new MessageProperties();
  properties.messageKey("k");
  const sent = await mq.getProducer("MQ_INST_1", "over-node").publishMessage("grüß <&>", "paid", properties);
  const consumer = mq.getConsumer("MQ_INST_1", "over-node", "billing", "paid||due");
  const { body: [taken] } = await consumer.consumeMessage(16, 3);
  const acked = await consumer.ackMessage([taken.ReceiptHandle]);
  const nothing = await consumer.consumeMessage(16).catch((error) => error.Code);
  const other = new MQClient(endpoint, id, otherSecret).getProducer("", "over-node");
  const refused = await other.publishMessage("a").catch((error) => error.Code);
  console.log(JSON.stringify({
    isThatSent: taken.MessageId === sent.body.MessageId,
    taken: [taken.MessageBody, taken.MessageTag, taken.MessageKey],
    acked: acked.code,
    nothing,
    refused,
  }));
}

main().then(() => process.exit(0));
