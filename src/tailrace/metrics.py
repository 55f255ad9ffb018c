"""What Tailrace measures about itself. One object, made by the composition root and handed to whoever counts.

The names are part of the interface: each has its heading in docs/reference/metrics.md.
"""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

__all__ = ["LATENCY_BUCKETS_S", "Metrics", "PipelineGauges", "QueryProcessMetrics", "SlotGauges"]

LATENCY_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
"""Upper bounds of the latency histograms; the last is the longest wait of a poll."""


class SlotGauges:
    """What a PostgreSQL server keeps for our replication slot, by source."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.lag = Gauge(
            "tailrace_postgresql_slot_lag_bytes",
            "Write-ahead log that was written and not confirmed.",
            ["source"],
            registry=registry,
        )
        self.kept = Gauge(
            "tailrace_postgresql_wal_kept_bytes",
            "Write-ahead log that the server keeps for the slot.",
            ["source"],
            registry=registry,
        )
        self.room = Gauge(
            "tailrace_postgresql_wal_room_bytes",
            "Write-ahead log that may be kept in addition before a limit is reached.",
            ["source"],
            registry=registry,
        )
        self.overflow = Gauge(
            "tailrace_postgresql_wal_overflow_seconds",
            "Time until a limit is reached, if what is kept grows on as it does.",
            ["source"],
            registry=registry,
        )


class Metrics:
    """The metrics of one server, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.log_head = Gauge(
            "tailrace_log_head_offset", "Offset of the newest durable change.", ["source"], registry=self.registry
        )
        self.log_horizon = Gauge(
            "tailrace_log_horizon_offset", "Offset of the oldest change kept.", ["source"], registry=self.registry
        )
        self.subscriptions = Gauge("tailrace_subscriptions", "Subscriptions that exist.", registry=self.registry)
        self.lag_max = Gauge(
            "tailrace_subscription_lag_changes_max",
            "Largest number of changes that any subscription has not acknowledged.",
            registry=self.registry,
        )
        self.lag_sum = Gauge(
            "tailrace_subscription_lag_changes_sum",
            "Changes that have not been acknowledged, summed over all subscriptions.",
            registry=self.registry,
        )
        self.remaining_min = Gauge(
            "tailrace_subscription_remaining_changes_min",
            "Changes that the subscription furthest behind may still fall behind before it loses some.",
            registry=self.registry,
        )
        self.states = Gauge(
            "tailrace_subscription_states", "Subscriptions by state.", ["state"], registry=self.registry
        )
        self.capture_lag = Gauge(
            "tailrace_capture_lag_seconds",
            "Time from the newest commit in the database to its place in the log.",
            ["source"],
            registry=self.registry,
        )
        self.delivery_lag = Gauge(
            "tailrace_delivery_lag_seconds",
            "Time from the log to the first subscriber, of the newest change delivered.",
            ["source"],
            registry=self.registry,
        )
        self.end_to_end_lag = Gauge(
            "tailrace_end_to_end_lag_seconds",
            "Time from the commit in the database to the first subscriber, of the newest change delivered.",
            ["source"],
            registry=self.registry,
        )
        self.slot = SlotGauges(self.registry)
        self.connections_open = Gauge(
            "tailrace_connections_open", "Connections of clients that are open.", ["port"], registry=self.registry
        )
        self.connections_refused = Counter(
            "tailrace_connections_refused_total",
            "Connections that were refused because as many were open as may be.",
            ["port"],
            registry=self.registry,
        )
        self.site_refusals = Counter(
            "tailrace_site_refusals_total",
            "Requests that called the server by a foreign name, or came from a foreign web page.",
            ["reason"],
            registry=self.registry,
        )
        self.feeds_open = Gauge("tailrace_feeds_open", "Feeds being served now.", ["wire"], registry=self.registry)
        self.encoded_changes = Counter(
            "tailrace_encoded_changes_total", "Changes encoded into events.", registry=self.registry
        )
        self.delivered_changes = Counter(
            "tailrace_delivered_changes_total", "Events handed to subscribers.", ["wire"], registry=self.registry
        )
        self.delivered_bytes = Counter(
            "tailrace_delivered_bytes_total", "Bytes of events handed to subscribers.", ["wire"], registry=self.registry
        )
        self.resnapshots = Counter(
            "tailrace_resnapshots_total",
            "Feeds and polls that found their place behind the horizon.",
            ["wire"],
            registry=self.registry,
        )
        self.consumers = Gauge(
            "tailrace_consumers", "Consumers of change streams that live.", ["source"], registry=self.registry
        )
        self.consumer_retained_bytes = Gauge(
            "tailrace_consumer_retained_bytes",
            "Log that is kept for the consumer furthest behind.",
            ["source"],
            registry=self.registry,
        )
        self.pullers = Gauge("tailrace_pullers", "Pullers of ranges.", ["source"], registry=self.registry)
        self.puller_retained_bytes = Gauge(
            "tailrace_puller_retained_bytes",
            "Log that is kept for the puller furthest behind.",
            ["source"],
            registry=self.registry,
        )
        self.consumers_ended = Counter(
            "tailrace_consumers_ended_total",
            "Consumers of change streams that ended, by reason.",
            ["reason"],
            registry=self.registry,
        )
        self.workers = Gauge("tailrace_workers", "Workers that serve streams now.", registry=self.registry)
        self.worker_feeds = Gauge(
            "tailrace_worker_feeds", "Feeds and bulk reads that a worker serves.", ["worker"], registry=self.registry
        )
        self.worker_restarts = Counter(
            "tailrace_worker_restarts_total", "Workers that ended and were started again.", registry=self.registry
        )
        self.rpc_calls = Counter(
            "tailrace_rpc_calls_total", "RPC calls by method and outcome.", ["method", "code"], registry=self.registry
        )
        self.rpc_latency = Histogram(
            "tailrace_rpc_seconds",
            "Time from a call's arrival to its answer, waiting included.",
            ["method"],
            buckets=LATENCY_BUCKETS_S,
            registry=self.registry,
        )
        self._add_queries()
        self.pipelines = PipelineGauges(self.registry)

    def _add_queries(self) -> None:
        """Make the metrics of queries."""
        self.queries_prepared = Gauge("tailrace_queries_prepared", "Prepared queries.", registry=self.registry)
        self.queries_followed = Gauge(
            "tailrace_queries_followed", "Queries with arguments that are followed now.", registry=self.registry
        )
        self.query_answers = Counter(
            "tailrace_query_answers_total",
            "Requests for the result of a query that were answered, by what the client was given.",
            ["answer"],
            registry=self.registry,
        )
        self.query_checks = Counter(
            "tailrace_query_checks_total",
            "Runs that decided whether a precise subscription gets an event, by their outcome.",
            ["outcome"],
            registry=self.registry,
        )
        self.query_runs = Histogram(
            "tailrace_query_run_seconds",
            "Time that the database took for a query, waiting for its turn included.",
            ["outcome"],
            buckets=LATENCY_BUCKETS_S,
            registry=self.registry,
        )
        self.query_processes = QueryProcessMetrics(self.registry)
        self.query_changes = Counter(
            "tailrace_query_changes_total",
            "Changes of tables that a followed query reads, by whether they can touch its result.",
            ["verdict"],
            registry=self.registry,
        )
        self.sink_messages = Counter(
            "tailrace_sink_messages_total",
            "Messages that have arrived at a sink's target.",
            ["sink"],
            registry=self.registry,
        )
        self.sink_offset = Gauge(
            "tailrace_sink_offset",
            "Offset up to which a sink's target has all changes.",
            ["sink"],
            registry=self.registry,
        )
        self.sink_letters = Gauge(
            "tailrace_sink_letters",
            "Changes that a sink's target refused and that are parked.",
            ["sink"],
            registry=self.registry,
        )
        self.sink_letter_age = Gauge(
            "tailrace_sink_oldest_letter_seconds",
            "Age of the oldest dead letter of a sink.",
            ["sink"],
            registry=self.registry,
        )
        self.sink_failed = Gauge(
            "tailrace_sink_failed", "Whether a sink has stopped with an error.", ["sink"], registry=self.registry
        )
        self.sink_waiting = Gauge(
            "tailrace_sink_waiting",
            "Whether a sink waits for its target, its source, a table or a dead letter.",
            ["sink"],
            registry=self.registry,
        )
        self.query_invalidations = Counter(
            "tailrace_query_invalidations_total",
            "Changes sent to subscribers of queries as invalidations.",
            registry=self.registry,
        )


