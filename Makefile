# Cordon: one Makefile, no recursion. `make help` lists the targets.
#
# Objects live under build/ (one tree per flag set), private state under var/ (a link). Every object waits for the
# package check in tests/stack/packages.sh, so that `make test` works on a bare Debian 12.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.SUFFIXES:
.SECONDARY:
.DEFAULT_GOAL := all

CC ?= gcc
ifeq ($(origin CC),default)
CC := gcc
endif
SAN ?=
WERROR ?= 1
comma := ,
empty :=
space := $(empty) $(empty)

BUILD := build$(if $(SAN),-$(subst $(comma),-,$(SAN)))$(if $(findstring clang,$(CC)),-clang)

# --- flags -----------------------------------------------------------------------------------------------------

WARN_BOTH := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wformat=2 \
  -Wstrict-prototypes -Wmissing-prototypes -Wmissing-declarations -Wold-style-definition -Wnested-externs \
  -Wredundant-decls -Wwrite-strings -Wcast-qual -Wbad-function-cast -Wpointer-arith -Wundef -Wunused-macros \
  -Wvla -Walloca -Wframe-larger-than=65536 -Wdeclaration-after-statement -Wswitch-enum -Wnull-dereference \
  -Wdouble-promotion -Wfloat-equal -Wdate-time -Wno-missing-field-initializers
WARN_GCC := -Wno-format-truncation -Warith-conversion -Wformat-overflow=2 -Wformat-signedness -Wcast-align=strict -Wunused-const-variable=2 \
  -Wjump-misses-init -Wimplicit-fallthrough=5 -Wuse-after-free=3 -Warray-bounds=2 -Wstringop-overflow=4 \
  -Wduplicated-cond -Wduplicated-branches -Wlogical-op -Wtrampolines -Wbidi-chars=any
WARN_CLANG := -Wcomma -Wassign-enum -Wconditional-uninitialized -Wmissing-variable-declarations -gdwarf-4

WARN := $(WARN_BOTH) $(if $(findstring clang,$(CC)),$(WARN_CLANG),$(WARN_GCC)) $(if $(filter 1,$(WERROR)),-Werror)
ifeq ($(SAN),)
OPT := -O2 -g -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -fstack-protector-strong -fstack-clash-protection \
  -fcf-protection=full -fno-delete-null-pointer-checks -fno-common
else
OPT := -O1 -g -fno-omit-frame-pointer -fno-common -fsanitize=$(SAN) -fno-sanitize-recover=all \
  -Wno-null-dereference -Wno-stringop-overflow -Wno-maybe-uninitialized
endif
CPPFLAGS := -I. -I$(BUILD)/gen -isystem /usr/include/mariadb -D_GNU_SOURCE -include runners/base/banned.h
CFLAGS := -std=gnu17 $(OPT) $(WARN)
LDFLAGS := -Wl,-z,relro,-z,now,-z,noexecstack,--as-needed $(if $(SAN),-fsanitize=$(SAN))

# --- sources ---------------------------------------------------------------------------------------------------

objects = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))

