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
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

static char top[300];

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
static void add_entry(struct buf *tar, const char *name, char type, const char *data,
		      const char *link)
{
	char h[512] = {0};
	unsigned int sum = 0;
	size_t length = strlen(data);

	(void)snprintf(h, 100, "%s", name);
	(void)snprintf(h + 100, 8, "%07o", 0755U);
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

static void make_tar(struct buf *tar)
{
	static const char zeros[1024];

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
	buf_add(tar, zeros, sizeof(zeros));
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

static const struct test tests[] = {
    {"unpack", "paths", test_paths},
    {"unpack", "one file", test_one_file},
    {"unpack", "tar", test_tar},
    {"unpack", "damage", test_damage},
    {"unpack", "links of the workspace", test_links_of_the_workspace},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
