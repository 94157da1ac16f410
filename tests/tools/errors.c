/*
 * errors: the table of error codes seen by the build.
 *
 *	errors doc	docs/errors.md
 *	errors list	one line "status code" per row
 */
#include "handlers/errors.h"

#include "runners/base/str.h"

int main(int argc, char **argv)
{
	struct buf text;
	bool good;

	buf_init(&text, 1U << 16);
	if (argc == 2 && str_equal(argv[1], "doc")) {
		errors_doc(&text);
	} else if (argc == 2 && str_equal(argv[1], "list")) {
		errors_list(&text);
	} else {
		(void)fputs("usage: errors doc|list\n", stderr);
		return 64;
	}
	good = buf_ok(&text) && fputs(buf_text(&text), stdout) >= 0 && fflush(stdout) == 0;
	buf_release(&text);
	return good ? 0 : 1;
}
