"""Sends a message and takes it.

    decant serve               # in another shell
    python first_message.py

It settles the message itself. A consumer does that for you: see worker.py.
"""

from decant import Decant

with Decant() as mq:  # at DECANT_URL, or http://127.0.0.1:8000
    mq.api.put_topic("greetings")
    mq.api.put_group("greetings", "readers")

    sent = mq.send("greetings", "Hello")
    print(f"sent {sent.id} to queue {sent.queue}")

    for message in mq.api.pop("greetings", "readers")["messages"]:
        print(f"took {message['body']!r}")
        mq.api.ack("greetings", "readers", receipts=[message["receipt"]])
