/*
 * banned.h: calls that fail the build.
 *
 * Force-included into every object by the Makefile (-include). The system headers come first,
 * because a macro that is seen before a library's header bans nothing. An exception is
 * -DALLOW_<NAME> for one object, listed in the Makefile, so that all exceptions can be read in one
 * place.
 */
#ifndef CORDON_BANNED_H
#define CORDON_BANNED_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BANNED(name) cordon_banned_##name

#undef strcpy
#define strcpy(...) BANNED(strcpy)
#undef strcat
#define strcat(...) BANNED(strcat)
#undef strncpy
#define strncpy(...) BANNED(strncpy)
#undef strncat
#define strncat(...) BANNED(strncat)
#undef sprintf
#define sprintf(...) BANNED(sprintf)
#undef vsprintf
#define vsprintf(...) BANNED(vsprintf)
#undef strtok
#define strtok(...) BANNED(strtok)
#undef gets
#define gets(...) BANNED(gets)
#undef atoi
#define atoi(...) BANNED(atoi)
#undef atol
#define atol(...) BANNED(atol)
#undef atoll
#define atoll(...) BANNED(atoll)
#undef gmtime
#define gmtime(...) BANNED(gmtime)
#undef localtime
#define localtime(...) BANNED(localtime)
#undef ctime
#define ctime(...) BANNED(ctime)
#undef asctime
#define asctime(...) BANNED(asctime)
#undef system
#define system(...) BANNED(system)
#undef popen
#define popen(...) BANNED(popen)
#undef mktemp
#define mktemp(...) BANNED(mktemp)
#undef tmpnam
#define tmpnam(...) BANNED(tmpnam)
#undef signal
#define signal(...) BANNED(signal)

#ifndef ALLOW_STRTO
#undef strtol
#define strtol(...) BANNED(strtol)
#undef strtoul
#define strtoul(...) BANNED(strtoul)
#undef strtoll
#define strtoll(...) BANNED(strtoll)
#undef strtoull
#define strtoull(...) BANNED(strtoull)
#undef strtod
#define strtod(...) BANNED(strtod)
#endif

#ifndef ALLOW_FORK
#undef fork
#define fork(...) BANNED(fork)
#undef vfork
#define vfork(...) BANNED(vfork)
#undef execv
#define execv(...) BANNED(execv)
#undef execve
#define execve(...) BANNED(execve)
#undef execvp
#define execvp(...) BANNED(execvp)
#undef execvpe
#define execvpe(...) BANNED(execvpe)
#undef execl
#define execl(...) BANNED(execl)
#undef execlp
#define execlp(...) BANNED(execlp)
#undef fexecve
#define fexecve(...) BANNED(fexecve)
#endif

#ifndef ALLOW_GETENV
#undef getenv
#define getenv(...) BANNED(getenv)
#endif

#ifndef ALLOW_MALLOC
#undef malloc
#define malloc(...) BANNED(malloc)
#undef calloc
#define calloc(...) BANNED(calloc)
#undef realloc
#define realloc(...) BANNED(realloc)
#undef strdup
#define strdup(...) BANNED(strdup)
#undef strndup
#define strndup(...) BANNED(strndup)
#endif

#endif