class QueryProcessMetrics:
    """The processes that run SQL of clients."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.started = Gauge(
            "tailrace_query_processes", "Processes that run SQL of clients or wait for some.", registry=registry
        )
        self.killed = Counter(
            "tailrace_query_processes_killed_total",
            "Processes that were killed because their SQL did not end in time.",
            registry=registry,
        )


class PipelineGauges:
    """How pipelines are, as of when someone last looked."""

    WORDS: Mapping[str, str] = {
        "stage": "How far a pipeline is: 0 register, 1 snapshot, 2 incremental_log, 3 failed.",
        "offset": "Offset up to which the sink has all changes.",
        "lag_changes": "Changes that the sink lacks.",
        "lag_seconds": "Age of the oldest change that the sink lacks.",
        "rows_copied": "Rows that have been copied.",
        "rows_planned": "About how many rows are to be copied.",
        "rows_per_second": "Rate at which rows are being copied; 0 when none are.",
        "changes_per_second": "Rate at which changes were applied in the last seconds.",
        "batches": "Batches of changes that the newest query of Spark has finished.",
        "batch_changes": "Changes of the log that the newest of these batches spans.",
        "batch_seconds": "How long that batch took, from its trigger to its commit.",
        "problem": "1 where the last run of a pipeline ended with a problem.",
        "owned": "1 where a worker has the pipeline.",
        "paused": "1 where a pipeline is paused.",
    }
    """The gauges, and what they mean."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._gauges = {
            word: Gauge(f"tailrace_pipeline_{word}", text, ["pipeline"], registry=registry)
            for word, text in self.WORDS.items()
        }

    def show(self, figures: Mapping[str, Mapping[str, float]]) -> None:
        """Show these figures of each pipeline, and of no other."""
        for word, gauge in self._gauges.items():
            gauge.clear()
            for name, known in figures.items():
                gauge.labels(name).set(known[word])