BASE_SRC := $(wildcard runners/base/*.c)
CORE_SRC := $(wildcard runners/core/*.c)
HANDLERS_SRC := $(wildcard handlers/*.c handlers/*/*.c)
FCGI_SRC := $(wildcard fcgi/*.c)
TESTLIB_SRC := $(wildcard tests/lib/*.c)

LIB_BASE := $(BUILD)/lib/libbase.a
LIB_CORE := $(BUILD)/lib/libcore.a
LIB_HANDLERS := $(BUILD)/lib/libhandlers.a
LIB_TEST := $(BUILD)/lib/libtest.a

# program: folder, libraries
PROGRAMS := $(addprefix $(BUILD)/bin/,$(foreach p,\
  fcgi:cordon-fcgi runners/gate:cordon-gate runners/supervisor:cordon-runner runners/exec:cordon-box runners/ctl:cordonctl,\
  $(if $(wildcard $(firstword $(subst :, ,$(p)))/*.c),$(lastword $(subst :, ,$(p))))))
INIT := $(if $(wildcard runners/init/*.c),$(BUILD)/bin/cordon-init)

UNIT_SRC := $(wildcard tests/unit/test_*.c)
API_SRC := $(wildcard tests/api/test_*.c)
PROBE_SRC := $(wildcard tests/probe/*.c)
UNIT := $(patsubst tests/unit/%.c,$(BUILD)/tests/unit/%,$(UNIT_SRC))
API := $(patsubst tests/api/%.c,$(BUILD)/tests/api/%,$(API_SRC))
PROBES := $(patsubst tests/probe/%.c,$(BUILD)/tests/probe/%,$(PROBE_SRC))
TOOLS := $(patsubst tests/tools/%.c,$(BUILD)/tests/tools/%,$(wildcard tests/tools/*.c))
BENCH := $(patsubst tests/bench/%.c,$(BUILD)/tests/bench/%,$(wildcard tests/bench/*.c))

# Exceptions to runners/base/banned.h, all of them.
$(BUILD)/obj/runners/base/mem.o: CPPFLAGS += -DALLOW_MALLOC
$(BUILD)/obj/runners/base/proc.o: CPPFLAGS += -DALLOW_FORK
$(BUILD)/obj/runners/init/%.o: CPPFLAGS += -DALLOW_FORK
$(BUILD)/obj/runners/exec/%.o: CPPFLAGS += -DALLOW_FORK
# cordonctl takes its URL and key from the environment
$(BUILD)/obj/runners/ctl/%.o: CPPFLAGS += -DALLOW_GETENV
$(BUILD)/obj/tests/%.o: CPPFLAGS += -DALLOW_GETENV -DALLOW_FORK
# jansson has no exact parser for reals: json.c needs strtod once
$(BUILD)/obj/runners/core/json.o: CPPFLAGS += -DALLOW_STRTO
# MYSQL_BIND.buffer is not const (STYLE: allowed in store_stmt.c only); the door passes a const buffer on
$(BUILD)/obj/tests/%.o: CFLAGS += -Wno-unused-macros

# --- build -----------------------------------------------------------------------------------------------------

.PHONY: all help
all: $(PROGRAMS) $(INIT) $(TOOLS) compile_commands.json ## build everything

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 24

READY := $(BUILD)/.packages
$(READY): tests/stack/packages.sh tests/stack/packages.txt
	@bash tests/stack/packages.sh build
	@mkdir -p $(@D) && touch $@

GENERATED := $(if $(wildcard sql/statements.sql),$(BUILD)/gen/statements.h)
$(BUILD)/gen/statements.h: sql/statements.sql sql/generate.sh | $(READY)
	@mkdir -p $(@D)
	@bash sql/generate.sh $< >$@

# docs/openapi/face1.yaml as the bytes that a worker serves
OPENAPI := $(BUILD)/gen/openapi_data.h
$(OPENAPI): docs/openapi/face1.yaml $(BUILD)/tests/tools/openapi
	@mkdir -p $(@D)
	@$(BUILD)/tests/tools/openapi data $< >$@
$(BUILD)/obj/handlers/runs/openapi.o build/fuzz/obj/handlers/runs/openapi.o: $(OPENAPI)

$(BUILD)/obj/%.o: %.c | $(READY) $(GENERATED)
	@mkdir -p $(@D)
	@echo "  cc $<"
	@$(CC) $(CPPFLAGS) -fPIE $(CFLAGS) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<

$(LIB_BASE): $(call objects,$(BASE_SRC))
$(LIB_CORE): $(call objects,$(CORE_SRC))
$(LIB_HANDLERS): $(call objects,$(HANDLERS_SRC))
$(LIB_TEST): $(call objects,$(TESTLIB_SRC))
$(BUILD)/lib/%.a:
	@mkdir -p $(@D)
	@rm -f $@
	@ar rcs $@ $^

CORE_LIBS := -ljansson -lyaml -lmariadb -ljwt -lcares -lcrypto -lcurl -lpthread
link = @mkdir -p $(@D); echo "  ld $@"; $(CC) $(CFLAGS) -pie $(LDFLAGS) -o $@

$(BUILD)/bin/cordon-fcgi: $(call objects,$(FCGI_SRC)) $(LIB_HANDLERS) $(LIB_CORE) $(LIB_BASE)
	$(link) $^ -lfcgi $(CORE_LIBS)
$(BUILD)/bin/cordon-gate: $(call objects,$(wildcard runners/gate/*.c)) $(LIB_CORE) $(LIB_BASE)
	$(link) $^ -lwebsockets -lev -larchive $(CORE_LIBS)
$(BUILD)/bin/cordon-runner: $(call objects,$(wildcard runners/supervisor/*.c)) $(LIB_CORE) $(LIB_BASE)
	$(link) $^ $(CORE_LIBS)
$(BUILD)/bin/cordonctl: $(call objects,$(wildcard runners/ctl/*.c)) $(LIB_CORE) $(LIB_BASE)
	$(link) $^ -lwebsockets $(CORE_LIBS)
# the privileged builder: libseccomp and our base archive only
$(BUILD)/bin/cordon-box: $(call objects,$(wildcard runners/exec/*.c)) $(LIB_BASE)
	$(link) $^ -lseccomp
# pid 1 of every box: static, base archive and libarchive only; sanitizers cannot be static
$(INIT): $(call objects,$(wildcard runners/init/*.c)) $(LIB_BASE)
	@mkdir -p $(@D); echo "  ld $@"
	@$(CC) $(CFLAGS) $(if $(SAN),-pie $(LDFLAGS),-static-pie -Wl,-z,relro,-z,now,-z,noexecstack) -o $@ $^ \
	  -larchive -lz $(if $(SAN),,-lbz2 -llzma -lzstd -lnettle)

# modules of programs that unit and api tests look into
$(BUILD)/tests/unit/test_output: $(BUILD)/obj/runners/supervisor/output.o
$(BUILD)/tests/unit/test_preflight: $(BUILD)/obj/runners/supervisor/preflight.o
$(BUILD)/tests/unit/test_typing: $(BUILD)/obj/runners/supervisor/typing.o
$(BUILD)/tests/api/test_trace: $(BUILD)/obj/runners/gate/tails.o $(BUILD)/obj/runners/supervisor/retention.o
$(BUILD)/tests/api/test_store_clean: $(BUILD)/obj/runners/supervisor/store_clean.o
$(BUILD)/tests/unit/test_filter: $(BUILD)/obj/runners/exec/filter.o
$(BUILD)/tests/unit/test_timer: $(BUILD)/obj/runners/gate/timer.o
$(BUILD)/tests/unit/test_timer: CORE_LIBS += -lev
$(BUILD)/tests/unit/test_unpack: $(call objects,$(wildcard runners/init/unpack*.c))
$(BUILD)/tests/unit/test_unpack: CORE_LIBS += -larchive -lz
$(BUILD)/tests/unit/test_cgroup: $(BUILD)/obj/runners/exec/cgroup_probe.o $(BUILD)/obj/runners/exec/cgroup_slot.o
# the test stands in for the kernel there
$(BUILD)/tests/unit/test_cgroup: private LDFLAGS += -Wl,--wrap=write,--wrap=mkdir,--wrap=mkdirat,--wrap=rmdir,--wrap=unlinkat
$(BUILD)/tests/unit/test_slot_file $(BUILD)/tests/api/test_box_survive: $(BUILD)/obj/runners/exec/slot_file.o
$(BUILD)/tests/unit/test_openapi $(BUILD)/tests/unit/test_router $(BUILD)/tests/api/test_handlers $(BUILD)/tests/api/test_handlers_read \
	$(BUILD)/tests/api/test_suites $(BUILD)/tests/api/test_trace $(BUILD)/tests/api/test_admin_store: $(BUILD)/obj/fcgi/router.o
$(BUILD)/tests/unit/%: $(BUILD)/obj/tests/unit/%.o $(LIB_TEST) $(LIB_HANDLERS) $(LIB_CORE) $(LIB_BASE)
	$(link) $(filter %.o,$^) $(filter %.a,$^) -lcunit -lseccomp $(CORE_LIBS)
$(BUILD)/tests/api/%: $(BUILD)/obj/tests/api/%.o $(LIB_TEST) $(LIB_HANDLERS) $(LIB_CORE) $(LIB_BASE)
	$(link) $(filter %.o,$^) $(filter %.a,$^) -lcunit $(CORE_LIBS)
$(BUILD)/tests/probe/%: tests/probe/%.c | $(READY)
	@mkdir -p $(@D); echo "  cc $<"
	@gcc -std=gnu17 -D_GNU_SOURCE -O1 -g -Wall -Wextra -Werror -static -o $@ $<
# the handlers need what it makes, so it links without them
$(BUILD)/tests/tools/openapi: $(BUILD)/obj/tests/tools/openapi.o $(LIB_CORE) $(LIB_BASE)
	$(link) $^ $(CORE_LIBS)
$(BUILD)/tests/tools/%: $(BUILD)/obj/tests/tools/%.o $(LIB_HANDLERS) $(LIB_CORE) $(LIB_BASE)
	$(link) $^ $(CORE_LIBS)
$(BUILD)/tests/bench/%: $(BUILD)/obj/tests/bench/%.o $(LIB_TEST) $(LIB_CORE) $(LIB_BASE)
	$(link) $^ $(CORE_LIBS)

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)

ALL_SRC := $(BASE_SRC) $(CORE_SRC) $(HANDLERS_SRC) $(FCGI_SRC) $(wildcard runners/gate/*.c runners/supervisor/*.c \
  runners/exec/*.c runners/init/*.c runners/ctl/*.c) $(TESTLIB_SRC) $(UNIT_SRC) $(API_SRC)
compile_commands.json: Makefile
	@{ echo '['; n=0; for f in $(ALL_SRC); do [ $$n = 0 ] || echo ','; n=1; \
	  printf '{"directory":"%s","file":"%s","command":"%s"}' "$(CURDIR)" "$$f" \
	    "clang $(CPPFLAGS) -std=gnu17 -DALLOW_FORK -DALLOW_GETENV -DALLOW_STRTO -DALLOW_MALLOC -c $$f"; done; echo; echo ']'; } >$@

# --- tests -----------------------------------------------------------------------------------------------------

.PHONY: test test-unit check fuzz memcheck guest bench clean
test-programs: $(UNIT) $(API) $(PROBES)
.PHONY: test-programs

test: all test-programs ## build and run every test (bare machine too)
	@bash tests/run.sh $(BUILD)

test-unit: all $(UNIT) ## unit tests only
	@bash tests/run.sh $(BUILD) unit

check: all test-programs ## layers, banned symbols, headers, sql, format, scripts, nginx, units
	@bash tests/check/check.sh $(BUILD)

# without those that need openat2, which Debian 12's valgrind does not know; SAN=address,undefined has them
MEMCHECK_NOT := test_unpack
MEMCHECK := valgrind -q --leak-check=full --errors-for-leak-kinds=definite,indirect --trace-children=no --error-exitcode=9
memcheck: $(UNIT) ## unit tests under valgrind, but for MEMCHECK_NOT
	@bash tests/stack/packages.sh memcheck
	@mkdir -p $(BUILD)/tests/log
	@for t in $(filter-out $(addprefix %/,$(MEMCHECK_NOT)),$(UNIT)); do log=$(BUILD)/tests/log/memcheck-$${t##*/}.log; echo "  $$t"; \
	  CORDON_BUILD=$(BUILD) $(MEMCHECK) $$t >$$log 2>&1 </dev/null || { tail -n 40 $$log; exit 1; }; done

