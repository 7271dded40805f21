'use strict';

const { Consumer } = require('ali-ons');
const { Sender } = require('./produce');
const { QUEUES, eventually, keyOf, options, pause } = require('./steps');

const COUNT = 40;

/** Runs consumers of every kind over one topic. */
class Judge {
  constructor(address, topic) {
    this.address = address;
    this.topic = topic;
    this.sender = new Sender(address, topic);
  }

  /** Starts a consumer; errors of pulls that end with it are its own affair. */
  start(group, instanceName, expression, handler, more = {}) {
    const own = { consumerGroup: `${group}-${this.topic}`, consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET', ...more };
    const made = new Consumer(options(this.address, instanceName, own));
    made.on('error', error => console.error(error));
    made.subscribe(this.topic, expression, handler);
    return made;
  }

  async fill() {
    for (let number = 0; number < COUNT; number++) {
      const message = this.sender.message(`m${number}`, number % 2 ? 'TagB' : 'TagA');
      message.properties.number = String(number);
      await this.sender.producer.send(message);
    }
  }

  /** One message to each queue: what has no key goes to them in turn. */
  async toAll(tag, text) {
    for (let number = 0; number < QUEUES; number++) {
      await this.sender.producer.send(this.sender.message(`${text}${number}`, tag));
    }
  }

  async seen(what, expected, expression) {
    const found = new Set();
    const consumer = this.start(what.replace(' ', ''), what, expression, async message => {
      found.add(String(message.body));
    });
    const came = await eventually(() => found.size >= expected);
    await pause(300); // for what should not come, and for the offsets
    console.log(what, came, [...found].sort().join(' '));
    await consumer.close();
  }

  /** A group goes on where it has ended. */
  async again() {
    await this.seen('again', COUNT, 'TagA || TagB');
    const found = new Set();
    await this.toAll('TagB', 'new');
    const consumer = this.start('again', 'again', 'TagA || TagB', async message => {
      found.add(String(message.body));
    });
    const came = await eventually(() => found.size >= QUEUES);
    await pause(300);
    console.log('and again', came, [...found].sort().join(' '));
    await consumer.close();
  }

  async broadcasting() {
    const found = [new Set(), new Set()];
    const consumers = found.map((its, place) => this.start('broadcasting', `member${place}`, 'TagA', async message => {
      its.add(String(message.body));
    }, { isBroadcast: true }));
    console.log('broadcasting', await eventually(() => found.every(its => its.size >= COUNT / 2)));
    for (const consumer of consumers) await consumer.close();
  }

  /** Two members divide the queues; when one of them leaves, the other has them all. */
  async shared() {
    let round = 0;
    const queues = [new Set(), new Set()];
    const consumers = queues.map((its, place) => this.start('shared', `share${place}`, 'TagS', async message => {
      if (String(message.body).startsWith(`round${round}.`)) its.add(message.queueId);
    }));
    const share = async (first, second) => {
      round++;
      queues.forEach(its => its.clear());
      await this.toAll('TagS', `round${round}.`);
      await eventually(() => queues[0].size + queues[1].size >= QUEUES);
      return queues[0].size === first && queues[1].size === second;
    };
    const divided = await eventually(() => share(QUEUES / 2, QUEUES / 2));
    console.log('shared', divided, [...queues[0]].sort(), [...queues[1]].sort());
    await consumers[0].close();
    console.log('left', await eventually(() => share(0, QUEUES)));
    await consumers[1].close();
  }

  /** What has one key comes in the order in which it was sent. */
  async ordered() {
    const found = new Map();
    let count = 0;
    for (let number = 0; number < 30; number++) {
      const message = this.sender.message(`o${number}`, 'TagO');
      message.shardingKey = keyOf(1 + (number % 3));
      await this.sender.producer.send(message);
    }
    const consumer = this.start('ordered', 'ordered', 'TagO', async message => {
      count++;
      found.set(message.queueId, [...(found.get(message.queueId) || []), String(message.body)]);
    });
    console.log('ordered', await eventually(() => count >= 30));
    for (const queue of [...found.keys()].sort()) console.log(queue, found.get(queue).join(' '));
    await consumer.close();
  }

  /** What fails comes again 10 s later, and after the last time no more. Ends, and prints, when it is called. */
  later() {
    const found = new Set();
    const consumer = this.start('later', 'later', 'TagA', async message => {
      const text = String(message.body);
      const times = message.reconsumeTimes;
      if (text === 'm4') {
        found.add(`m4 failed, times ${times} topic ${message.topic}`);
        throw new Error('m4 fails');
      }
      if (text === 'm6' && times === 0) {
        found.add(`m6 failed, times 0 topic ${message.topic}`);
        return Consumer.ACTION_RETRY;
      }
      if (times) found.add(`${text} done, times ${times} topic ${message.topic}`);
    }, { maxReconsumeTimes: 1 });
    return async () => {
      const came = await eventually(() => found.size >= 4);
      await pause(500);
      console.log('later', came, [...found].sort());
      await consumer.close();
    };
  }
}

async function consume(address, topic) {
  const judge = new Judge(address, topic);
  await judge.sender.producer.ready();
  await judge.fill();
  const ended = judge.later();
  await judge.seen('push', COUNT, '*');
  await judge.seen('tag', COUNT / 2, 'TagA');
  await judge.seen('two tags', COUNT, 'TagA || TagB');
  await judge.seen('sql', 10, { expressionType: 'SQL92', subString: 'number BETWEEN 10 AND 19' });
  await judge.again();
  await judge.broadcasting();
  await judge.shared();
  await judge.ordered();
  await ended();
  await judge.sender.producer.close();
}

module.exports = { consume };
