# The same commands as .ci/run, one at a time.
.PHONY: test long vet generate bench ci demo

test: # the README's test command
	go test ./...

long: # checks that take longer
	go test ./mechanism ./generate -long
	go test ./internal/kernel -regenerate

vet:
	gofmt -l .
	go vet ./...

generate: # the assembly of internal/kernel
	go generate ./internal/kernel

bench: # GEMM against the FMA peak of the same run
	go test ./internal/kernel -run x -bench Gemm1024

demo:
	go run ./cmd/farfield demo

ci:
	.ci/run
