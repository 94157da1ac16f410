/* test_unpack: the unpacker of uploads (runners/init/unpack.h) in a folder of its own, fed by stdin
 * as in a box: names, traps, damage, and that nothing is left of what fails. */
#include "runners/base/buf.h"
#include "runners/base/fdio.h"
#include "runners/base/str.h"
#include "runners/init/unpack.h"
#include "tests/lib/test.h"

#include <CUnit/CUnit.h>
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#define NOBODY 65534

static char top[300];
static bool as_nobody; /* the next runs: rights count */

static void test_paths(void)
{
	static const struct {
		const char *name;
		const char *path; /* NULL: left out */
	} names[] = {
	    {"a", "a"},
	    {"./a", "a"},
	    {"a//b/./c/", "a/b/c"},
	    {"a..b/...", "a..b/..."},
	    {"", NULL},
	    {".", NULL},
	    {"./", NULL},
	    {"/a", NULL},
	    {"..", NULL},
	    {"a/../b", NULL},
	    {"a/..", NULL},
	    {UNPACK_FOLDER, NULL},
	    {"./" UNPACK_FOLDER "/x", NULL},
	    {UNPACK_FOLDER "x", UNPACK_FOLDER "x"},
	    {"d/" UNPACK_FOLDER, "d/" UNPACK_FOLDER},
	    {"\xff\x01", "\xff\x01"},
	};
	char room[UNPACK_PATH_BYTES];
	char longest[6000];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *got = tree_path(names[i].name, room);

		if (names[i].path == NULL)
			CU_ASSERT_PTR_NULL(got);
		if (names[i].path != NULL)
			ASSERT_TEXT(got, names[i].path);
	}
	CU_ASSERT_PTR_NULL(tree_path(NULL, room));
	memset(longest, 'x', sizeof(longest));
	longest[256] = '\0';
	CU_ASSERT_PTR_NULL(tree_path(longest, room));
	longest[255] = '\0';
	CU_ASSERT_PTR_NOT_NULL(tree_path(longest, room));
	for (size_t i = 0; i < sizeof(longest); i++)
		longest[i] = i % 2 == 0 ? 'd' : '/';
	longest[UNPACK_PATH_BYTES + 10] = '\0';
	CU_ASSERT_PTR_NULL(tree_path(longest, room));
	longest[UNPACK_PATH_BYTES - 3] = '\0';
	CU_ASSERT_PTR_NOT_NULL(tree_path(longest, room));
}

/* --- runs ------------------------------------------------------------------------------------ */

static void enter_fresh(void)
{
	static int count;

	(void)snprintf(top, sizeof(top), "%s/unpack-%d", test_dir(), count++);
	CU_ASSERT_EQUAL_FATAL(mkdir(top, 0755), 0);
}

