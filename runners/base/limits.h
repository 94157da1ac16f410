/*
 * limits.h: ceilings that are compiled in. Policy may set lower values, never higher ones. Sources:
 * contracts of the faces and docs/architecture.md. Sizes are bytes unless the name says otherwise.
 */
#ifndef CORDON_BASE_LIMITS_H
#define CORDON_BASE_LIMITS_H

#define LIMIT_BODY_BYTES          (8U << 20) /* request body that a worker takes */
#define LIMIT_REPLY_BYTES         (16U << 20)
#define LIMIT_JSON_DEPTH          32
#define LIMIT_JSON_VALUES         100000 /* members and items of one document */
#define LIMIT_URL_BYTES           8192
#define LIMIT_ID_BYTES            255 /* ids, tags, keys from clients */
#define LIMIT_COMMAND_ITEMS       256
#define LIMIT_COMMAND_ITEM_BYTES  (128U << 10)
#define LIMIT_COMMAND_TOTAL_BYTES (1U << 20)
#define LIMIT_MAP_ENTRIES         128
#define LIMIT_MAP_BYTES           (64U << 10)
#define LIMIT_FILES               1000
#define LIMIT_FILES_BYTES         (4U << 20)
#define LIMIT_PATH_BYTES          1024
#define LIMIT_PATTERNS            64
#define LIMIT_PATTERN_BYTES       1024
#define LIMIT_SPEC_BYTES          (8U << 20)   /* job.spec */
#define LIMIT_RECORD_BYTES        (32U << 10)  /* bytes in one spool record */
#define LIMIT_FRAME_BYTES         (256U << 10) /* payload of one agent frame */
#define LIMIT_ARTIFACTS           10000
#define LIMIT_CONCURRENCY         1024
#define LIMIT_SQL_RESULT_BYTES    (16U << 20)

#endif
