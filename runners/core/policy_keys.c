#include "runners/core/policy_keys.h"

#include "runners/base/limits.h"
#include "runners/base/mem.h"

#define AT(field) offsetof(struct policy, field)
#define NUMBER(path, field, unit, min, max, standard, doc)                          \
	{                                                                           \
		path, POLICY_NUMBER, unit, min, max, standard, doc, AT(field), NULL \
	}
#define BOOL(path, field, standard, doc)                                    \
	{                                                                   \
		path, POLICY_BOOL, "", 0, 1, standard, doc, AT(field), NULL \
	}
#define CHOICE(path, field, choices, standard, doc)                               \
	{                                                                         \
		path, POLICY_CHOICE, "", 1, 32, standard, doc, AT(field), choices \
	}

/* Text that may be left empty. */
#define MAYBE(path, kind, field, max, standard, doc)                   \
	{                                                              \
		path, kind, "", 0, max, standard, doc, AT(field), NULL \
	}

#define MS_MAX   INT64_C(86400000)
#define MIB_MAX  INT64_C(16777216) /* 16 TiB */
#define SIZE_TOP (INT64_C(1) << 44)

/* The same limits for each trust level. */
#define TIER(name, cpu, memory, timeout, network, workspace, pid, files, fresh)                    \
	NUMBER("tiers." #name ".max_cpu_milli", tiers.name.max_cpu_milli, "1/1000 cpu", 10,        \
	       1024000, cpu, "Most cpu of one run."),                                              \
	    NUMBER("tiers." #name ".max_mem_mb", tiers.name.max_mem_mb, "MiB", 16, MIB_MAX,        \
		   memory, "Most memory of one run."),                                             \
	    NUMBER("tiers." #name ".timeout_sec", tiers.name.timeout_sec, "s", 1, 604800, timeout, \
		   "Longest run."),                                                                \
	    CHOICE("tiers." #name ".network_default", tiers.name.network_default,                  \
		   "deny_all allowlist", network, "Network of a request that names none."),        \
	    NUMBER("tiers." #name ".workspace_cap_mb", tiers.name.workspace_cap_mb, "MiB", 1,      \
		   MIB_MAX, workspace, "Size of the workspace."),                                  \
	    NUMBER("tiers." #name ".pids", tiers.name.pids, "tasks", 1, 32768, pid,                \
		   "Most processes and threads of one run."),                                      \
	    BOOL("tiers." #name ".fresh_network", tiers.name.fresh_network, fresh,                 \
		 "true: each box has a network namespace that no box had before; false: one of a " \
		 "ring is used again."),                                                           \
	    NUMBER("tiers." #name ".nofile", tiers.name.nofile, "descriptors", 16, 1048576, files, \
		   "Most open files of one process.")

