/*
 * Terminals of commands. The agent holds the master, and until the command has ended the slave too:
 * so a program may close its terminal and open /dev/tty again, and EIO at the master always means
 * that the command and all others who had the terminal are gone.
 */
#include "runners/init/server.h"

#include "runners/base/fdio.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>

#define STANDARD_EOF 4 /* ^D */

int pty_open(uint16_t rows, uint16_t cols, int *out_master, int *out_slave, struct err *e)
{
	scope_close int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
	scope_close int slave = -1;
	struct termios modes;
	int unlock = 0;

	if (master < 0)
		return err_set(e, errno == ENOSPC ? ERR_LIMIT : ERR_IO, errno, "open a terminal");
	if (ioctl(master, TIOCSPTLCK, &unlock) != 0)
		return err_set(e, ERR_IO, errno, "unlock a terminal");
	slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0 || tcgetattr(slave, &modes) != 0)
		return err_set(e, ERR_IO, errno, "open a terminal");
	modes.c_iflag |= IUTF8;
	if (tcsetattr(slave, TCSANOW, &modes) != 0 || pty_resize(master, rows, cols) != 0)
		return err_set(e, ERR_IO, errno, "set a terminal up");
	*out_master = fd_steal(&master);
	*out_slave = fd_steal(&slave);
	return 0;
}

int pty_resize(int master, uint16_t rows, uint16_t cols)
{
	struct winsize size = {.ws_row = rows, .ws_col = cols};

	return ioctl(master, TIOCSWINSZ, &size);
}

unsigned char pty_eof_byte(int master)
{
	struct termios modes;

	/* the master answers for the slave */
	if (tcgetattr(master, &modes) != 0 || modes.c_cc[VEOF] == _POSIX_VDISABLE)
		return STANDARD_EOF;
	return modes.c_cc[VEOF];
}
