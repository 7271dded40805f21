// What both programs need: options of the library, waiting, and the queue of a key.
'use strict';

const { createHash } = require('node:crypto');

const PATIENCE_MS = 60_000;
const QUEUES = 4;
const quiet = { info() {}, warn() {}, debug() {}, error() {} };

/** The options of a client: routes, heartbeats and shares are looked at every second. */
function options(address, instanceName, more) {
  return {
    nameSrv: address,
    httpclient: {}, // asked only where there is no name server
    logger: quiet,
    instanceName,
    pollNameServerInteval: 1_000,
    heartbeatBrokerInterval: 1_000,
    rebalanceInterval: 1_000,
    sendMsgTimeout: 20_000,
    ...more,
  };
}

const pause = ms => new Promise(done => setTimeout(done, ms));

/** Whether a condition comes true within the time that is given to every step. */
async function eventually(condition) {
  for (const end = Date.now() + PATIENCE_MS; Date.now() < end; await pause(20)) {
    if (await condition()) return true;
  }
  return false;
}

/** A sharding key that the library puts into this queue; for queue 0 it has none. */
function keyOf(queue) {
  for (let number = 0; ; number++) {
    const digest = createHash('md5').update(`key${number}`).digest();
    if (digest.readUInt32BE() % QUEUES === queue) return `key${number}`;
  }
}

module.exports = { QUEUES, eventually, keyOf, options, pause };
