// Command _asm writes the amd64 assembly of package kernel, and its Go
// declarations, into a directory:
//
//	go run . -dir ..
//
// Every routine is described once, over a vec of 16 lanes, and emitted for
// AVX-512 (one zmm register) and for AVX2 with FMA (two ymm registers). Both
// do the same operations in the same order and hence give the same bits.
package main

import (
	"flag"
	"log"
	"os"
	"path/filepath"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/printer"
)

func main() {
	log.SetFlags(0)
	dir := flag.String("dir", "..", "directory to write to")
	flag.Parse()
	for _, f := range []struct {
		name     string
		suffix   string
		wide     bool
		routines func(*gen)
	}{
		{"tile_avx512", "AVX512", true, tiles},
		{"tile_avx2", "AVX2", false, tiles},
		{"vector_avx512", "AVX512", true, vectors},
		{"vector_avx2", "AVX2", false, vectors},
		{"token_avx512", "AVX512", true, token},
		{"token_avx2", "AVX2", false, token},
		{"random_avx512", "AVX512", true, random},
		{"random_avx2", "AVX2", false, random},
	} {
		g := &gen{Context: build.NewContext(), wide: f.wide, suffix: f.suffix}
		g.ConstraintExpr("!purego")
		f.routines(g)
		if err := write(g, filepath.Join(*dir, f.name+"_amd64")); err != nil {
			log.Fatalf("%s: %v", f.name, err)
		}
	}
}

// write compiles what g holds to base.s, with its declarations in base.go.
func write(g *gen, base string) error {
	file, err := g.Result()
	if err != nil {
		return err
	}
	if err := pass.Compile.Execute(file); err != nil {
		return err
	}
	config := printer.Config{Name: "internal/kernel/_asm", Pkg: "kernel"}
	for ext, p := range map[string]printer.Printer{
		".s":  printer.NewGoAsm(config),
		".go": printer.NewStubs(config),
	} {
		text, err := p.Print(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(base+ext, text, 0o666); err != nil {
			return err
		}
	}
	return nil
}
