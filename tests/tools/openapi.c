/*
 * openapi: docs/openapi/face1.yaml for the build.
 *
 *	openapi json FILE	the document as JSON
 *	openapi data FILE	the same as a C array with its ETag, for handlers/runs/openapi.c
 *
 * It takes the YAML that such a document needs: mappings, sequences, scalars. Plain true, false,
 * null and whole numbers are what they look like, everything else is text; anchors are resolved,
 * tags and duplicate keys are refused.
 */
#include "runners/base/buf.h"
#include "runners/base/fdio.h"
#include "runners/base/limits.h"
#include "runners/base/num.h"
#include "runners/base/str.h"
#include "runners/core/json.h"

#include <fcntl.h>
#include <openssl/sha.h>
#include <yaml.h>

#define DEPTH_MAX     LIMIT_JSON_DEPTH
#define BYTES_A_LINE  24U
#define ETAG_BYTES    8
#define DOCUMENT_SIZE (4U << 20)

static json_t *convert(yaml_document_t *document, const yaml_node_t *node, int depth,
		       struct err *e);

static int refuse(const yaml_node_t *node, struct err *e, const char *why)
{
	return err_set(e, ERR_INVALID, 0, "%zu:%zu: %s", node->start_mark.line + 1,
		       node->start_mark.column + 1, why);
}

static const char *text_of(const yaml_node_t *node)
{
	return (const char *)node->data.scalar.value;
}

