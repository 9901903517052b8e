# Remora's commands. `make` alone lists them.
# CARGO_TARGET_DIR is honoured; cargo is found in ~/.cargo/bin too.

export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin
TARGET := $(or $(CARGO_TARGET_DIR),target)
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help build demo cluster couriers dispatch leaderboard rate-limiter test-fast test test-long rxe check book fresh worlds fuzz bench tables clean

help: ## list the commands
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile

build: ## build all of the workspace, in release
	cargo build --release --workspace

demo: ## load real places, read them three ways, draw a map; ARGS=--json
	@cargo build --locked --release --package remora
	@"$(TARGET)/release/remora" demo --map "$(TARGET)/demo-map.html" $(ARGS)

cluster: ## ZooKeeper and three servers; the primary is killed under load
	@bash scripts/cluster.sh $(ARGS)

couriers: ## an example service: the nearest free of 10,000 moving couriers
	@cargo build --locked --release --package remora --package couriers
	@"$(TARGET)/release/couriers" $(ARGS)

dispatch: ## an example: free couriers, profiles and zones in one request, beside Redis
	@cargo build --locked --release --package remora --package dispatch
	@"$(TARGET)/release/dispatch" $(ARGS)

leaderboard: ## an example: points, ranks and the best players, on a sorted set
	@cargo build --locked --release --package remora --package leaderboard
	@"$(TARGET)/release/leaderboard" $(ARGS)

rate-limiter: ## an example: a sliding window of requests for each caller, on sorted sets
	@cargo build --locked --release --package remora --package rate-limiter
	@"$(TARGET)/release/rate-limiter" $(ARGS)

test-fast: ## unit tests and oracles: under 3 minutes after a build
	@bash scripts/test.sh fast

test: ## build, then run all tests; installs what they need if it may
	@bash scripts/test.sh

test-long: ## the same, and hours of worlds, planted mistakes, Miri and fuzzing
	@bash scripts/test.sh long

rxe: ## real verbs on Soft-RoCE, in a virtual machine
	@bash tests/rxe/rxe.sh

check: ## formatting, lints, imports, circles, unsafe code, documents, dependencies
	@bash scripts/check.sh

book: ## the documents as a site, in target/book; installs mdBook first
	@bash scripts/book.sh

fresh: ## all of it from a clean clone on a bare Debian 12 (root)
	@cargo xtask fresh

worlds: ## run worlds from fresh seeds for ten minutes; ARGS="--minutes 60"
	@cargo build --locked --release --package remora-sim
	@from=$$(od -An -N6 -tu8 /dev/urandom | tr -d ' '); \
	"$(TARGET)/release/remora-sim" --seeds $$from..$$((from + 1000000000)) --all-probes $(or $(ARGS),--minutes 10) && \
	"$(TARGET)/release/remora-sim" --seeds $$from..$$((from + 1000000000)) --lists $(or $(ARGS),--minutes 10) && \
	"$(TARGET)/release/remora-sim" --seeds $$from..$$((from + 1000000000)) --links $(or $(ARGS),--minutes 10) && \
	"$(TARGET)/release/remora-sim" --seeds $$from..$$((from + 1000000000)) --ordered $(or $(ARGS),--minutes 10) && \
	"$(TARGET)/release/remora-sim" --seeds $$from..$$((from + 1000000000)) --sorted $(or $(ARGS),--minutes 10) && \
	"$(TARGET)/release/remora-sim" --seeds $$from..$$((from + 1000000000)) --collections $(or $(ARGS),--minutes 10) && \
	"$(TARGET)/release/remora-sim" --seeds $$from..$$((from + 1000000000)) --replicas $(or $(ARGS),--minutes 10)

fuzz: ## feed hostile bytes to parsers and whole sessions
	@bash fuzz/run.sh

bench: ## measure, against peers in the same run
	@bash bench/keys.sh

tables: ## measure mixes, messages, clients, growth; ARGS="--short mixes"
	@bash bench/tables.sh $(ARGS)

clean: ## remove what was built
	cargo clean
