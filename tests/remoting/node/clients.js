// Clients in Node against one name server: `node clients.js produce|consume NAMESRV TOPIC`. What is printed has no
// times, addresses or keys in it, so that two runs that went the same way print the same.
'use strict';

const { consume } = require('./consume');
const { produce } = require('./produce');

const [program, address, topic] = process.argv.slice(2);

const programs = { produce, consume };
programs[program](address, topic).then(
  () => {
    console.log('over');
    process.exit(0); // the library keeps a producer of its own
  },
  error => {
    console.error(error);
    process.exit(1);
  },
);
