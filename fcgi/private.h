/* private.h: shared by request.c and response.c only. */
#ifndef CORDON_FCGI_PRIVATE_H
#define CORDON_FCGI_PRIVATE_H

#include "fcgi/request.h"

#include <fcgiapp.h>

struct fcgi_request {
	FCGX_Request fcgx;
	struct buf body;
	struct buf text; /* path and query of the request */
	struct buf names;
};

#endif