guest: all test-programs ## the box tests in a virtual machine: cgroup v2 alone, then v1 alone; MODES=systemd: the units under systemd
	@bash tests/guest/run.sh $(BUILD) $(MODES)

.PHONY: demo demo-notice up down clean-data
demo: demo-notice all ## set up, then the main job through the public port
	@bash tests/stack/demo.sh $(BUILD)
# what the demo changes is said before the first package is installed
demo-notice:
	@bash tests/stack/demo.sh notice
ifneq ($(filter demo,$(MAKECMDGOALS)),)
$(READY): | demo-notice
endif
up: all ## start the private stack
	@bash tests/stack/up.sh $(BUILD)
down: ## stop the private stack, keep its data
	@bash tests/stack/down.sh
clean-data: down ## remove the private stack's data
	@bash tests/stack/clean-data.sh

.PHONY: docs
docs: $(TOOLS) ## make docs/policy.md and docs/errors.md again from their tables
	@$(BUILD)/tests/tools/policy doc >docs/policy.md
	@$(BUILD)/tests/tools/errors doc >docs/errors.md

# every fuzz_*.c for FUZZ_SECONDS, with clang's fuzzer; a crash leaves its input in build/fuzz
FUZZ_SECONDS ?= 60
FUZZERS := $(patsubst tests/fuzz/%.c,build/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_SRC := $(BASE_SRC) $(CORE_SRC) $(HANDLERS_SRC) fcgi/router.c runners/exec/slot_file.c
FUZZ_FLAGS := -g -O1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -std=gnu17 $(CPPFLAGS) \
  -DALLOW_MALLOC -DALLOW_FORK -DALLOW_STRTO
build/fuzz/obj/%.o: %.c | $(READY) $(GENERATED)
	@bash tests/stack/packages.sh fuzz
	@mkdir -p $(@D) && echo "  fuzz cc $<"
	@clang-14 $(FUZZ_FLAGS) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<
build/fuzz/%: build/fuzz/obj/tests/fuzz/%.o $(patsubst %.c,build/fuzz/obj/%.o,$(FUZZ_SRC))
	@echo "  fuzz ld $@"
	@clang-14 -fsanitize=fuzzer,address,undefined -o $@ $^ $(CORE_LIBS)
-include $(shell find build/fuzz/obj -name '*.d' 2>/dev/null)
fuzz: $(FUZZERS) ## run every fuzz harness for FUZZ_SECONDS (60)
	@for f in $(FUZZERS); do mkdir -p $$f.corpus; echo "  $$f"; \
	  $$f -max_total_time=$(FUZZ_SECONDS) -artifact_prefix=build/fuzz/ $$f.corpus tests/fuzz/seeds/$${f##*/fuzz_} >$$f.log 2>&1 || \
	    { tail -n 30 $$f.log; exit 1; }; tail -n 1 $$f.log; done

bench: all $(BENCH) ## every mark beside bubblewrap, docker and nginx, one run
	@bash tests/bench/bench.sh $(BUILD)

# --- install -----------------------------------------------------------------------------------------------------

.PHONY: install
DESTDIR ?=
SHARE := $(DESTDIR)/usr/share/cordon
install: all ## install below DESTDIR: programs, units, users, folders, sql, nginx, documents
	install -d $(DESTDIR)/usr/bin $(DESTDIR)/usr/libexec/cordon $(DESTDIR)/usr/lib/systemd/system \
	  $(DESTDIR)/usr/lib/sysusers.d $(DESTDIR)/usr/lib/tmpfiles.d $(SHARE)/sql/migrations $(SHARE)/nginx \
	  $(DESTDIR)/usr/share/doc/cordon/faces $(DESTDIR)/usr/share/doc/cordon/openapi $(DESTDIR)/etc/cordon $(DESTDIR)/etc/logrotate.d
	install -m 755 $(BUILD)/bin/cordonctl $(DESTDIR)/usr/bin/
	install -m 755 $(addprefix $(BUILD)/bin/,cordon-fcgi cordon-gate cordon-runner cordon-box cordon-init) \
	  $(DESTDIR)/usr/libexec/cordon/
	install -m 644 systemd/*.service systemd/*.socket systemd/*.slice $(DESTDIR)/usr/lib/systemd/system/
	install -m 644 systemd/cordon.sysusers $(DESTDIR)/usr/lib/sysusers.d/cordon.conf
	install -m 644 systemd/cordon.tmpfiles $(DESTDIR)/usr/lib/tmpfiles.d/cordon.conf
	install -m 644 systemd/cordon.logrotate $(DESTDIR)/etc/logrotate.d/cordon
	install -m 644 sql/*.sql $(SHARE)/sql/
	install -m 644 sql/migrations/*.sql $(SHARE)/sql/migrations/
	install -m 644 nginx/*.conf nginx/*.in $(SHARE)/nginx/
	install -m 755 nginx/render.sh $(SHARE)/nginx/
	install -m 644 README.md docs/*.md docs/*.svg $(DESTDIR)/usr/share/doc/cordon/
	install -m 644 docs/faces/*.md $(DESTDIR)/usr/share/doc/cordon/faces/
	install -m 644 docs/openapi/*.yaml $(DESTDIR)/usr/share/doc/cordon/openapi/
	[ -e $(DESTDIR)/etc/cordon/policy.yaml ] || install -m 644 systemd/policy.yaml $(DESTDIR)/etc/cordon/policy.yaml

clean: ## remove what make built
	rm -rf build build-* compile_commands.json
