"""Events of other services as messages: what SQS, SNS, EventBridge, S3, Kinesis and DynamoDB Streams send to a
function."""