/* A plain scalar is what YAML 1.2 takes it for; reals do not occur. */
static json_t *convert_scalar(const yaml_node_t *node, struct err *e)
{
	const char *text = text_of(node);
	const char *digits = text[0] == '-' ? text + 1 : text;
	int64_t number;

	if (node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
		return json_stringn(text, node->data.scalar.length);
	if (text[0] == '\0' || str_equal(text, "null"))
		return json_null();
	if (str_equal(text, "true") || str_equal(text, "false"))
		return json_boolean(text[0] == 't');
	if (*digits == '\0' || digits[strspn(digits, "0123456789")] != '\0')
		return json_string(text);
	if (num_i64("number", text, INT64_MIN, INT64_MAX, &number, e) != 0)
		return NULL;
	return json_integer((json_int_t)number);
}

static json_t *convert_mapping(yaml_document_t *document, const yaml_node_t *node, int depth,
			       struct err *e)
{
	json_t *out = json_object();

	for (yaml_node_pair_t *pair = node->data.mapping.pairs.start;
	     pair < node->data.mapping.pairs.top; pair++) {
		const yaml_node_t *key = yaml_document_get_node(document, pair->key);
		json_t *value;

		if (key == NULL || key->type != YAML_SCALAR_NODE)
			(void)refuse(node, e, "a key is no text");
		else if (json_object_get(out, text_of(key)) != NULL)
			(void)refuse(key, e, "a key is there twice");
		value = e->code != ERR_NONE
			    ? NULL
			    : convert(document, yaml_document_get_node(document, pair->value),
				      depth + 1, e);
		if (value == NULL || json_object_set_new(out, text_of(key), value) != 0) {
			json_decref(out);
			return NULL;
		}
	}
	return out;
}

static json_t *convert_sequence(yaml_document_t *document, const yaml_node_t *node, int depth,
				struct err *e)
{
	json_t *out = json_array();

	for (yaml_node_item_t *item = node->data.sequence.items.start;
	     item < node->data.sequence.items.top; item++) {
		json_t *value =
		    convert(document, yaml_document_get_node(document, *item), depth + 1, e);

		if (value == NULL || json_array_append_new(out, value) != 0) {
			json_decref(out);
			return NULL;
		}
	}
	return out;
}

/* NULL with e. */
static json_t *convert(yaml_document_t *document, const yaml_node_t *node, int depth,
		       struct err *e) // NOLINT(misc-no-recursion)
{
	json_t *out = NULL;

	if (node == NULL) {
		(void)err_set(e, ERR_INVALID, 0, "the document is empty");
		return NULL;
	}
	if (depth > DEPTH_MAX) {
		(void)refuse(node, e, "nested too deeply");
		return NULL;
	}
	if (node->tag != NULL && !str_starts((const char *)node->tag, "tag:yaml.org,2002:")) {
		(void)refuse(node, e, "tags are not allowed");
		return NULL;
	}
	switch (node->type) {
	case YAML_SCALAR_NODE:
		out = convert_scalar(node, e);
		break;
	case YAML_MAPPING_NODE:
		out = convert_mapping(document, node, depth, e);
		break;
	case YAML_SEQUENCE_NODE:
		out = convert_sequence(document, node, depth, e);
		break;
	case YAML_NO_NODE:
		break;
	}
	if (out == NULL && e->code == ERR_NONE)
		(void)refuse(node, e, "cannot be written as JSON");
	return out;
}

static json_t *read_document(const struct buf *text, struct err *e)
{
	yaml_parser_t parser;
	yaml_document_t document;
	json_t *out = NULL;

	if (yaml_parser_initialize(&parser) == 0) {
		(void)err_set(e, ERR_NOMEM, 0, "no memory");
		return NULL;
	}
	yaml_parser_set_input_string(&parser, (const unsigned char *)buf_text(text), text->len);
	if (yaml_parser_load(&parser, &document) == 0) {
		(void)err_set(e, ERR_INVALID, 0, "%zu:%zu: %s", parser.problem_mark.line + 1,
			      parser.problem_mark.column + 1,
			      parser.problem == NULL ? "broken" : parser.problem);
	} else {
		out = convert(&document, yaml_document_get_root_node(&document), 0, e);
		yaml_document_delete(&document);
	}
	yaml_parser_delete(&parser);
	return out;
}

static void write_data(struct buf *out, const struct buf *json)
{
	unsigned char hash[SHA256_DIGEST_LENGTH];
	char etag[ETAG_BYTES * 2 + 1];

	(void)SHA256((const unsigned char *)json->data, json->len, hash);
	str_hex(etag, hash, ETAG_BYTES);
	buf_add_str(out, "/* Made from docs/openapi/face1.yaml by tests/tools/openapi.c. */\n");
	buf_addf(out, "static const char openapi_etag[] = \"\\\"%s\\\"\";\n", etag);
	buf_add_str(out, "static const unsigned char openapi_json[] = {");
	for (size_t i = 0; i < json->len; i++)
		buf_addf(out, "%s%u,", i % BYTES_A_LINE == 0 ? "\n" : "",
			 (unsigned int)(unsigned char)json->data[i]);
	buf_add_str(out, "\n};\n");
}

int main(int argc, char **argv)
{
	scope_json json_t *document = NULL;
	struct buf text;
	struct buf json;
	struct buf data;
	struct err e = ERR_INIT;
	int result = 1;

	if (argc != 3 || (!str_equal(argv[1], "json") && !str_equal(argv[1], "data"))) {
		(void)fputs("usage: openapi json|data FILE\n", stderr);
		return 64;
	}
	buf_init(&text, DOCUMENT_SIZE);
	buf_init(&json, DOCUMENT_SIZE);
	buf_init(&data, DOCUMENT_SIZE * 4);
	if (fd_read_file(AT_FDCWD, argv[2], &text, &e) == 0)
		document = read_document(&text, &e);
	if (document != NULL && json_write(&json, document, &e) == 0) {
		if (str_equal(argv[1], "data"))
			write_data(&data, &json);
		else
			buf_addf(&data, "%s\n", buf_text(&json));
		if (buf_ok(&data) && fputs(buf_text(&data), stdout) >= 0 && fflush(stdout) == 0)
			result = 0;
	}
	if (result != 0)
		(void)fprintf(stderr, "openapi: %s: %s\n", argv[2],
			      e.code == ERR_NONE ? "cannot be written" : e.text);
	buf_release(&text);
	buf_release(&json);
	buf_release(&data);
	return result;
}
