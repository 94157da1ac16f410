#include "fcgi/scoreboard.h"

#include "runners/base/clock.h"

#include <errno.h>
#include <sys/mman.h>

static size_t board_bytes(size_t workers)
{
	return sizeof(struct scoreboard) + workers * sizeof(struct score);
}

int scoreboard_create(size_t workers, struct scoreboard **out, struct err *e)
{
	struct scoreboard *board = mmap(NULL, board_bytes(workers), PROT_READ | PROT_WRITE,
					MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (board == MAP_FAILED)
		return err_set(e, ERR_NOMEM, errno, "scoreboard");
	board->count = workers;
	*out = board;
	return 0;
}

void scoreboard_destroy(struct scoreboard *board)
{
	if (board != NULL)
		(void)munmap(board, board_bytes(board->count));
}

void score_stage(struct score *slot, enum worker_stage stage, const char *request_id)
{
	(void)snprintf(slot->request_id, sizeof(slot->request_id), "%s", request_id);
	atomic_store(&slot->since_us, clock_monotonic_us());
	atomic_store(&slot->stage, (int)stage);
}

const char *stage_name(enum worker_stage stage)
{
	static const char *const names[] = {"empty", "idle", "reading", "handling", "writing"};

	return names[stage];
}
