#include "runners/exec/slot_file.h"

#include "runners/base/fdio.h"
#include "runners/base/num.h"
#include "runners/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/stat.h>

#define NAME_BYTES       16
#define STAT_START_FIELD 22

_Static_assert(sizeof(struct slot_record) == offsetof(struct slot_record, sum) + sizeof(uint64_t),
	       "no bytes may follow the sum");

/* FNV-1a: against torn and foreign files, not against an enemy (only root can write there). */
static uint64_t sum_of(const struct slot_record *r)
{
	const unsigned char *p = (const unsigned char *)r;
	uint64_t sum = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < offsetof(struct slot_record, sum); i++)
		sum = (sum ^ p[i]) * UINT64_C(0x100000001b3);
	return sum;
}

void slot_record_seal(struct slot_record *r)
{
	r->magic = SLOT_RECORD_MAGIC;
	r->version = SLOT_RECORD_VERSION;
	r->size = (uint32_t)sizeof(*r);
	r->sum = sum_of(r);
}

static bool is_text(const char *text, size_t size)
{
	return text[0] != '\0' && memchr(text, '\0', size) != NULL;
}

int slot_record_check(const void *data, size_t length, struct slot_record *out, struct err *e)
{
	struct slot_record r;

	if (length != sizeof(r))
		return err_set(e, ERR_PROTOCOL, 0, "a slot file of %zu bytes, not %zu", length,
			       sizeof(r));
	memcpy(&r, data, sizeof(r));
	if (r.magic != SLOT_RECORD_MAGIC || r.version != SLOT_RECORD_VERSION || r.size != sizeof(r))
		return err_set(e, ERR_PROTOCOL, 0, "no slot file of version %u",
			       SLOT_RECORD_VERSION);
	if (r.sum != sum_of(&r))
		return err_set(e, ERR_PROTOCOL, 0, "a damaged slot file");
	if (!is_text(r.instance, sizeof(r.instance)) ||
	    !is_text(r.agent_path, sizeof(r.agent_path)) || !is_text(r.run_id, sizeof(r.run_id)))
		return err_set(e, ERR_PROTOCOL, 0, "a slot file with a text that has no end");
	if (box_run_id_check(r.run_id, e) != 0)
		return -1;
	if (memchr(r.workspace, '\0', sizeof(r.workspace)) == NULL || r.workspace[0] == '.' ||
	    (r.workspace[0] != '\0' && box_run_id_check(r.workspace, e) != 0) || r.maintain > 1 ||
	    r.until_us < 0)
		return err_set(e, ERR_PROTOCOL, 0,
			       "a slot file with a wrong workspace or lifetime");
	if (r.slot >= BOX_MAX_SLOTS || r.pid <= 1 || r.mode <= BOX_MODE_NONE ||
	    r.mode >= BOX_MODE__MAX || r.created_us < 0)
		return err_set(e, ERR_PROTOCOL, 0, "a slot file with a value out of range");
	*out = r;
	return 0;
}

static void name_of(unsigned int slot, char out[NAME_BYTES])
{
	(void)snprintf(out, NAME_BYTES, "s%u", slot);
}

int slot_file_write(int dir, const struct slot_record *r, struct err *e)
{
	char name[NAME_BYTES];

	name_of(r->slot, name);
	return fd_replace_file(dir, name, r, sizeof(*r), 0600, e);
}

int slot_file_read(int dir, unsigned int slot, struct slot_record *out, struct err *e)
{
	char data[sizeof(struct slot_record) + 1];
	char name[NAME_BYTES];
	struct slot_record r;
	scope_close int fd = -1;
	struct stat st;
	ssize_t got;

	name_of(slot, name);
	fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return err_set(e, ERR_IO, errno, "open %s", name);
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != 0 ||
	    (st.st_mode & 077) != 0)
		return err_set(e, ERR_DENIED, 0, "%s is no file of root alone", name);
	do
		got = read(fd, data, sizeof(data));
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return err_set(e, ERR_IO, errno, "read %s", name);
	if (slot_record_check(data, (size_t)got, &r, e) != 0)
		return -1;
	if (r.slot != slot)
		return err_set(e, ERR_PROTOCOL, 0, "%s tells of slot %u", name, r.slot);
	*out = r;
	return 0;
}

void slot_file_remove(int dir, unsigned int slot)
{
	char name[NAME_BYTES];

	name_of(slot, name);
	(void)unlinkat(dir, name, 0);
}

int proc_start_ticks_parse(const char *text, uint64_t *out, struct err *e)
{
	/* the name is in parentheses and may hold both of them and spaces */
	const char *p = strrchr(text, ')');
	char digits[32];
	size_t length;

	for (int field = 2; p != NULL && field < STAT_START_FIELD; field++) {
		p = strchr(p, ' ');
		if (p != NULL)
			p++;
	}
	length = p == NULL ? 0 : strspn(p, "0123456789");
	if (length == 0 || length >= sizeof(digits))
		return err_set(e, ERR_PROTOCOL, 0, "no start time in /proc/PID/stat");
	memcpy(digits, p, length);
	digits[length] = '\0';
	return num_u64("start time", digits, 0, UINT64_MAX, out, e);
}

int proc_start_ticks(pid_t pid, uint64_t *out, struct err *e)
{
	char text[1024];
	char path[64];
	scope_close int fd = -1;
	ssize_t got;

	(void)snprintf(path, sizeof(path), "/proc/%ld/stat", (long)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_set(e, ERR_NOT_FOUND, errno, "no process %ld", (long)pid);
	got = read(fd, text, sizeof(text) - 1);
	if (got <= 0)
		return err_set(e, ERR_NOT_FOUND, errno, "no process %ld", (long)pid);
	text[got] = '\0';
	return proc_start_ticks_parse(text, out, e);
}
