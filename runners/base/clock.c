#include "runners/base/clock.h"

static int64_t read_us(clockid_t which)
{
	struct timespec now = {0, 0};

	(void)clock_gettime(which, &now);
	return (int64_t)now.tv_sec * CLOCK_US_PER_S + now.tv_nsec / 1000;
}

int64_t clock_monotonic_us(void)
{
	return read_us(CLOCK_MONOTONIC);
}

int64_t clock_real_us(void)
{
	return read_us(CLOCK_REALTIME);
}

void clock_iso(char out[CLOCK_ISO_SIZE], int64_t real_us)
{
	int64_t seconds = real_us / CLOCK_US_PER_S;
	int64_t rest = real_us % CLOCK_US_PER_S;
	time_t when;
	struct tm parts;

	if (rest < 0) {
		rest += CLOCK_US_PER_S;
		seconds--;
	}
	when = (time_t)seconds;
	if (gmtime_r(&when, &parts) == NULL || parts.tm_year > 8099)
		memset(&parts, 0, sizeof(parts));
	(void)snprintf(out, CLOCK_ISO_SIZE, "%04u-%02u-%02uT%02u:%02u:%02u.%06uZ",
		       (unsigned int)(parts.tm_year + 1900) % 10000U,
		       (unsigned int)(parts.tm_mon + 1) % 100U, (unsigned int)parts.tm_mday % 100U,
		       (unsigned int)parts.tm_hour % 100U, (unsigned int)parts.tm_min % 100U,
		       (unsigned int)parts.tm_sec % 100U, (unsigned int)rest % 1000000U);
}

void clock_sleep_us(int64_t us)
{
	struct timespec wait = {.tv_sec = (time_t)(us / CLOCK_US_PER_S),
				.tv_nsec = (long)(us % CLOCK_US_PER_S) * 1000};

	if (us > 0)
		(void)clock_nanosleep(CLOCK_MONOTONIC, 0, &wait, NULL);
}
