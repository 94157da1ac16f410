#include "runners/core/store_park.h"

#include "runners/base/ident.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"

#define BATCH 200

struct parked {
	int64_t job;
	char tenant[65];
	char user[65];
	char persona[256];
	char workspace[256];
	char group[256];
};

bool park_is_on(const struct policy *policy)
{
	return policy->active.max_per_user > 0 || policy->active.max_per_persona > 0 ||
	       policy->active.max_per_workspace > 0 || policy->active.max_per_workspace_group > 0;
}

int park_judge(struct store *db, const struct policy *policy, const struct park_tags *tags,
	       struct err *e)
{
	const struct {
		enum statement count;
		int64_t limit;
		const char *tag;
	} limits[] = {
	    {STMT_ACTIVE_COUNT_USER, policy->active.max_per_user, tags->user},
	    {STMT_ACTIVE_COUNT_PERSONA, policy->active.max_per_persona, tags->persona},
	    {STMT_ACTIVE_COUNT_WORKSPACE, policy->active.max_per_workspace, tags->workspace},
	    {STMT_ACTIVE_COUNT_GROUP, policy->active.max_per_workspace_group, tags->group},
	};

	for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
		struct store_value in[] = {SV_TEXT(policy->node), SV_TEXT(tags->tenant),
					   SV_TEXT(tags->user), SV_TEXT(limits[i].tag)};
		int64_t active;

		if (limits[i].limit <= 0 || limits[i].tag[0] == '\0')
			continue;
		if (store_query_row(db, limits[i].count, in, i == 0 ? 3 : 4, e) != 1)
			return -1;
		active = store_i64(db, 0);
		store_done(db);
		if (active >= limits[i].limit)
			return 1;
	}
	return 0;
}

struct release_work {
	const struct policy *policy;
	const struct parked *parked;
	bool released;
};

static int release_body(struct store *db, void *arg, struct err *e)
{
	struct release_work *w = arg;
	const struct parked *p = w->parked;
	const struct park_tags tags = {.tenant = p->tenant,
				       .user = p->user,
				       .persona = p->persona,
				       .workspace = p->workspace,
				       .group = p->group};
	struct store_value tenant[] = {SV_TEXT(p->tenant)};
	struct store_value job[] = {SV_I64(p->job)};
	uint64_t changed = 0;
	int got = store_query_row(db, STMT_TENANT_LOCK, tenant, 1, e);

	w->released = false;
	store_done(db);
	if (got <= 0)
		return got;
	got = park_judge(db, w->policy, &tags, e);
	if (got != 0)
		return got < 0 ? -1 : 0;
	if (store_exec(db, STMT_JOB_UNPARK, job, 1, &changed, e) != 0)
		return -1;
	w->released = changed == 1;
	return 0;
}

static void column(char *out, size_t size, const struct store *db, unsigned int i)
{
	if (str_copy(out, size, store_text(db, i)) != 0)
		out[0] = '\0';
}

int park_release(struct store *db, const struct policy *policy, size_t *out_count, struct err *e)
{
	struct store_value in[] = {SV_TEXT(policy->node), SV_I64(BATCH)};
	scope_free struct parked *list = mem_zalloc(BATCH, sizeof(*list));
	size_t count = 0;
	int got;

	*out_count = 0;
	if (list == NULL)
		return err_set(e, ERR_NOMEM, 0, "parked jobs");
	if (store_query(db, STMT_PARKED_LIST, in, ARRAY_LEN(in), e) != 0)
		return -1;
	while ((got = store_next(db, e)) == 1 && count < BATCH) {
		struct parked *p = &list[count++];

		p->job = store_i64(db, 0);
		column(p->tenant, sizeof(p->tenant), db, 1);
		column(p->user, sizeof(p->user), db, 2);
		column(p->persona, sizeof(p->persona), db, 3);
		column(p->workspace, sizeof(p->workspace), db, 4);
		column(p->group, sizeof(p->group), db, 5);
	}
	store_done(db);
	for (size_t i = 0; got >= 0 && i < count; i++) {
		struct release_work w = {.policy = policy, .parked = &list[i]};

		/* each by itself: one lock at a time */
		got = store_retry(db, release_body, &w, e);
		*out_count += got == 0 && w.released ? 1 : 0;
	}
	return got < 0 ? -1 : 0;
}
