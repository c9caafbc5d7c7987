# What one types. Needs root, make and Rust 1.95; `make setup` installs the rest on Debian 12.
CARGO ?= cargo
DEMO := target/release/sluice-demo

.PHONY: setup setup-tests build demo demo-networks demo-stop figures race memif af-packet rfc2544 bench bench-all plots
.PHONY: check test test-all
.PHONY: matrix instructions cps scale sync
.PHONY: fmt lint clean install uninstall

setup: ## install what is missing from Debian's packages, check Rust, reserve huge pages
	@packaging/setup.sh

setup-tests: ## the same, with what only the tests need
	@packaging/setup.sh --tests

build: setup ## the programs, optimised
	$(CARGO) build --release --locked -p sluiced -p sluice -p sluice-preload \
		-p sluice-bench -p sluice-e2e

PREFIX ?= /usr
install: ## what `make build` made, with unit, completions and manual pages; DESTDIR, PREFIX=/usr
	@packaging/install.sh "$(DESTDIR)" "$(PREFIX)"

uninstall: ## remove what `make install` put there, but no configuration; DESTDIR, PREFIX=/usr
	@packaging/install.sh --remove "$(DESTDIR)" "$(PREFIX)"

demo: build ## real traffic through the director between namespaces; KEEP=1 leaves it running
	@$(DEMO) $(if $(KEEP),--keep)

demo-networks: build ## two nodes, two isolated networks with the same addresses, over VXLAN
	@$(DEMO) --networks

demo-stop: ## end a demo that was left running
	@$(DEMO) --stop

figures: build ## medians: direct kernel routing against the director, idle processor time
	@$(DEMO) --figures $(if $(RUNS),--runs $(RUNS))

race: build ## beside the kernel, HAProxy and nginx, end to end; ROUNDS=5 MTU=1500 JSON=1 QUICK=1
	@target/release/sluice-race $(if $(QUICK),--quick,--rounds $(or $(ROUNDS),5)) \
		$(if $(MTU),--mtu $(MTU)) $(if $(JSON),--json)

memif: build ## one worker between two memif ports, dpdk-testpmd as the generator; FLOWS=100000
	@bench/testpmd.sh --wire memif --flows $(or $(FLOWS),100000) --rounds $(or $(ROUNDS),5) \
		$(if $(JSON),--json)

af-packet: build ## the same over packet sockets on virtual Ethernet; FLOWS=10000
	@bench/testpmd.sh --wire af_packet --flows $(or $(FLOWS),10000) --rounds $(or $(ROUNDS),5) \
		$(if $(JSON),--json)

rfc2544: build ## MAX, PDR and NDR of one worker by size, over memif; SIZES, SESSIONS=100000
	@bench/rfc2544.sh --sessions $(or $(SESSIONS),100000) $(if $(SIZES),--size $(SIZES)) \
		$(if $(DIRECTIONS),--directions $(DIRECTIONS)) $(if $(JSON),--json)

sync: build ## two directors that synchronise sessions: lag, bytes, full pull; SESSIONS, RATE, JSON=1
	@bench/sync.sh --sessions $(or $(SESSIONS),3000000) --rate $(or $(RATE),100000) \
		$(if $(JSON),--json)

check: setup-tests ## before each commit: format, lint, tidy, units, golden rows; ends with a count
	@packaging/tests.sh check

test: setup-tests ## what decides whether a change may land: check, end to end, fuzz corpora, seeds
	@packaging/tests.sh

test-all: setup-tests ## the whole matrix, many seeds and scripts, sanitizers whole; two hours on 2 cores
	@packaging/tests.sh all

bench: build ## the worker loop on an in-memory port
	target/release/sluice-bench throughput --mode fnat --scheduler rr --family 4 \
		--protocol udp --size 64 --sessions $(or $(SESSIONS),1000000) \
		--workers $(or $(WORKERS),1) --seconds $(or $(SPAN_S),5) --json

bench-all: build ## the whole suite: bench/results/*.json, docs/suite.md; RUNS, SPAN_S, NICE, LARGE, ONLY
	bench/all.sh

plots: build ## docs/plots and docs/suite.md from the results in bench/results
	target/release/sluice-bench plot bench/results --out docs/plots --page docs/suite.md

matrix: build ## every mode, family and some schedulers beside each other; RUNS=3
	target/release/sluice-bench matrix --sessions $(or $(SESSIONS),1000000) \
		--repeats $(or $(RUNS),3) --seconds $(or $(SPAN_S),1) $(if $(JSON),--json)

scale: build ## what a large configuration costs to load, reload, change; SERVICES=10000 REALS=10
	@bench/scale.py --services $(or $(SERVICES),10000) --reals $(or $(REALS),10) \
		$(if $(JSON),--json)

instructions: build ## instructions of fixed workloads against the committed ones; UPDATE=1 writes them
	packaging/instructions.sh release $(if $(UPDATE),--update)

cps: build ## TCP connections a second, of each mode and both families
	@for mode in fnat nat dr ipip snat; do for family in 4 6; do \
		target/release/sluice-bench cps --mode $$mode --family $$family \
			--seconds $(or $(SPAN_S),3) $(if $(JSON),--json) || exit 1; \
	done; done

fmt: ## format all code
	$(CARGO) fmt --all

lint: ## format and lint as errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

clean: ## remove what was built
	$(CARGO) clean
