-- The public views (docs/contract.md, section 5) and what they are built from. Replaced as a whole whenever this file
-- differs from the one the store was last opened with. Columns are only ever added.

-- P(X >= m) for X ~ Binomial(n, p).
CREATE OR REPLACE MACRO data.binomial_tail(n, m, p) AS
  list_sum(list_transform(range(m, n + 1), lambda k:
    exp(lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)) * pow(p, k) * pow(1 - p, n - k)));

-- The newest attempt of each run that left a record, with what `valid` needs.
CREATE OR REPLACE VIEW data.last_records AS
SELECT r.*, f.first_epoch,
  min(f.first_epoch) OVER (PARTITION BY r.run_id ORDER BY r.attempt ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
    AS earlier_epoch
FROM data.records r
LEFT JOIN (SELECT record, min(epoch) AS first_epoch FROM data.epochs GROUP BY record) f USING (record)
QUALIFY row_number() OVER (PARTITION BY r.run_id ORDER BY r.attempt DESC) = 1;

-- Jobs with what their records know better. A scheduler may be behind: a final record is the end of its attempt.
CREATE OR REPLACE VIEW data.known_jobs AS
SELECT
  j.site, j.tag, j.array_index, j.run_id, j.attempt, j.job_id, j.cluster, j.partition, j.account,
  CASE WHEN r.final AND j.state IN ('submitting', 'queued', 'running', 'unknown', 'lost') THEN r.state
       ELSE j.state END AS state,
  j.slurm_state, coalesce(j.reason, r.reason) AS reason, j.submitted, coalesce(j.started, r.started) AS started,
  coalesce(j.ended, r.ended) AS ended, coalesce(j.exit_code, r.exit_code) AS exit_code,
  coalesce(j.signal, r.exit_signal) AS signal, coalesce(j.nodelist, array_to_string(r.nodes, ',')) AS nodelist,
  j.state_seen_at, j.script_sha256, r.commit, r.dirty, r.image_digest, r.versions,
  -- seconds that this run held its nodes: the record's own, else its share of the array element
  coalesce(epoch(r.ended) - epoch(r.started),
           (epoch(j.ended) - epoch(j.started)) / count(*) OVER (PARTITION BY j.site, j.tag, j.array_index)) AS held_s
FROM data.jobs j
LEFT JOIN data.records r ON r.run_id = j.run_id AND r.attempt = j.attempt AND coalesce(r.tag, j.tag) = j.tag;

-- Runs with all that judging them takes.
CREATE OR REPLACE VIEW data.judged_runs AS
WITH known AS (
  SELECT
    r.* EXCLUDE (state, fail_class, oversubscribed, valid, why_invalid),
    coalesce(l.final AND l.attempt >= r.attempts
             AND r.state IN ('submitting', 'queued', 'running', 'unknown', 'lost'), false) AS ends,
    CASE WHEN ends THEN l.state ELSE r.state END AS state,
    CASE WHEN ends THEN l.fail_class ELSE r.fail_class END AS fail_class,
    coalesce(l.oversubscribed, r.oversubscribed) AS oversubscribed,
    l.record, l.complete IS TRUE AS complete,
    -- a program with checkpoints of its own goes on without telling (campaign/submit/outcome.py has the same rule)
    l.resumed_from IS NOT NULL OR coalesce(l.first_epoch > l.earlier_epoch, false) AS resumed,
    r.pack = 'concurrent' OR coalesce(l.packed, '') = 'concurrent' AS side_by_side,
    CASE WHEN r.valid IS FALSE THEN r.why_invalid END AS veto
  FROM data.runs r LEFT JOIN data.last_records l USING (run_id)
), reasoned AS (
  SELECT *,
    state NOT IN ('planned', 'submitting', 'queued', 'running', 'unknown') AS ended,
    coalesce(array_to_string(list_filter([
      CASE WHEN state <> 'done' THEN 'ended as ' || state END,
      CASE WHEN state = 'done' AND NOT complete THEN 'no complete record' END,
      CASE WHEN resumed THEN 'resumed: not done in one attempt' END,
      CASE WHEN oversubscribed THEN 'oversubscribed: more ranks than cores' END,
      CASE WHEN side_by_side THEN 'packed side by side with other runs' END
    ], lambda reason: reason IS NOT NULL), '; '), '') AS reasons
  FROM known
)
SELECT * EXCLUDE (reasons, veto, side_by_side, resumed, complete, ends),
  CASE WHEN ended THEN reasons = '' AND veto IS NULL END AS valid,
  CASE WHEN ended THEN coalesce(nullif(reasons, ''), veto) END AS why_invalid
FROM reasoned;

CREATE OR REPLACE VIEW main.runs AS
SELECT
  r.run_id, r.site, r.study, r.series, r.plan_id, r.workload, r.strategy, r.scaling, r.params, r.nodes,
  r.ranks_per_node, r.world_size, r.local_batch, r.global_batch, r.repeat, r.state, r.fail_class, r.valid,
  r.why_invalid, r.attempts, r.superseded_by, r.oversubscribed,
  h.held_s * r.world_size * r.gpus_per_rank / 3600 AS gpu_h,
  h.held_s * r.nodes / 3600 AS node_h
FROM data.judged_runs r
LEFT JOIN (SELECT run_id, sum(held_s) AS held_s FROM data.known_jobs GROUP BY run_id) h USING (run_id)
ORDER BY r.study, r.site, r.series, r.world_size, r.repeat, r.run_id;

CREATE OR REPLACE VIEW main.jobs AS
SELECT
  site, tag, array_index, run_id, attempt, job_id, cluster, partition, account, state, slurm_state, reason,
  submitted, started, ended, epoch(started) - epoch(submitted) AS queued_s, epoch(ended) - epoch(started) AS run_s,
  exit_code, signal, nodelist, epoch(now()) - epoch(state_seen_at) AS state_age_s, commit, dirty, image_digest,
  versions, script_sha256
FROM data.known_jobs;

CREATE OR REPLACE VIEW main.records AS
SELECT
  run_id, attempt, site, tag, complete, missing_nodes, state, fail_class, reason, exit_code, exit_signal, exit_rank,
  exit_node, started, ended, world_size, nodes, ranks_per_node, host, versions, commit, dirty, image_digest,
  data_digest, audit, bytes_dropped, resumed_from, seen, path
FROM data.records;

CREATE OR REPLACE VIEW main.epochs AS
SELECT
  r.run_id, r.attempt, e.epoch, e.warmup, e.epoch_time_s, e.epoch_time_min_s, e.slowest_rank, e.steps, e.samples_seen,
  e.samples_unique, e.duplication, e.order_hash, e.loss, e.val_loss, e.data_wait_s, e.comm_exposed_s, e.energy_wh,
  e.energy_scope
FROM data.epochs e JOIN data.records r USING (record);

CREATE OR REPLACE VIEW main.steps AS
SELECT
  r.run_id, r.attempt, s.rank, s.step, s.epoch, s.t_s, s.data_wait_s, s.h2d_s, s.forward_s, s.backward_s,
  s.comm_exposed_s, s.optimizer_s, s.step_s, s.samples, s.loss
FROM data.steps s JOIN data.records r USING (record);

CREATE OR REPLACE VIEW main.windows AS
SELECT
  r.run_id, r.attempt, w.epoch, w."window", w.metric, w.unit, w.n, w.min, w.min_rank, w.median, w.p99, w.max,
  w.max_rank
FROM data.windows w JOIN data.records r USING (record);

CREATE OR REPLACE VIEW main.phases AS
SELECT
  r.run_id, r.attempt, e.name AS phase, count(*)::INTEGER AS n, min(e.t_us) / 1e6 AS min_s,
  median(e.t_us) / 1e6 AS median_s, max(e.t_us) / 1e6 AS max_s, quantile_cont(e.t_us, 0.99) / 1e6 AS p99_s,
  arg_max(e.node, e.t_us) AS slowest_node
FROM data.events e JOIN data.records r USING (record)
WHERE e.kind = 'phase'
GROUP BY r.run_id, r.attempt, e.name
ORDER BY r.run_id, r.attempt, max_s, phase;

CREATE OR REPLACE VIEW main.observations AS
SELECT r.run_id, r.attempt, e.name, e.labels, e.rank, e.step, e.value, e.unit
FROM data.events e JOIN data.records r USING (record)
WHERE e.kind = 'observe';

CREATE OR REPLACE VIEW main.energy AS
SELECT r.run_id, r.attempt, e.node, e.device, e.scope, e.start, e."end", e.energy_wh, e.mean_w, e.source
FROM data.energy e JOIN data.records r USING (record);

-- One row per run that has ended or has epochs: the value that a scaling point takes its median over.
CREATE OR REPLACE VIEW data.measured_runs AS
WITH per_run AS (
  SELECT
    record, median(epoch_time_s) AS epoch_time_s, median(samples_seen) AS samples_seen,
    median(samples_unique) AS samples_unique, median(energy_wh) AS energy_wh,
    count(DISTINCT energy_scope) AS scopes, any_value(energy_scope) AS energy_scope
  FROM data.epochs WHERE NOT coalesce(warmup, false) GROUP BY record
), labelled AS (
  SELECT
    r.*, e.epoch_time_s, e.samples_seen, e.samples_unique, e.energy_wh,
    CASE WHEN e.scopes <= 1 THEN e.energy_scope END AS energy_scope,
    -- what `scaling` holds fixed: a series never mixes two of these
    CASE
      WHEN r.scaling = 'weak' THEN 'local_batch=' || r.local_batch
      WHEN r.scaling = 'strong' OR json_exists(r.params, '$.global_batch') THEN 'global_batch=' || r.global_batch
      WHEN json_exists(r.params, '$.local_batch') THEN 'local_batch=' || r.local_batch
    END AS batch_label
  FROM data.judged_runs r LEFT JOIN per_run e USING (record)
  WHERE r.superseded_by IS NULL AND (r.ended OR e.record IS NOT NULL)
  -- the same repeat measured twice (another revision, image or data set): the newest plan's counts
  QUALIFY row_number() OVER (
    PARTITION BY r.site, r.study, r.series, batch_label, r.nodes, r.ranks_per_node, r.repeat
    ORDER BY r.ended DESC, r.plan_seq DESC, r.run_id) = 1
), placed AS (
  SELECT *,
    count(DISTINCT coalesce(batch_label, '')) OVER (PARTITION BY site, study, series) > 1 AS several_batches,
    count(DISTINCT ranks_per_node) OVER (PARTITION BY site, study, series, batch_label, world_size) AS placements
  FROM labelled
)
SELECT * EXCLUDE (series),
  series || CASE WHEN several_batches THEN ' ' || coalesce(batch_label, 'batch=?') ELSE '' END
         || CASE WHEN max(placements) OVER (PARTITION BY site, study, series, batch_label) > 1
                 THEN ' ranks_per_node=' || ranks_per_node ELSE '' END AS series
FROM placed;

CREATE OR REPLACE VIEW main.scaling AS
WITH points AS (
  SELECT
    site, study, series, world_size,
    any_value(strategy) AS strategy, any_value(scaling) AS scaling, any_value(nodes) AS nodes,
    any_value(world_size * gpus_per_rank) AS gpus,
    any_value(coalesce(global_batch, local_batch * world_size)) AS global_batch,
    list(epoch_time_s ORDER BY epoch_time_s) FILTER (valid AND epoch_time_s IS NOT NULL) AS times,
    bool_or(epoch_time_s IS NOT NULL) AS timed,
    coalesce(len(times), 0)::INTEGER AS n,
    (count(*) FILTER (ended) - n)::INTEGER AS n_excluded,
    median(epoch_time_s) FILTER (valid) AS epoch_time_s,
    round(median(samples_seen) FILTER (valid AND epoch_time_s IS NOT NULL))::BIGINT AS samples_per_epoch,
    round(median(samples_unique) FILTER (valid AND epoch_time_s IS NOT NULL))::BIGINT AS samples_unique,
    -- energies of two scopes are never put together
    CASE WHEN count(DISTINCT energy_scope) FILTER (valid) = 1
              AND count(*) FILTER (valid AND energy_wh IS NOT NULL AND energy_scope IS NULL) = 0
         THEN median(energy_wh) FILTER (valid) END AS energy_wh_per_epoch,
    -- a point is a baseline when its axis values are those of the study's `baseline`
    bool_or(CASE WHEN json_type(baseline) = 'OBJECT'
      THEN json_contains(json_merge_patch(params, json_object(
        'nodes', nodes, 'ranks_per_node', ranks_per_node, 'world_size', world_size, 'strategy', strategy,
        'local_batch', local_batch, 'global_batch', global_batch)), baseline)
      ELSE true END) AS may_be_base
  FROM data.measured_runs
  GROUP BY site, study, series, world_size
),
-- Bootstrap of the median, exactly: the distribution of the median of n draws with replacement from n sorted values.
-- Odd n: P(median <= value k) = P(Binomial(n, k/n) > n/2). Even n: the mean of the two middle order statistics i <= j.
sizes AS (SELECT DISTINCT n, n // 2 AS m, n % 2 = 1 AS odd FROM points WHERE n >= 5),
weights AS (
  SELECT n, k AS i, k AS j,
    data.binomial_tail(n, m + 1, k / n) - data.binomial_tail(n, m + 1, (k - 1) / n) AS p
  FROM sizes, unnest(range(1, n + 1)) AS ks(k) WHERE odd
  UNION ALL
  SELECT n, i, j,
    CASE WHEN i < j THEN ways * low * (pow((n - j + 1) / n, m) - pow((n - j) / n, m))
         ELSE data.binomial_tail(n, m, i / n) - data.binomial_tail(n, m, (i - 1) / n) - ways * low * pow((n - i) / n, m)
    END AS p
  FROM (
    SELECT n, m, i, j, exp(lgamma(n + 1) - 2 * lgamma(m + 1)) AS ways, pow(i / n, m) - pow((i - 1) / n, m) AS low
    FROM sizes, unnest(range(1, n + 1)) AS is_(i), unnest(range(1, n + 1)) AS js(j) WHERE NOT odd AND i <= j
  )
),
intervals AS (
  SELECT site, study, series, world_size, min(v) FILTER (q >= 0.025 - 1e-12) AS lo, min(v) FILTER (q >= 0.975 - 1e-12) AS hi
  FROM (
    SELECT site, study, series, world_size, v,
      sum(p) OVER (PARTITION BY site, study, series, world_size ORDER BY v) AS q
    FROM (SELECT site, study, series, world_size, (times[i] + times[j]) / 2 AS v, p FROM points JOIN weights USING (n))
  )
  GROUP BY site, study, series, world_size
),
spread AS (
  SELECT p.*,
    CASE WHEN n >= 5 THEN lo WHEN n > 1 THEN times[1] END AS epoch_time_lo_s,
    CASE WHEN n >= 5 THEN hi WHEN n > 1 THEN times[n] END AS epoch_time_hi_s,
    CASE WHEN n >= 5 THEN 'bootstrap95' WHEN n > 1 THEN 'minmax' ELSE 'none' END AS spread_kind,
    samples_unique / epoch_time_s AS throughput_per_s
  FROM points p LEFT JOIN intervals USING (site, study, series, world_size)
),
base AS (
  SELECT site, study, series, min(world_size) AS base_world_size, arg_min(throughput_per_s, world_size) AS base_per_s
  FROM spread WHERE may_be_base AND n > 0 AND throughput_per_s IS NOT NULL
  GROUP BY site, study, series
)
SELECT
  site, study, series, world_size, strategy, scaling, nodes, gpus, n, n_excluded,
  epoch_time_s, epoch_time_lo_s, epoch_time_hi_s, spread_kind,
  throughput_per_s, samples_unique / epoch_time_hi_s AS throughput_lo, samples_unique / epoch_time_lo_s AS throughput_hi,
  'samples/s' AS throughput_unit,
  throughput_per_s / base_per_s AS speedup,
  throughput_per_s / base_per_s * base_world_size / world_size AS efficiency,
  throughput_lo / base_per_s * base_world_size / world_size AS efficiency_lo,
  throughput_hi / base_per_s * base_world_size / world_size AS efficiency_hi,
  base_world_size, samples_per_epoch, samples_unique,
  (samples_unique / global_batch) / ceil(samples_unique / global_batch) AS quantisation,
  energy_wh_per_epoch, 3600 * energy_wh_per_epoch / samples_unique AS j_per_sample,
  gpus * epoch_time_s / 3600 AS gpu_h_per_epoch,
  NULL::DOUBLE AS fraction_of_peak
FROM spread LEFT JOIN base USING (site, study, series)
-- studies that measure no epochs have no scaling
QUALIFY bool_or(timed) OVER (PARTITION BY site, study, series)
ORDER BY study, site, series, world_size;

-- Phases in the order of a start (campaign/tables.py), and how many events make one complete.
CREATE OR REPLACE VIEW data.start_phases AS
SELECT unnest(['job_start', 'staged', 'agents_up', 'launched', 'python_up', 'imports_done', 'pg_ready',
               'first_collective', 'first_batch', 'first_step']) AS phase, unnest(range(10)) AS place,
       place >= 4 AS by_rank;

CREATE OR REPLACE VIEW main.starts AS
WITH reached AS (
  SELECT p.run_id, p.attempt, s.place, s.by_rank, p.n >= CASE WHEN s.by_rank THEN r.world_size ELSE 1 END AS by_all
  FROM main.phases p JOIN data.start_phases s USING (phase) JOIN data.runs r USING (run_id)
), per_attempt AS (
  SELECT run_id, attempt, coalesce(max(place) FILTER (by_all), -1) AS last_place, bool_or(by_rank) AS ranks_spoke
  FROM reached GROUP BY run_id, attempt
), judged AS (
  SELECT l.run_id, l.attempt, r.nodes, r.staging, coalesce(l.exit_node, l.missing_nodes[1]) AS suspect,
    coalesce(a.last_place, -1) AS last_place,
    CASE
      WHEN l.state = 'done' OR a.last_place = 9 THEN true
      WHEN NOT l.final AND r.state IN ('queued', 'running', 'unknown') THEN NULL
      -- a program without a Recorder says nothing after its launch
      WHEN a.last_place >= 3 AND NOT a.ranks_spoke THEN NULL
      ELSE false
    END AS ok
  FROM data.records l JOIN data.runs r USING (run_id) LEFT JOIN per_attempt a USING (run_id, attempt)
)
SELECT j.run_id, j.attempt, j.nodes, j.staging, j.ok, CASE WHEN NOT j.ok THEN s.phase END AS failed_phase,
  CASE WHEN NOT j.ok THEN j.suspect END AS failed_node
FROM judged j LEFT JOIN data.start_phases s ON s.place = j.last_place + 1;

CREATE OR REPLACE VIEW main.startup AS
WITH counted AS (
  SELECT
    record,
    max(t_us) FILTER (kind = 'phase' AND name = 'first_step') / 1e6 AS total_s,
    max(value) FILTER (kind = 'observe' AND name = 'ops_client' AND rank = 0) AS ops_client_rank0,
    max(value) FILTER (kind = 'observe' AND name = 'ops_server') AS ops_server_node,
    sum(value) FILTER (kind = 'observe' AND name = 'bytes_shared') AS bytes_shared,
    sum(value) FILTER (kind = 'observe' AND name = 'files_created') AS files_created,
    max(value) FILTER (kind = 'observe' AND name = 'image_bytes') AS image_bytes
  FROM data.events GROUP BY record
)
SELECT l.run_id, l.attempt, r.staging, r.redirect, r.nodes, r.ranks_per_node, c.total_s,
  c.ops_client_rank0::BIGINT AS ops_client_rank0, c.ops_server_node::BIGINT AS ops_server_node,
  c.bytes_shared::BIGINT AS bytes_shared, c.files_created::BIGINT AS files_created, c.image_bytes::BIGINT AS image_bytes
FROM data.records l JOIN data.runs r USING (run_id) LEFT JOIN counted c USING (record);

CREATE OR REPLACE VIEW main.io_cells AS
SELECT r.run_id, r.attempt, c.* EXCLUDE (record) FROM data.io_cells c JOIN data.records r USING (record);

CREATE OR REPLACE VIEW main.trials AS FROM data.trials;

CREATE OR REPLACE VIEW main.diagnoses AS FROM data.diagnoses;

CREATE OR REPLACE VIEW main.rejects AS FROM data.rejects;

CREATE OR REPLACE VIEW main.docs AS FROM data.docs;