/* The exit status of the unpacker with that input; what it printed is in said. */
static int unpack(const char *form, const char *name, const void *data, size_t length,
		  char said[256])
{
	const char *input = test_file("input", data, length);
	char word[16];
	char path[600];
	char *argv[3] = {word, path, NULL};
	int ends[2];
	int status = -1;
	ssize_t got;
	pid_t pid;

	(void)snprintf(word, sizeof(word), "%s", form);
	(void)snprintf(path, sizeof(path), "%s", name);
	CU_ASSERT_EQUAL_FATAL(pipe(ends), 0);
	pid = fork();
	if (pid == 0) {
		int fd = open(input, O_RDONLY);

		if (fd < 0 || dup2(fd, 0) < 0 || dup2(ends[1], 1) < 0 || dup2(ends[1], 2) < 0 ||
		    chdir(top) != 0)
			_exit(99);
		if (as_nobody && (setresgid(NOBODY, NOBODY, NOBODY) != 0 ||
				  setresuid(NOBODY, NOBODY, NOBODY) != 0))
			_exit(98);
		(void)close(ends[1]);
		_exit(unpack_main(argv));
	}
	(void)close(ends[1]);
	got = read(ends[0], said, 255);
	said[got < 0 ? 0 : got] = '\0';
	(void)close(ends[0]);
	CU_ASSERT_EQUAL(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int entries(void)
{
	DIR *list = opendir(top);
	int count = -2; /* . and .. */

	while (list != NULL && readdir(list) != NULL)
		count++;
	if (list != NULL)
		(void)closedir(list);
	return count;
}

static bool holds(const char *name, const char *text)
{
	struct buf got;
	struct err e = ERR_INIT;
	char path[700];
	bool same;

	(void)snprintf(path, sizeof(path), "%s/%s", top, name);
	buf_init(&got, 1U << 20);
	same = fd_read_file(AT_FDCWD, path, &got, &e) == 0 && str_equal(buf_text(&got), text);
	buf_release(&got);
	return same;
}

static void test_one_file(void)
{
	char said[256];

	enter_fresh();
	CU_ASSERT_EQUAL(unpack("file", "d/e/f", "text", 4, said), AGENT_UNPACKED);
	ASSERT_TEXT(said, "files=1 bytes=4 skipped=0\n");
	CU_ASSERT_TRUE(holds("d/e/f", "text"));
	CU_ASSERT_EQUAL(entries(), 1);
	CU_ASSERT_EQUAL(unpack("file", "../f", "text", 4, said), AGENT_UNPACKED);
	ASSERT_TEXT(said, "files=0 bytes=0 skipped=1\n");
	CU_ASSERT_EQUAL(unpack("file", "d", "text", 4, said), AGENT_UNPACK_CONFLICT);
	CU_ASSERT_PTR_NOT_NULL(strstr(said, "d is a folder"));
	CU_ASSERT_EQUAL(unpack("file", "d/e/f/g", "text", 4, said), AGENT_UNPACK_CONFLICT);
	CU_ASSERT_EQUAL(unpack("what", "x", "text", 4, said), AGENT_UNPACK_FAILED);
	CU_ASSERT_EQUAL(entries(), 1);
}

/* --- archives -------------------------------------------------------------------------------- */

/* A ustar entry; the archive needs two blocks of zeros at its end. */
static void add_mode(struct buf *tar, const char *name, char type, const char *data,
		     const char *link, unsigned int mode)
{
	char h[512] = {0};
	unsigned int sum = 0;
	size_t length = strlen(data);

	(void)snprintf(h, 100, "%s", name);
	(void)snprintf(h + 100, 8, "%07o", mode);
	(void)snprintf(h + 108, 8, "%07o", 0U);
	(void)snprintf(h + 116, 8, "%07o", 0U);
	(void)snprintf(h + 124, 12, "%011zo", length);
	(void)snprintf(h + 136, 12, "%011o", 1580000000U);
	memset(h + 148, ' ', 8);
	h[156] = type;
	(void)snprintf(h + 157, 100, "%s", link);
	memcpy(h + 257, "ustar\00000", 8);
	for (size_t i = 0; i < sizeof(h); i++)
		sum += (unsigned char)h[i];
	(void)snprintf(h + 148, 8, "%06o", sum);
	buf_add(tar, h, sizeof(h));
	buf_add(tar, data, length);
	memset(h, 0, sizeof(h));
	buf_add(tar, h, (512 - length % 512) % 512);
}

static void add_entry(struct buf *tar, const char *name, char type, const char *data,
		      const char *link)
{
	add_mode(tar, name, type, data, link, 0755);
}

static void add_end(struct buf *tar)
{
	static const char zeros[1024];

	buf_add(tar, zeros, sizeof(zeros));
}

static void make_tar(struct buf *tar)
{
	buf_init(tar, 1U << 20);
	add_entry(tar, "d/", '5', "", "");
	add_entry(tar, "d/f", '0', "one", "");
	add_entry(tar, "../up", '0', "x", "");
	add_entry(tar, "l", '2', "", "/etc/passwd");
	add_entry(tar, "l", '0', "two", "");
	add_entry(tar, "h", '1', "", "/etc/passwd");
	add_entry(tar, "fifo", '6', "", "");
	add_entry(tar, "caf\xc3\xa9", '0', "three", "");
	add_entry(tar, "d/f", '0', "again", "");
	add_end(tar);
}

static void make_gzip(const struct buf *plain, struct buf *out)
{
	static unsigned char packed[1U << 16];
	z_stream z = {0};

	buf_init(out, 1U << 20);
	CU_ASSERT_EQUAL_FATAL(deflateInit2(&z, 0, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY),
			      Z_OK);
	z.next_in = (unsigned char *)plain->data;
	z.avail_in = (unsigned int)plain->len;
	z.next_out = packed;
	z.avail_out = sizeof(packed);
	CU_ASSERT_EQUAL(deflate(&z, Z_FINISH), Z_STREAM_END);
	buf_add(out, packed, sizeof(packed) - z.avail_out);
	(void)deflateEnd(&z);
}

static void is_whole(void)
{
	CU_ASSERT_TRUE(holds("d/f", "again"));
	CU_ASSERT_TRUE(holds("l", "two"));
	CU_ASSERT_TRUE(holds("caf\xc3\xa9", "three"));
	CU_ASSERT_EQUAL(entries(), 3);
}

static void test_tar(void)
{
	struct buf tar;
	struct buf gzip;
	char said[256];

	make_tar(&tar);
	make_gzip(&tar, &gzip);
	enter_fresh();
	CU_ASSERT_EQUAL(unpack("tar", "", tar.data, tar.len, said), AGENT_UNPACKED);
	ASSERT_TEXT(said, "files=3 bytes=13 skipped=4\n");
	is_whole();
	enter_fresh();
	CU_ASSERT_EQUAL(unpack("tar", "", gzip.data, gzip.len, said), AGENT_UNPACKED);
	is_whole();
	/* two members, and zeros behind */
	{
		static const char zeros[100];
		size_t half = gzip.len;

		buf_add(&gzip, zeros, sizeof(zeros));
		CU_ASSERT_EQUAL(unpack("tar", "", gzip.data, half + 100, said), AGENT_UNPACKED);
		is_whole();
	}
	buf_release(&tar);
	buf_release(&gzip);
}

/* Every cut and every flipped byte: refused, or (in what nobody reads) whole. */
static void test_damage(void)
{
	struct buf tar;
	struct buf gzip;
	char said[256];
	int refused = 0;
	int tries = 0;

	make_tar(&tar);
	make_gzip(&tar, &gzip);
	for (size_t i = 1; i < gzip.len; i += 97, tries++) {
		enter_fresh();
		refused += unpack("tar", "", gzip.data, i, said) == AGENT_UNPACK_BROKEN ? 1 : 0;
		CU_ASSERT_EQUAL(entries(), 0);
	}
	CU_ASSERT_EQUAL(refused, tries);
	for (size_t i = 20; i < gzip.len; i += 131) {
		gzip.data[i] ^= 0x20;
		enter_fresh();
		CU_ASSERT_EQUAL(unpack("tar", "", gzip.data, gzip.len, said), AGENT_UNPACK_BROKEN);
		CU_ASSERT_EQUAL(entries(), 0);
		gzip.data[i] ^= 0x20;
	}
	enter_fresh();
	CU_ASSERT_EQUAL(unpack("tar", "", "no tar", 6, said), AGENT_UNPACK_BROKEN);
	CU_ASSERT_EQUAL(unpack("tar", "", "", 0, said), AGENT_UNPACK_BROKEN);
	CU_ASSERT_EQUAL(unpack("zip", "", "PK\3\4 no zip", 11, said), AGENT_UNPACK_BROKEN);
	CU_ASSERT_EQUAL(unpack("zip", "", "", 0, said), AGENT_UNPACK_BROKEN);
	CU_ASSERT_EQUAL(entries(), 0);
	buf_release(&tar);
	buf_release(&gzip);
}

static void test_links_of_the_workspace(void)
{
	char said[256];
	char path[700];
	char outside[600];

	(void)snprintf(outside, sizeof(outside), "%s/outside", test_dir());
	CU_ASSERT_EQUAL_FATAL(mkdir(outside, 0755), 0);
	enter_fresh();
	(void)snprintf(path, sizeof(path), "%s/link", top);
	CU_ASSERT_EQUAL_FATAL(symlink(outside, path), 0);
	CU_ASSERT_EQUAL(unpack("file", "link/x", "text", 4, said), AGENT_UNPACKED);
	ASSERT_TEXT(said, "files=0 bytes=0 skipped=1\n");
	CU_ASSERT_EQUAL(rmdir(outside), 0); /* it is empty */
	/* the link itself is replaced */
	CU_ASSERT_EQUAL(unpack("file", "link", "text", 4, said), AGENT_UNPACKED);
	CU_ASSERT_TRUE(holds("link", "text"));
}

/* --- zips ------------------------------------------------------------------------------------ */

struct zip {
	struct buf all;
	struct buf list;
	unsigned int entries;
	size_t data_at; /* of the last entry */
	size_t data_length;
	size_t list_at; /* of the central directory */
};

static void add_number(struct buf *out, uint64_t value, int bytes)
{
	for (int i = 0; i < bytes; i++)
		buf_add_char(out, (char)(value >> (8 * i)));
}

/* The fields that both headers have. */
static void add_common(struct buf *out, int method, uint32_t crc, size_t packed, size_t size,
		       const char *name)
{
	add_number(out, 20, 2);
	add_number(out, 0, 2);
	add_number(out, (uint64_t)method, 2);
	add_number(out, 0, 2);
	add_number(out, 0x21, 2);
	add_number(out, crc, 4);
	add_number(out, packed, 4);
	add_number(out, size, 4);
	add_number(out, strlen(name), 2);
	add_number(out, 0, 2);
}

static void zip_add(struct zip *z, const char *name, bool deflated, const char *data, size_t length,
		    uint32_t crc_error, size_t size_error)
{
	static unsigned char packed[1U << 16];
	z_stream d = {0};
	uint32_t crc = (uint32_t)crc32(0, (const unsigned char *)data, (unsigned int)length);
	size_t at = z->all.len;
	int method = deflated ? Z_DEFLATED : 0;

	CU_ASSERT_EQUAL_FATAL(deflateInit2(&d, 9, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY), Z_OK);
	d.next_in = (unsigned char *)(uintptr_t)data;
	d.avail_in = (unsigned int)length;
	d.next_out = packed;
	d.avail_out = sizeof(packed);
	CU_ASSERT_EQUAL(deflate(&d, Z_FINISH), Z_STREAM_END);
	z->data_length = deflated ? sizeof(packed) - d.avail_out : length;
	(void)deflateEnd(&d);
	buf_add(&z->all, "PK\3\4", 4);
	add_common(&z->all, method, crc ^ crc_error, z->data_length, length + size_error, name);
	buf_add_str(&z->all, name);
	z->data_at = z->all.len;
	buf_add(&z->all, deflated ? (const void *)packed : data, z->data_length);
	buf_add(&z->list, "PK\1\2\24\3", 6);
	add_common(&z->list, method, crc ^ crc_error, z->data_length, length + size_error, name);
	add_number(&z->list, 0, 6);
	add_number(&z->list, 0100644U << 16, 4);
	add_number(&z->list, at, 4);
	buf_add_str(&z->list, name);
	z->entries++;
}

static void zip_end(struct zip *z)
{
	z->list_at = z->all.len;
	buf_add(&z->all, z->list.data, z->list.len);
	buf_add(&z->all, "PK\5\6\0\0\0\0", 8);
	add_number(&z->all, z->entries, 2);
	add_number(&z->all, z->entries, 2);
	add_number(&z->all, z->list.len, 4);
	add_number(&z->all, z->list_at, 4);
	add_number(&z->all, 0, 2);
}

static void zip_begin(struct zip *z)
{
	memset(z, 0, sizeof(*z));
	buf_init(&z->all, 1U << 20);
	buf_init(&z->list, 1U << 20);
}

static void zip_release(struct zip *z)
{
	buf_release(&z->all);
	buf_release(&z->list);
}

static int unpack_zip(const struct zip *z, char said[256])
{
	return unpack("zip", "", z->all.data, z->all.len, said);
}

static void test_zip(void)
{
	struct zip z;
	char said[256];

	zip_begin(&z);
	zip_add(&z, "d/stored", false, "one", 3, 0, 0);
	zip_add(&z, "d/deflated", true, "two two two two", 15, 0, 0);
	zip_add(&z, "empty", false, "", 0, 0, 0);
	zip_end(&z);
	enter_fresh();
	CU_ASSERT_EQUAL(unpack_zip(&z, said), AGENT_UNPACKED);
	ASSERT_TEXT(said, "files=3 bytes=18 skipped=0\n");
	CU_ASSERT_TRUE(holds("d/stored", "one"));
	CU_ASSERT_TRUE(holds("d/deflated", "two two two two"));
	CU_ASSERT_TRUE(holds("empty", ""));
	zip_release(&z);
}

/* Each byte of the data flipped, each bit of it once: refused, or exactly what it was. */
static void test_zip_flipped(void)
{
	char text[400];
	char said[256];

	for (size_t i = 0; i < sizeof(text) - 1; i++)
		text[i] = (char)('a' + (i * i + i / 7) % 23);
	text[sizeof(text) - 1] = '\0';
	for (int deflated = 0; deflated < 2; deflated++) {
		struct zip z;

		zip_begin(&z);
		zip_add(&z, "f", deflated == 1, text, strlen(text), 0, 0);
		zip_end(&z);
		for (size_t i = 0; i < z.data_length; i++) {
			char *byte = z.all.data + z.data_at + i;
			char bit = (char)(1U << (i % 8));
			int end;

			*byte ^= bit;
			enter_fresh();
			end = unpack_zip(&z, said);
			if (end == AGENT_UNPACKED)
				CU_ASSERT_TRUE(holds("f", text));
			if (end != AGENT_UNPACKED) {
				CU_ASSERT_EQUAL(end, AGENT_UNPACK_BROKEN);
				CU_ASSERT_EQUAL(entries(), 0);
			}
			CU_ASSERT_FALSE(deflated == 0 && end == AGENT_UNPACKED);
			*byte ^= bit;
		}
		zip_release(&z);
	}
}

static void test_zip_fields(void)
{
	static const struct {
		uint32_t crc_error;
		size_t size_error;
	} errors[] = {{1, 0}, {0, 1}, {0, (size_t)-1}, {0, 0x70000000}};
	char said[256];

	for (int deflated = 0; deflated < 2; deflated++) {
		for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
			struct zip z;

			zip_begin(&z);
			zip_add(&z, "good", false, "good", 4, 0, 0);
			zip_add(&z, "f", deflated == 1, "text text text", 14, errors[i].crc_error,
				errors[i].size_error);
			zip_end(&z);
			enter_fresh();
			CU_ASSERT_EQUAL(unpack_zip(&z, said), AGENT_UNPACK_BROKEN);
			CU_ASSERT_EQUAL(entries(), 0);
			zip_release(&z);
		}
	}
	/* the two headers differ */
	for (size_t field = 16; field < 28; field += 4) {
		struct zip z;

		zip_begin(&z);
		zip_add(&z, "f", true, "text text text", 14, 0, 0);
		zip_end(&z);
		z.all.data[z.list_at + field] ^= 1;
		enter_fresh();
		CU_ASSERT_EQUAL(unpack_zip(&z, said), AGENT_UNPACK_BROKEN);
		CU_ASSERT_EQUAL(entries(), 0);
		zip_release(&z);
	}
}

/* --- the move -------------------------------------------------------------------------------- */

static const char *in_top(const char *name)
{
	static char path[700];

	(void)snprintf(path, sizeof(path), "%s/%s", top, name);
	return path;
}

static void make_there(const char *name, const char *text, mode_t mode)
{
	int fd = -1;

	if (text == NULL)
		CU_ASSERT_EQUAL(mkdir(in_top(name), 0755), 0);
	if (text != NULL) {
		fd = open(in_top(name), O_WRONLY | O_CREAT | O_TRUNC, 0600);
		CU_ASSERT_EQUAL(write(fd, text, strlen(text)), (ssize_t)strlen(text));
		(void)close(fd);
	}
	CU_ASSERT_EQUAL(chown(in_top(name), NOBODY, NOBODY), 0);
	CU_ASSERT_EQUAL(chmod(in_top(name), mode), 0);
}

static mode_t mode_of(const char *name, time_t *mtime)
{
	struct stat st = {0};

	CU_ASSERT_EQUAL(lstat(in_top(name), &st), 0);
	if (mtime != NULL)
		*mtime = st.st_mtime;
	return st.st_mode & 07777;
}

static bool is_missing(const char *name)
{
	return access(in_top(name), F_OK) != 0;
}

static int unpack_tar(struct buf *tar, char said[256])
{
	int end;

	add_end(tar);
	end = unpack("tar", "", tar->data, tar->len, said);
	buf_release(tar);
	return end;
}

static void enter_as_nobody(void)
{
	enter_fresh();
	CU_ASSERT_EQUAL(chmod(test_dir(), 0755), 0);
	CU_ASSERT_EQUAL(chown(top, NOBODY, NOBODY), 0);
	as_nobody = true;
}

static void test_no_rights(void)
{
	struct buf tar;
	char said[256];

	enter_as_nobody();
	make_there("ro", NULL, 0555);
	make_there("both", NULL, 0755);
	make_there("both/old", "old", 0600);
	make_there("zz", "zz", 0600);
	buf_init(&tar, 1U << 20);
	add_entry(&tar, "aaa", '0', "new", "");
	add_entry(&tar, "both/old", '0', "new", "");
	add_entry(&tar, "both/new/x", '0', "new", "");
	add_mode(&tar, "both/closed/", '5', "", "", 0555);
	add_entry(&tar, "both/closed/x", '0', "new", "");
	add_entry(&tar, "ro/f", '0', "new", "");
	add_entry(&tar, "zz", '0', "new", "");
	CU_ASSERT_EQUAL(unpack_tar(&tar, said), AGENT_UNPACK_CONFLICT);
	ASSERT_TEXT(said, "ro/f: no right to write there in the workspace\n");
	CU_ASSERT_EQUAL(entries(), 3);
	CU_ASSERT_TRUE(holds("both/old", "old"));
	CU_ASSERT_TRUE(holds("zz", "zz"));
	CU_ASSERT_TRUE(is_missing("both/new"));
	CU_ASSERT_TRUE(is_missing("both/closed"));
	/* nothing to write in it */
	buf_init(&tar, 1U << 20);
	add_entry(&tar, "ro/", '5', "", "");
	add_entry(&tar, "aaa", '0', "new", "");
	CU_ASSERT_EQUAL(unpack_tar(&tar, said), AGENT_UNPACKED);
	CU_ASSERT_EQUAL(mode_of("ro", NULL), 0555);
	/* the workspace itself */
	CU_ASSERT_EQUAL(chmod(top, 0555), 0);
	CU_ASSERT_EQUAL(unpack("file", "f", "text", 4, said), AGENT_UNPACK_CONFLICT);
	CU_ASSERT_EQUAL(chmod(top, 0755), 0);
	as_nobody = false;
}

/* Our folder's name taken by a run. */
static void test_folder_taken(void)
{
	char said[256];

	enter_as_nobody();
	make_there(UNPACK_FOLDER, "a file", 0);
	CU_ASSERT_EQUAL(unpack("file", "f", "text", 4, said), AGENT_UNPACKED);
	CU_ASSERT_EQUAL(entries(), 1);
	make_there(UNPACK_FOLDER, NULL, 0755);
	make_there(UNPACK_FOLDER "/d", NULL, 0755);
	make_there(UNPACK_FOLDER "/d/e", NULL, 0);
	CU_ASSERT_EQUAL(chmod(in_top(UNPACK_FOLDER), 0), 0);
	CU_ASSERT_EQUAL(unpack("file", "f", "text", 4, said), AGENT_UNPACKED);
	CU_ASSERT_EQUAL(entries(), 1);
	as_nobody = false;
}

static void test_modes_and_times(void)
{
	struct buf tar;
	time_t mtime = 0;
	char said[256];

	enter_as_nobody();
	make_there("old", NULL, 0700);
	buf_init(&tar, 1U << 20);
	add_entry(&tar, ".", '5', "", "");
	add_entry(&tar, "./", '5', "", "");
	add_mode(&tar, "old", '5', "", "", 0755);
	add_mode(&tar, "closed/", '5', "", "", 0555);
	add_mode(&tar, "closed/none/", '5', "", "", 0);
	add_entry(&tar, "closed/none/f", '0', "text", "");
	add_mode(&tar, "old/new", '5', "", "", 06775);
	add_entry(&tar, "implied/f", '0', "text", "");
	/* a file that may not be written, twice */
	add_mode(&tar, "twice", '0', "one", "", 0444);
	add_mode(&tar, "twice", '0', "two", "", 0444);
	CU_ASSERT_EQUAL(unpack_tar(&tar, said), AGENT_UNPACKED);
	ASSERT_TEXT(said, "files=3 bytes=11 skipped=0\n");
	CU_ASSERT_EQUAL(mode_of("old", &mtime), 0700);
	CU_ASSERT_NOT_EQUAL(mtime, 1580000000);
	CU_ASSERT_EQUAL(mode_of("closed", &mtime), 0555);
	CU_ASSERT_EQUAL(mtime, 1580000000);
	CU_ASSERT_EQUAL(mode_of("closed/none", &mtime), 0);
	CU_ASSERT_EQUAL(mtime, 1580000000);
	CU_ASSERT_EQUAL(mode_of("old/new", &mtime), 0775);
	CU_ASSERT_EQUAL(mtime, 1580000000);
	CU_ASSERT_EQUAL(mode_of("implied", NULL), 0755);
	CU_ASSERT_EQUAL(mode_of("twice", NULL), 0444);
	CU_ASSERT_TRUE(holds("twice", "two"));
	as_nobody = false;
}

/* What is new goes without a further inode: a workspace whose inodes end, in a mount of our own. */
static void test_inodes_end(void)
{
	struct buf tar;
	char name[64];
	char said[256];

	enter_fresh();
	if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
	    mount("tmpfs", top, "tmpfs", 0, "nr_inodes=200,size=16m") != 0)
		return; /* no right to mount here */
	make_there("f000", "old", 0600);
	/* fits, and nearly all inodes are used */
	buf_init(&tar, 1U << 20);
	for (int i = 0; i < 180; i++) {
		(void)snprintf(name, sizeof(name), i % 2 == 0 ? "f%03d" : "d%03d/", i);
		add_entry(&tar, name, i % 2 == 0 ? '0' : '5', "", "");
	}
	CU_ASSERT_EQUAL(unpack_tar(&tar, said), AGENT_UNPACKED);
	CU_ASSERT_EQUAL(entries(), 180);
	buf_init(&tar, 1U << 20);
	add_entry(&tar, "f000", '0', "new", "");
	for (int i = 0; i < 180; i++) {
		(void)snprintf(name, sizeof(name), "new%03d/", i);
		add_entry(&tar, name, '5', "", "");
	}
	CU_ASSERT_EQUAL(unpack_tar(&tar, said), AGENT_UNPACK_FULL);
	CU_ASSERT_EQUAL(entries(), 180);
	CU_ASSERT_TRUE(holds("f000", ""));
	(void)umount2(top, MNT_DETACH);
}

