-- Base tables of the store. They are private (schema `data`): the public interface is the views in views.sql.
-- A migration is never changed after a release; the next one is 0002_*.sql. The whole store can be rebuilt from the
-- ledger and the records, so a migration may also drop what `campaign collect --rebuild` fills again.
CREATE SCHEMA data;

CREATE TABLE data.schema_version (version INTEGER NOT NULL, applied TIMESTAMP NOT NULL, campaign VARCHAR NOT NULL);

-- Small facts about the store itself: which ledger was copied, which views are in place.
CREATE TABLE data.facts (key VARCHAR NOT NULL, value VARCHAR NOT NULL);

-- Copies of the ledger's tables, replaced as a whole when the ledger has changed.
CREATE TABLE data.runs (
  run_id VARCHAR NOT NULL, site VARCHAR NOT NULL, study VARCHAR NOT NULL, series VARCHAR NOT NULL,
  plan_id VARCHAR NOT NULL, plan_seq BIGINT, workload VARCHAR, strategy VARCHAR, scaling VARCHAR, params JSON,
  nodes INTEGER, ranks_per_node INTEGER, gpus_per_rank INTEGER, world_size INTEGER,
  local_batch BIGINT, global_batch BIGINT, repeat INTEGER, pack VARCHAR, oversubscribed BOOLEAN,
  state VARCHAR NOT NULL, fail_class VARCHAR, valid BOOLEAN, why_invalid VARCHAR, attempts INTEGER,
  superseded_by VARCHAR, baseline JSON, staging VARCHAR, redirect BOOLEAN
);
CREATE TABLE data.jobs (
  site VARCHAR NOT NULL, tag VARCHAR NOT NULL, array_index INTEGER NOT NULL, run_id VARCHAR NOT NULL,
  attempt INTEGER NOT NULL, job_id VARCHAR, cluster VARCHAR, partition VARCHAR, account VARCHAR,
  state VARCHAR NOT NULL, slurm_state VARCHAR, reason VARCHAR, submitted TIMESTAMP, started TIMESTAMP,
  ended TIMESTAMP, exit_code INTEGER, signal INTEGER, nodelist VARCHAR, state_seen_at TIMESTAMP, script_sha256 VARCHAR
);

-- One row per record that was ingested: the head of record.json. `record` joins the tables below; it is small, so that
-- step rows carry 4 bytes instead of run_id and attempt. No primary keys: `collect` alone writes, under the file's lock.
CREATE TABLE data.records (
  record INTEGER NOT NULL, run_id VARCHAR NOT NULL, attempt INTEGER NOT NULL, path VARCHAR NOT NULL,
  fingerprint VARCHAR NOT NULL, written TIMESTAMP NOT NULL, seen TIMESTAMP NOT NULL,
  final BOOLEAN NOT NULL, complete BOOLEAN NOT NULL, missing_nodes VARCHAR[], site VARCHAR, tag VARCHAR, state VARCHAR, fail_class VARCHAR,
  reason VARCHAR, exit_code INTEGER, exit_signal INTEGER, exit_rank INTEGER, exit_node VARCHAR,
  started TIMESTAMP, ended TIMESTAMP, world_size INTEGER, nodes VARCHAR[], ranks_per_node INTEGER, host JSON,
  versions JSON, commit VARCHAR, dirty BOOLEAN, image_digest VARCHAR, data_digest VARCHAR, audit JSON,
  oversubscribed BOOLEAN, packed VARCHAR, bytes_dropped BIGINT, resumed_from VARCHAR, document JSON
);

CREATE TABLE data.epochs (
  record INTEGER NOT NULL, epoch INTEGER, warmup BOOLEAN, epoch_time_s DOUBLE, epoch_time_min_s DOUBLE,
  slowest_rank INTEGER, steps INTEGER, samples_seen BIGINT, samples_unique BIGINT, duplication DOUBLE,
  order_hash VARCHAR, loss DOUBLE, val_loss DOUBLE, data_wait_s DOUBLE, comm_exposed_s DOUBLE, energy_wh DOUBLE,
  energy_scope VARCHAR
);
CREATE TABLE data.steps (
  record INTEGER NOT NULL, rank INTEGER, step BIGINT, epoch INTEGER, t_s DOUBLE, data_wait_s DOUBLE, h2d_s DOUBLE,
  forward_s DOUBLE, backward_s DOUBLE, comm_exposed_s DOUBLE, optimizer_s DOUBLE, step_s DOUBLE, samples INTEGER,
  loss DOUBLE
);
CREATE TABLE data.windows (
  record INTEGER NOT NULL, epoch INTEGER, "window" INTEGER, metric VARCHAR, unit VARCHAR, n INTEGER, min DOUBLE,
  min_rank INTEGER, median DOUBLE, p99 DOUBLE, max DOUBLE, max_rank INTEGER
);
CREATE TABLE data.events (
  record INTEGER NOT NULL, kind VARCHAR, name VARCHAR, rank INTEGER, node VARCHAR, t_us BIGINT, value DOUBLE,
  unit VARCHAR, labels MAP(VARCHAR, VARCHAR), step BIGINT
);

-- Records that were set aside.
CREATE TABLE data.rejects (path VARCHAR NOT NULL, seen TIMESTAMP NOT NULL, reason VARCHAR NOT NULL);

-- Filled by power sampling, io_bench, search and analysis.
CREATE TABLE data.energy (
  record INTEGER NOT NULL, node VARCHAR, device VARCHAR, scope VARCHAR, start TIMESTAMP, "end" TIMESTAMP,
  energy_wh DOUBLE, mean_w DOUBLE, source VARCHAR
);
CREATE TABLE data.io_cells (
  record INTEGER NOT NULL, cell VARCHAR, dataset VARCHAR, layout VARCHAR, codec VARCHAR, reader VARCHAR, options JSON,
  pattern VARCHAR, patch VARCHAR, aligned BOOLEAN, cache VARCHAR, cache_proven BOOLEAN, workers INTEGER, n BIGINT,
  p50_s DOUBLE, p95_s DOUBLE, p99_s DOUBLE, p999_s DOUBLE, max_s DOUBLE, cv DOUBLE, iqr_s DOUBLE,
  expected_max_s DOUBLE, reads_per_s DOUBLE, decoded_bytes_per_s DOUBLE, asked_ratio DOUBLE, device_ratio DOUBLE,
  opens BIGINT, stats BIGINT, reads_sys BIGINT, cpu_s_per_read DOUBLE, runq_s_per_read DOUBLE, rss_bytes BIGINT,
  files BIGINT, inodes BIGINT, disk_bytes BIGINT, fs_type VARCHAR, readahead_bytes BIGINT, errors BIGINT,
  checksum_ok BOOLEAN
);
CREATE TABLE data.trials (
  study VARCHAR NOT NULL, site VARCHAR NOT NULL, trial INTEGER NOT NULL, run_id VARCHAR, number INTEGER, params JSON,
  value DOUBLE, state VARCHAR, best_so_far DOUBLE, gpu_h DOUBLE, sampler VARCHAR, seed BIGINT
);
CREATE TABLE data.diagnoses (
  run_id VARCHAR NOT NULL, rule VARCHAR NOT NULL, confidence DOUBLE, evidence JSON, fix VARCHAR, version VARCHAR
);

-- Units and meanings of the views' columns, refreshed with the views.
CREATE TABLE data.docs (view VARCHAR NOT NULL, "column" VARCHAR NOT NULL, type VARCHAR NOT NULL, unit VARCHAR NOT NULL,
  meaning VARCHAR NOT NULL);
