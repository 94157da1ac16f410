/* policy, sweep and image: small commands on the host. */
#include "runners/ctl/ctl.h"

#include "runners/base/clock.h"
#include "runners/base/fdio.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "runners/core/image.h"
#include "runners/core/notify.h"
#include "runners/core/store_sweep.h"

#include <fcntl.h>

#define ETC_DIR     "/etc/cordon/"
#define LIMITS_PATH ETC_DIR "box.limits"

static int install(struct ctl *ctl, const char *to)
{
	scope_buf struct buf text = BUF_NONE;
	struct err e = ERR_INIT;

	buf_init(&text, 1U << 16);
	policy_box_limits(ctl->policy, &text);
	if (!buf_ok(&text))
		(void)err_set(&e, ERR_NOMEM, 0, "box.limits");
	else
		(void)fd_replace_file(AT_FDCWD, to, text.data, text.len, 0644, &e);
	if (e.code != ERR_NONE)
		return ctl_fail(ctl, &e);
	if (ctl->json)
		ctl_print_json(json_pack("{s:s}", "installed", to));
	else
		(void)printf(
		    "wrote %s; now reload cordon-fcgi and cordon-gate (HUP), restart cordon-runner and cordon-box\n",
		    to);
	return 0;
}

int ctl_policy(struct ctl *ctl)
{
	const char *verb = ctl_word(ctl);
	const char *to = ctl_option(ctl, "--to");
	int status = ctl_finish(ctl);

	if (status != 0)
		return status;
	if (verb != NULL && str_equal(verb, "install")) {
		/* the ceilings of a policy of somewhere else are not those of this host */
		if (to == NULL && !str_starts(ctl->policy_path, ETC_DIR))
			return ctl_usage("policy install needs --to FILE, because the policy is "
					 "not below " ETC_DIR);
		return install(ctl, to == NULL ? LIMITS_PATH : to);
	}
	if (verb == NULL || !str_equal(verb, "check"))
		return ctl_usage("policy needs check or install");
	/* a bad one was refused before we came here */
	if (ctl->json)
		ctl_print_json(json_pack("{s:s, s:b}", "policy", ctl->policy_path, "good", 1));
	else
		(void)printf("%s is good\n", ctl->policy_path);
	return 0;
}

/* One image so far; the policy's names for it are what a base_image may say. */
static void print_image(const struct ctl *ctl, const char *digest)
{
	json_t *names = json_array();

	for (size_t i = 0; i < ctl->policy->images.count; i++)
		(void)json_array_append_new(names, json_string(ctl->policy->images.items[i].key));
	if (ctl->json) {
		ctl_print_json(json_pack("[{s:s, s:s, s:s, s:o}]", "name", "host", "digest", digest,
					 "kind", "view of the host", "requested_as", names));
		return;
	}
	(void)printf("host  %s  view of the host's /usr; asked for as", digest);
	for (size_t i = 0; i < json_array_size(names); i++)
		(void)printf("%s %s", i == 0 ? "" : ",",
			     json_string_value(json_array_get(names, i)));
	(void)puts("");
	json_decref(names);
}

int ctl_image(struct ctl *ctl)
{
	const char *verb = ctl_word(ctl);
	char digest[IMAGE_DIGEST_SIZE];
	struct err e = ERR_INIT;
	int status = ctl_finish(ctl);

	if (status != 0)
		return status;
	if (verb == NULL || !str_equal(verb, "list"))
		return ctl_usage("image needs list");
	if (image_digest("host", digest, &e) != 0)
		return ctl_fail(ctl, &e);
	print_image(ctl, digest);
	return 0;
}

/* One look at the beats cannot tell that a runner is dead, so this waits for runner.dead_after_ms.
 */
static int sweep_runners(struct ctl *ctl, struct store *db, struct swept *out, size_t *out_runs,
			 struct err *e)
{
	scope_free struct beat_watch *watch = mem_zalloc(1, sizeof(*watch));
	scope_free struct swept *dead = mem_zalloc(1, sizeof(*dead));
	int64_t limit_us = ctl->policy->runner.dead_after_ms * CLOCK_US_PER_MS;
	int64_t until_us = clock_monotonic_us() + limit_us + 2 * CLOCK_US_PER_S;

	if (watch == NULL || dead == NULL)
		return err_set(e, ERR_NOMEM, 0, "sweep");
	while (clock_monotonic_us() < until_us) {
		if (sweep_watch(db, watch, limit_us, dead, e) != 0)
			return -1;
		for (size_t i = 0; i < dead->count; i++) {
			do {
				if (sweep_owner(db, dead->ids[i], out, e) != 0)
					return -1;
				*out_runs += out->count;
			} while (out->count == SWEEP_BATCH);
		}
		clock_sleep_us(CLOCK_US_PER_S);
	}
	return 0;
}

int ctl_sweep(struct ctl *ctl)
{
	scope_free struct swept *out = mem_zalloc(1, sizeof(*out));
	struct store *db = NULL;
	struct err e = ERR_INIT;
	size_t expired = 0;
	size_t lost = 0;
	size_t keys = 0;
	size_t batch = 0;
	int status = ctl_finish(ctl);

	if (status != 0)
		return status;
	if (out == NULL || ctl_store(ctl, &db, &e) != 0)
		return ctl_fail(ctl, &e);
	do {
		if (sweep_queue(db, out, &e) != 0)
			break;
		expired += out->count;
	} while (out->count == SWEEP_BATCH);
	do {
		if (e.code != ERR_NONE || sweep_idempotency(db, &batch, &e) != 0)
			break;
		keys += batch;
	} while (batch == SWEEP_BATCH);
	if (e.code == ERR_NONE) {
		if (!ctl->json)
			(void)fprintf(stderr, "watching the runners for %lld s\n",
				      (long long)(ctl->policy->runner.dead_after_ms / 1000 + 2));
		(void)sweep_runners(ctl, db, out, &lost, &e);
	}
	store_close(db);
	if (e.code != ERR_NONE)
		return ctl_fail(ctl, &e);
	if (ctl->json)
		ctl_print_json(json_pack("{s:I, s:I, s:I}", "queue_expired", (json_int_t)expired,
					 "box_lost", (json_int_t)lost, "idempotency_keys",
					 (json_int_t)keys));
	else
		(void)printf("queue expired %zu, box lost %zu, idempotency keys %zu\n", expired,
			     lost, keys);
	return 0;
}