static void add_long(struct buf *tar, const char *name, const char *data)
{
	/* GNU's entry for a long name */
	add_entry(tar, "././@LongLink", 'L', name, "");
	add_entry(tar, "short", '0', data, "");
}

/* 1,200 files in a path of 1,900 folders, new and into what is there, and removed after a conflict.
 */
static void test_deep(void)
{
	static char path[4096];
	struct timespec from;
	struct timespec to;
	char said[256];
	struct buf tar;

	enter_fresh();
	for (int round = 0; round < 3; round++) {
		buf_init(&tar, 16U << 20);
		for (int i = 0; i < 1200; i++) {
			size_t used = 0;

			for (int d = 0; d < 1900; d++) {
				path[used++] = 'd';
				path[used++] = '/';
			}
			(void)snprintf(path + used, sizeof(path) - used, "%d",
				       round == 1 ? i + 600 : i);
			add_long(&tar, path, "x");
		}
		if (round == 2)
			add_entry(&tar, "d", '0', "x", "");
		(void)clock_gettime(CLOCK_MONOTONIC, &from);
		CU_ASSERT_EQUAL(unpack_tar(&tar, said), AGENT_UNPACKED);
		(void)clock_gettime(CLOCK_MONOTONIC, &to);
		CU_ASSERT(to.tv_sec - from.tv_sec < 10);
		ASSERT_TEXT(said, round == 2 ? "files=1200 bytes=1200 skipped=1\n"
					     : "files=1200 bytes=1200 skipped=0\n");
		CU_ASSERT_EQUAL(entries(), 1);
	}
}

