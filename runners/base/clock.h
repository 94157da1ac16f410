/* clock.h: time in microseconds. Monotonic for limits and waits, real time for what people read. */
#ifndef CORDON_BASE_CLOCK_H
#define CORDON_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

#define CLOCK_US_PER_S  INT64_C(1000000)
#define CLOCK_US_PER_MS INT64_C(1000)
/* "2026-01-31T12:00:00.000000Z" and a NUL */
#define CLOCK_ISO_SIZE 28

int64_t clock_monotonic_us(void);
int64_t clock_real_us(void);
/* ISO 8601, UTC, microseconds, Z. */
void clock_iso(char out[CLOCK_ISO_SIZE], int64_t real_us);
void clock_sleep_us(int64_t us);

#endif
