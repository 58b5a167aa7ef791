# What main must pass: the steps of .ci/run, one at a time. A machine without make calls them itself.
steps := format vet staticcheck cross mpi test docs float64 lab verify recipes avx2 assembly race smoke newer
more := purego emulated poison long others platforms fuzz
.PHONY: ci $(steps) $(more) generate calibrate bench zoo peers demo demo-model readme minutes release reproducible

ci: # all of the first list
	.ci/run

# make fuzz FUZZTIME=10m fuzzes each target for ten minutes, not one.
$(steps) $(more):
	.ci/run $@

generate: # the assembly of internal/kernel
	go generate ./internal/kernel

calibrate: # the tables by which forms are chosen, and their drawing; minutes, on an idle machine
	go test ./attention/factorised -run Calibrate -calibrate -timeout 30m
	FARFIELD_ISA=generic go test ./attention/factorised -run Calibrate -calibrate -timeout 60m
	go run ./cmd/farfield plan --plot docs/crossover.svg >/dev/null

bench: # GEMM against the FMA peak of the same run
	go test ./internal/kernel -run x -bench Gemm1024

zoo: # speed and memory of every mechanism, and their tables in docs/results/zoo.md; minutes, on an idle machine
	go run ./cmd/farfield bench zoo -n 1024,4096,16384 --measure forward,decode --json >docs/zoo.jsonl.part
	mv docs/zoo.jsonl.part docs/zoo.jsonl
	go test -tags float64 ./mechanism -run TestPageShowsWhatWasMeasured -write

# Where PyTorch and ONNX Runtime are installed.
PEERS ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/farfield/peers

peers: # farfield beside them, and the tables of docs/results/peers.md
	lab/peers/install.sh $(PEERS)
	go run -C lab ./cmd/farfield-lab peers run -peers $(PEERS) -o $(PEERS)/lines.jsonl -page ../docs/results/peers.md $(PEERS_FLAGS)

demo:
	go run ./cmd/farfield demo

readme: # its picture and its figures, with docs/results/demo.md; a minute, on an idle machine
	go run ./cmd/farfield demo --out docs/results
	rm docs/results/demo.png
	go test -tags docs . -run TestReadmeShowsDemo -write

DEMO ?= $(CURDIR)/run/demo
PLAYS ?= $(DEMO)/sets/tinyshakespeare/input.txt

demo-model: # the model that farfield demo carries, from Tiny Shakespeare; some minutes of one core, and a run that was stopped goes on
	test -f $(PLAYS) || go run ./cmd/farfield data fetch tinyshakespeare --folder $(DEMO)/sets
	if [ -d $(DEMO)/model ]; then go run ./cmd/farfield --threads 1 train --resume --out $(DEMO)/model; else \
		go run ./cmd/farfield --threads 1 train --config internal/cli/demo/model/train.json --data $(PLAYS) --out $(DEMO)/model; fi
	go test ./internal/cli/demo -run TestWriteCarried -write $(DEMO)/model
	go test ./internal/cli/demo -run TestCarriedModel

minutes: # the marked commands of README.md and docs, timed in a new account with nothing but Go; minutes
	go run -C lab ./cmd/farfield-lab recipes -new

# What a release is built with: no folder of this machine and no C library is in it.
VERSION ?= $(shell git describe --tags --match 'v[0-9]*' --always --dirty)
COMMIT = $(shell git rev-parse HEAD)
DATE = $(shell TZ=UTC git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd)
STAMP = -X main.release=$(VERSION) -X main.commit=$(COMMIT) -X main.date=$(DATE)
RELEASE = CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w $(STAMP)'
PLATFORMS = linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64

release: # archives of six platforms with licences, readme and completions, and their checksums, in dist/
	rm -rf dist && mkdir -p dist/completions
	for shell in bash zsh fish; do cp internal/cli/completion/completion.$$shell dist/completions/farfield.$$shell || exit 1; done
	.ci/licences >dist/THIRD_PARTY_LICENSES
	@set -e; for platform in $(PLATFORMS); do \
		os=$${platform%/*} arch=$${platform#*/} suffix=; \
		if [ $$os = windows ]; then suffix=.exe; fi; \
		name=farfield_$(VERSION)_$${os}_$$arch; \
		mkdir -p dist/$$name; \
		GOOS=$$os GOARCH=$$arch $(RELEASE) -o dist/$$name/farfield$$suffix ./cmd/farfield; \
		cp -R LICENSE dist/THIRD_PARTY_LICENSES README.md dist/completions dist/$$name/; \
		tar -C dist --sort=name --owner=0 --group=0 --numeric-owner --mtime='$(DATE)' -cf dist/$$name.tar $$name; \
		gzip -n dist/$$name.tar; \
		wc -c dist/$$name/farfield$$suffix; \
	done
	cd dist && sha256sum *.tar.gz farfield_*/farfield* >SHA256SUMS && cat SHA256SUMS

reproducible: # the same commit in two folders, with nothing cached, gives the same program; minutes
	@set -e; for i in 1 2; do \
		tree=$$(mktemp -d); git archive -o $$tree.tar HEAD; tar -xf $$tree.tar -C $$tree; rm $$tree.tar; \
		(cd $$tree && GOCACHE=$$tree.cache $(RELEASE) -o farfield ./cmd/farfield); \
		mv $$tree/farfield reproducible.$$i; rm -rf $$tree $$tree.cache; \
	done; \
	cmp reproducible.1 reproducible.2; wc -c reproducible.1; rm reproducible.1 reproducible.2