/* A hole at the end of a tar's file, and sums of sizes beyond what a report may hold. */
static void test_holes(void)
{
	char said[256];
	struct stat st = {0};
	const char *pax = "22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n"
			  "21 GNU.sparse.name=s\n31 GNU.sparse.realsize=1000000\n";
	char map[512] = "1\n0\n3\n";
	char data[516];
	struct buf tar;

	memcpy(data, map, sizeof(map));
	memcpy(data + sizeof(map), "abc", 4);
	enter_fresh();
	buf_init(&tar, 1U << 20);
	add_entry(&tar, "pax", 'x', pax, "");
	/* the map has zeros in it: the data is put behind the header by hand */
	{
		size_t at = tar.len;
		char text[516];

		memset(text, 'z', sizeof(text) - 1);
		text[sizeof(text) - 1] = '\0';
		add_entry(&tar, "GNUSparseFile.0/s", '0', text, "");
		memcpy(tar.data + at + 512, data, 515);
	}
	CU_ASSERT_EQUAL(unpack_tar(&tar, said), AGENT_UNPACKED);
	ASSERT_TEXT(said, "files=1 bytes=1000000 skipped=0\n");
	CU_ASSERT_EQUAL(stat(in_top("s"), &st), 0);
	CU_ASSERT_EQUAL(st.st_size, 1000000);
	CU_ASSERT_TRUE(st.st_blocks < 100);
}

static const struct test tests[] = {
    {"unpack", "paths", test_paths},
    {"unpack", "one file", test_one_file},
    {"unpack", "tar", test_tar},
    {"unpack", "damage", test_damage},
    {"unpack", "links of the workspace", test_links_of_the_workspace},
    {"unpack", "zip", test_zip},
    {"unpack", "zip, each byte flipped", test_zip_flipped},
    {"unpack", "zip, wrong fields", test_zip_fields},
    {"unpack", "no rights", test_no_rights},
    {"unpack", "our folder taken", test_folder_taken},
    {"unpack", "modes and times", test_modes_and_times},
    {"unpack", "inodes end", test_inodes_end},
    {"unpack", "deep", test_deep},
    {"unpack", "holes", test_holes},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