const struct policy_key policy_keys[] = {
    {"public_url", POLICY_URL, "", 9, 255, NULL,
     "Origin under which clients reach the API, https://host[:port]. URLs in answers are built "
     "from it, never from the Host header; stream URLs are the same with wss.",
     AT(public_url), NULL},
    {"node", POLICY_NAME, "", 1, 63, "node1", "Name of this execution host.", AT(node), NULL},
    NUMBER("http.body_bytes", http.body_bytes, "bytes", 1024, LIMIT_BODY_BYTES, "8388608",
	   "Largest request body that a worker takes; nginx has the same limit."),
    {"database.socket", POLICY_PATH, "", 2, 107, "/run/mysqld/mysqld.sock",
     "Unix socket of MariaDB. The database user is the system user of the program.",
     AT(database.socket), NULL},
    {"database.name", POLICY_NAME, "", 1, 64, "cordon", "Name of the database.", AT(database.name),
     NULL},
    {"paths.run", POLICY_PATH, "", 2, 80, "/run/cordon", "Folder of the sockets.", AT(paths.run),
     NULL},
    {"paths.data", POLICY_PATH, "", 2, 512, "/var/lib/cordon",
     "Folder of spool, artifacts, images and workspaces.", AT(paths.data), NULL},
    CHOICE("log.level", log.level, "error warning info debug", "info", "Least important line."),

    NUMBER("pool.workers", pool.workers, "", 1, 256, "4", "FastCGI worker processes."),
    NUMBER("pool.max_requests", pool.max_requests, "", 0, 100000000, "20000",
	   "Requests after which a worker is replaced; 0: never."),
    NUMBER("pool.request_timeout_ms", pool.request_timeout_ms, "ms", 100, MS_MAX, "30000",
	   "A worker that is busy with one request for longer is killed."),

    NUMBER("gate.release_per_ms", gate.release_per_ms, "", 1, 1000, "5",
	   "Held requests that are let go per millisecond."),
    NUMBER("gate.heartbeat_ms", gate.heartbeat_ms, "ms", 100, MS_MAX, "10000",
	   "Time between two heartbeat records of a stream."),
    NUMBER("gate.ws_max_total", gate.ws_max_total, "", 1, 100000, "1024", "Open streams."),
    NUMBER("gate.ws_max_per_user", gate.ws_max_per_user, "", 1, 100000, "64",
	   "Open streams of one user."),
    NUMBER("gate.ws_max_per_run", gate.ws_max_per_run, "", 1, 100000, "8",
	   "Open streams of one run."),
    NUMBER("gate.ws_max_per_persona", gate.ws_max_per_persona, "", 0, 100000, "32",
	   "Open streams of one persona_id of a tenant; 0: no limit."),
    NUMBER("gate.ws_max_per_session", gate.ws_max_per_session, "", 0, 100000, "16",
	   "Open streams of the runs of one session; 0: no limit."),
    NUMBER("gate.sweep_ms", gate.sweep_ms, "ms", 50, MS_MAX, "1000",
	   "Time between two looks for what has expired."),

    BOOL("streams.signed_urls", streams.signed_urls, "false",
	 "true: a stream is opened with the token and exp of its log_stream_url only, beside the "
	 "usual credential. Needs streams.secret_file."),
    MAYBE(
	"streams.secret_file", POLICY_PATH, streams.secret_file, 512, "",
	"File with the secret that signs stream URLs, 8 to 4096 bytes; a line feed at its end does "
	"not count. Only cordon-fcgi reads it."),
    NUMBER("streams.url_ttl_sec", streams.url_ttl_sec, "s", 1, 2592000, "60",
	   "A signed stream URL may be used for so long."),

    MAYBE("auth.jwt.secret_file", POLICY_PATH, auth.jwt.secret_file, 512, "",
	  "File with the secret of HS256 tokens, 32 to 4096 bytes, as streams.secret_file. Empty: "
	  "HS256 is refused."),
    MAYBE(
	"auth.jwt.jwks_file", POLICY_PATH, auth.jwt.jwks_file, 512, "",
	"JSON file with the public keys (JWKS) of RS256 and ES256 tokens. Empty: both are refused. "
	"Without both files all tokens are refused."),
    MAYBE("auth.jwt.issuer", POLICY_TEXT, auth.jwt.issuer, 255, "",
	  "What `iss` must be; empty: it is not looked at."),
    MAYBE("auth.jwt.audience", POLICY_TEXT, auth.jwt.audience, 255, "",
	  "What `aud` must be or hold; empty: it is not looked at."),
    {"auth.jwt.user_claim", POLICY_TEXT, "", 1, 64, "sub", "Claim with the user.",
     AT(auth.jwt.user_claim), NULL},
    MAYBE("auth.jwt.roles_claim", POLICY_TEXT, auth.jwt.roles_claim, 64, "roles",
	  "Claim with the roles, a list or words in one text; empty: everybody is a user."),
    {"auth.jwt.admin_role", POLICY_TEXT, "", 1, 64, "admin",
     "The role that makes its holder an admin of the tenant. No claim makes an operator.",
     AT(auth.jwt.admin_role), NULL},
    MAYBE("auth.jwt.tenant_claim", POLICY_TEXT, auth.jwt.tenant_claim, 64, "",
	  "Claim with the tenant, which must be known here; empty: auth.jwt.tenant."),
    {"auth.jwt.tenant", POLICY_NAME, "", 1, 64, "default",
     "Tenant of tokens when auth.jwt.tenant_claim is empty.", AT(auth.jwt.tenant), NULL},
    NUMBER("auth.jwt.leeway_sec", auth.jwt.leeway_sec, "s", 0, 300, "0",
	   "Clocks of issuer and server may differ by so much."),

    NUMBER("runner.concurrency", runner.concurrency, "", 0, LIMIT_CONCURRENCY, "0",
	   "Boxes at one time on this host; 0: four per core, at most 64."),
    NUMBER("runner.poll_ms", runner.poll_ms, "ms", 10, MS_MAX, "2000",
	   "Time between two looks at the job table when no notice comes."),
    NUMBER("runner.beat_ms", runner.beat_ms, "ms", 100, 60000, "3000",
	   "Time between two beats of a runner."),
    NUMBER("runner.dead_after_ms", runner.dead_after_ms, "ms", 500, MS_MAX, "15000",
	   "A runner without a beat for so long is dead; at least three beats."),
    NUMBER("runner.drain_grace_ms", runner.drain_grace_ms, "ms", 0, 60000, "300",
	   "Wait for the last output after a command has ended."),

    NUMBER("queue.max_length", queue.max_length, "runs", 0, 1000000, "100",
	   "Runs that may wait; the next one is refused with 429."),
    NUMBER("queue.ttl_sec", queue.ttl_sec, "s", 1, 604800, "120",
	   "A run that waits for longer ends as queue_ttl_expired."),
    NUMBER("queue.max_per_user", queue.max_per_user, "runs", 0, 1000000, "0",
	   "Queued runs of one user; 0: no limit."),
    NUMBER("queue.max_per_persona", queue.max_per_persona, "runs", 0, 1000000, "0",
	   "Queued runs of one persona; 0: no limit."),
    NUMBER("queue.max_per_workspace", queue.max_per_workspace, "runs", 0, 1000000, "0",
	   "Queued runs of one workspace; 0: no limit."),
    NUMBER("queue.max_per_workspace_group", queue.max_per_workspace_group, "runs", 0, 1000000, "0",
	   "Queued runs of one workspace group; 0: no limit."),
    NUMBER("queue.estimated_wait_per_run_ms", queue.estimated_wait_per_run_ms, "ms", 0, MS_MAX,
	   "5000",
	   "Guess of the time that a run takes, for estimated_start_time, until this host has "
	   "measured some."),

    NUMBER("active.max_per_user", active.max_per_user, "runs", 0, 1000000, "0",
	   "Runs of one user that are started or may start at one time; more wait; 0: no limit."),
    NUMBER("active.max_per_persona", active.max_per_persona, "runs", 0, 1000000, "0",
	   "The same of one persona; 0: no limit."),
    NUMBER("active.max_per_workspace", active.max_per_workspace, "runs", 0, 1000000, "0",
	   "The same of one workspace; 0: no limit."),
    NUMBER("active.max_per_workspace_group", active.max_per_workspace_group, "runs", 0, 1000000,
	   "0", "The same of one workspace group; 0: no limit."),

    NUMBER("runs.sync_wait_ms", runs.sync_wait_ms, "ms", 0, MS_MAX, "0",
	   "Longest wait of a synchronous POST; 0: until the run ends."),
    NUMBER("runs.default_timeout_sec", runs.default_timeout_sec, "s", 1, 604800, "300",
	   "Time limit of a request that leaves timeout_sec out."),
    NUMBER("runs.null_timeout_sec", runs.null_timeout_sec, "s", 1, 604800, "60",
	   "Time limit of a request with timeout_sec null."),
    NUMBER("runs.max_timeout_sec", runs.max_timeout_sec, "s", 1, 604800, "3600",
	   "Longest time limit of any request."),
    NUMBER("runs.default_startup_timeout_sec", runs.default_startup_timeout_sec, "s", 1, 3600, "20",
	   "Time in which a box must have started the command."),
    NUMBER("runs.cancel_grace_ms", runs.cancel_grace_ms, "ms", 0, 600000, "5000",
	   "Time between TERM and KILL of a cancel."),
    NUMBER("runs.max_log_bytes", runs.max_log_bytes, "bytes", 1024, INT64_C(1) << 34, "10485760",
	   "Output kept of one run; the rest is counted."),
    NUMBER("runs.inline_files_bytes", runs.inline_files_bytes, "bytes", 0, LIMIT_FILES_BYTES,
	   "4194304", "Decoded bytes of all inline files of one request."),
    NUMBER("runs.artifact_file_bytes", runs.artifact_file_bytes, "bytes", 0, SIZE_TOP, "67108864",
	   "Largest artifact."),
    NUMBER("runs.artifact_run_bytes", runs.artifact_run_bytes, "bytes", 0, SIZE_TOP, "268435456",
	   "All artifacts of one run."),
    NUMBER("runs.artifact_user_bytes", runs.artifact_user_bytes, "bytes", 0, SIZE_TOP, "4294967296",
	   "All artifacts of one user."),
    NUMBER("runs.artifact_ttl_hours", runs.artifact_ttl_hours, "h", 1, 87600, "24",
	   "Logs and artifacts are removed after so long."),
    NUMBER("runs.row_ttl_days", runs.row_ttl_days, "d", 1, 3650, "30",
	   "Rows of finished runs are removed after so long."),
    NUMBER("runs.max_cpu_milli", runs.max_cpu_milli, "1/1000 cpu", 10, 1024000, "4000",
	   "Most cpu of one run at any trust level."),
    NUMBER("runs.max_mem_mb", runs.max_mem_mb, "MiB", 16, MIB_MAX, "8192",
	   "Most memory of one run at any trust level."),
    {"runs.spec_versions", POLICY_LIST, "", 1, 16, "1.0 1.1", "Accepted values of spec_version.",
     AT(runs.spec_versions), NULL},
    NUMBER("runs.workspace_inodes", runs.workspace_inodes, "files", 16, 100000000, "100000",
	   "Files and folders in one workspace."),
    NUMBER("runs.tmp_mb", runs.tmp_mb, "MiB", 1, MIB_MAX, "64", "Size of /tmp in a box."),

    NUMBER("idempotency.ttl_sec", idempotency.ttl_sec, "s", 1, 2592000, "600",
	   "An Idempotency-Key is remembered for so long."),

    TIER(trusted, "8000", "16384", "600", "allowlist", "512", "512", "4096", "false"),
    TIER(standard, "4000", "8192", "300", "deny_all", "256", "256", "1024", "false"),
    TIER(untrusted, "1000", "1024", "60", "deny_all", "64", "64", "256", "true"),
    BOOL("tiers.untrusted.require_vm_grade", tiers.untrusted.require_vm_grade, "false",
	 "true: untrusted requests need a runtime with a virtual machine around the box."),

    {"images", POLICY_MAP, "", 1, 256, "host=host",
     "Requested base_image: image. There is `host`, a view of the host's /usr, and no other yet.",
     AT(images), NULL},
    CHOICE("runtimes.default", runtimes.default_,
	   "namespace docker microvm firecracker lima vz_linux vz_macos seatbelt worktree",
	   "namespace", "Runtime of a request that names none."),
    BOOL(
	"runtimes.worktree.accept_unenforced_network", runtimes.worktree.accept_unenforced_network,
	"false",
	"true: trusted and standard requests that name no network policy may use `worktree`, which "
	"fences no network."),
    BOOL("runtimes.seatbelt.accept_unenforced_network", runtimes.seatbelt.accept_unenforced_network,
	 "false", "true: the same for `seatbelt`."),
    BOOL("runtimes.seatbelt.standard", runtimes.seatbelt.standard, "false",
	 "true: `seatbelt` takes standard requests, not only trusted ones."),

    NUMBER("box.uid_base", box.uid_base, "", 65536, 0xFF000000, "268435456",
	   "First of the user ids that boxes use, 65536 for each of box.slots_max; a multiple of "
	   "65536."),
    NUMBER("box.host_reserve_mb", box.host_reserve_mb, "MiB", 0, MIB_MAX, "2048",
	   "Memory of the host that boxes never get."),
    NUMBER("box.slots_max", box.slots_max, "boxes", 1, 1024, "256", "Boxes at one time."),
    NUMBER("box.pool", box.pool, "boxes", 0, 64, "4", "Boxes that wait built."),
    NUMBER("box.pool_fresh", box.pool_fresh, "boxes", 0, 64, "1",
	   "Boxes that wait built with a network namespace that no box had before."),
    BOOL("box.netns_ring", box.netns_ring, "true",
	 "true: network namespaces are used again where the tier allows it."),
    NUMBER("box.io_weight", box.io_weight, "", 10, 1000, "100",
	   "Share of each box in the host's disks, where their scheduler has weights."),
    NUMBER("box.disk_max_mb", box.disk_max_mb, "MiB", 1, MIB_MAX, "65536",
	   "Largest workspace that stays."),
    BOOL("box.usr_local", box.usr_local, "false", "true: the image `host` shows /usr/local too."),

    NUMBER(
	"sandbox.max", sandbox.max, "sandboxes", 0, 1000, "64",
	"Sandboxes that run at one time on this host. Each takes one of box.slots_max; what runs and "
	"waiting boxes need of them is kept back, so the number in use can be lower."),
    NUMBER("sandbox.max_per_tenant", sandbox.max_per_tenant, "sandboxes", 0, 1000000, "1000",
	   "Sandboxes of one tenant that are not deleted; 0: no limit."),
    NUMBER("sandbox.default_lifetime_sec", sandbox.default_lifetime_sec, "s", 1, 31536000, "3600",
	   "A sandbox is stopped after so long, unless it asks for another time."),
    NUMBER("sandbox.max_lifetime_sec", sandbox.max_lifetime_sec, "s", 1, 31536000, "86400",
	   "Longest time that a sandbox may ask for."),
    NUMBER("sandbox.disk_mb", sandbox.disk_mb, "MiB", 1, MIB_MAX, "1024",
	   "Workspace of a sandbox that asks for none."),
    NUMBER("sandbox.disk_inodes", sandbox.disk_inodes, "files", 16, 10000000, "65536",
	   "Files and folders in the workspace of a sandbox."),
    NUMBER("sandbox.output_bytes", sandbox.output_bytes, "bytes", 0, 1048576, "65536",
	   "Output of each stream of a command that its answer holds; all of it is in its log."),

    NUMBER("sessions.ttl_sec", sessions.ttl_sec, "s", 0, 31536000, "0",
	   "A session that has no run is deleted after so long; 0: never."),
    NUMBER("sessions.max_per_tenant", sessions.max_per_tenant, "sessions", 0, 1000000, "1000",
	   "Sessions of one tenant; 0: no limit."),
    NUMBER("sessions.delete_drain_ms", sessions.delete_drain_ms, "ms", 0, 600000, "10000",
	   "How long a delete waits for the session's runs to end."),
    NUMBER("sessions.upload_mb", sessions.upload_mb, "MiB", 1, 65536, "64",
	   "Most bytes of the files of one upload."),
    NUMBER("sessions.snapshot_max_count", sessions.snapshot_max_count, "snapshots", 1, 1000, "10",
	   "Snapshots of one session; the oldest go."),
    NUMBER("sessions.snapshot_max_mb", sessions.snapshot_max_mb, "MiB", 1, MIB_MAX, "256",
	   "Disk that the snapshots of one session take; the oldest go, the newest never."),

    NUMBER("data.min_free_pct", data.min_free_pct, "%", 0, 90, "5",
	   "Below this free space of <paths.data> new runs are refused with storage_low."),
};

const size_t policy_key_count = ARRAY_LEN(policy_keys);

_Static_assert(ARRAY_LEN(policy_keys) <= POLICY_KEYS_MAX, "raise POLICY_KEYS_MAX");

void *policy_field(struct policy *policy, const struct policy_key *key)
{
	return (char *)policy + key->offset;
}

const void *policy_field_const(const struct policy *policy, const struct policy_key *key)
{
	return (const char *)policy + key->offset;
}
