// npm's pg-logical-replication on a slot, for bench/postgres_capture.py. Runs in a folder where it is installed.
//
//   node pg_logical_replication.js CONNECTION_URL CHANGES
//
// Decodes changes into objects and keeps nothing; prints the time and the processor time from the first to the last.
const { createRequire } = require("node:module");
const { LogicalReplicationService, PgoutputPlugin } = createRequire(process.cwd() + "/")("pg-logical-replication");

const [url, changes] = process.argv.slice(2);
const service = new LogicalReplicationService(
  { connectionString: url },
  { acknowledge: { auto: true, timeoutSeconds: 10 } },
);
let left = Number(changes);
let began = null;
let used = null;

service.on("data", (_lsn, message) => {
  if (began === null) {
    began = process.hrtime.bigint();
    used = process.cpuUsage();
  }
  if (message.tag === "insert" || message.tag === "update" || message.tag === "delete") left -= 1;
  if (left > 0) return;
  const spent = process.cpuUsage(used);
  const seconds = Number(process.hrtime.bigint() - began) / 1e9;
  const resident_mb = process.resourceUsage().maxRSS / 1024;
  console.log(JSON.stringify({ seconds, processor_s: (spent.user + spent.system) / 1e6, resident_mb }));
  process.exit(0);
});
service.on("error", (error) => {
  console.error(error);
  process.exit(1);
});
service.subscribe(new PgoutputPlugin({ protoVersion: 1, publicationNames: ["tailrace"] }), "npm");
