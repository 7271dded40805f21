'use strict';

const { Message, Producer } = require('ali-ons');
const { keyOf, options } = require('./steps');

const MANY = 200;

class Sender {
  constructor(address, topic) {
    this.topic = topic;
    this.producer = new Producer(options(address, 'producing', { producerGroup: 'node-producers' }));
    this.producer.on('error', error => console.error(error));
  }

  message(body, tag) {
    const made = new Message(this.topic, tag, body);
    made.keys = [String(body).slice(0, 20)];
    return made;
  }

  /** Sends a message, and prints what the answer says. */
  async say(what, message) {
    const result = await this.producer.send(message);
    console.log(what, result.sendStatus, 'id', result.msgId.length, 'offset', typeof result.queueOffset);
    return result;
  }

  async failing(what, message) {
    try {
      console.log(what, (await this.producer.send(message)).sendStatus);
    } catch (error) {
      console.log(what, error.name, error.code);
    }
  }
}

async function produce(address, topic) {
  const sender = new Sender(address, topic);
  await sender.producer.ready();
  await plain(sender);
  await keyed(sender);
  await atOnce(sender);
  await refused(sender);
  const delayed = sender.message('delayed', 'TagH');
  delayed.delayTimeLevel = 1;
  await sender.say('delayed', delayed);
  const timed = sender.message('timed', 'TagH');
  timed.properties.TIMER_DELAY_SEC = '1';
  await sender.say('timed', timed);
  await sender.producer.close();
}

async function plain(sender) {
  await sender.say('first', sender.message('first', 'TagA'));
  const queues = new Set();
  for (let number = 0; number < 8; number++) {
    const { messageQueue } = await sender.say('in turn', sender.message(`turn${number}`, 'TagA'));
    queues.add(Number(messageQueue.queueId));
  }
  console.log('queues', [...queues].sort());
  const more = sender.message('more', 'TagE');
  more.keys = ['k1', 'k2'];
  more.flag = 7;
  more.properties.mine = 'a value with \u00fcmlauts';
  await sender.say('more', more);
  const large = new Message(sender.topic, 'TagF', Buffer.alloc(10_000));
  await sender.say('compressed', large);
  await sender.say('without a tag', new Message(sender.topic, 'bare'));
}

/** What has one sharding key stands in one queue, in the order in which it was sent. */
async function keyed(sender) {
  const last = new Map();
  for (let number = 0; number < 12; number++) {
    const message = sender.message(`keyed${number}`, 'TagK');
    message.shardingKey = keyOf(1 + (number % 3));
    const { messageQueue, queueOffset } = await sender.say('keyed', message);
    const queue = Number(messageQueue.queueId);
    console.log('queue', queue, 'behind', last.has(queue) ? queueOffset - last.get(queue) : 'none');
    last.set(queue, queueOffset);
  }
}

async function atOnce(sender) {
  const messages = Array.from({ length: MANY }, (_, number) => sender.message(`many${number}`, 'TagG'));
  const results = await Promise.all(messages.map(message => sender.producer.send(message)));
  console.log('at once', [...new Set(results.map(result => result.sendStatus))]);
}

async function refused(sender) {
  await sender.failing('an illegal topic', new Message('no/topic', 'TagA', 'x'));
  const long = sender.message('long', 'TagA');
  long.properties.long = 'x'.repeat(32_700);
  await sender.failing('too long', long);
}

module.exports = { Sender, produce };
