// Command _asm writes the assembly of package kernel, and its Go declarations,
// into a directory:
//
//	go run . -dir ..
//
// Every routine is described once, over a vec of 16 lanes, and emitted for
// AVX-512 (one zmm register), for AVX2 with FMA (two ymm registers) and for NEON
// (four registers of arm64). All do the same operations in the same order and
// hence give the same bits.
package main

import (
	"flag"
	"log"
	"os"
	"path/filepath"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/printer"
)

func main() {
	log.SetFlags(0)
	dir := flag.String("dir", "..", "directory to write to")
	flag.Parse()
	for _, f := range []struct {
		name     string
		routines func(*gen)
	}{
		{"tile", tiles},
		{"vector", vectors},
		{"token", token},
		{"random", random},
		{"bytes", eightBits}, // in plain Go on arm64, as the next
		{"half", halves},
	} {
		for name, g := range map[string]*gen{
			"avx512_amd64": {avx512: true, suffix: "AVX512"},
			"avx2_amd64":   {suffix: "AVX2"},
			"neon_arm64":   {neon: true, suffix: "NEON"},
		} {
			if g.neon && (f.name == "bytes" || f.name == "half") {
				continue
			}
			g.Context = build.NewContext()
			g.ConstraintExpr("!purego")
			f.routines(g)
			base := f.name + "_" + name
			if err := write(g, filepath.Join(*dir, base)); err != nil {
				log.Fatalf("%s: %v", base, err)
			}
		}
	}
}

// write compiles what g holds to base.s, with its declarations in base.go.
func write(g *gen, base string) error {
	file, err := g.Result()
	if err != nil {
		return err
	}
	config := printer.Config{Name: "internal/kernel/_asm", Pkg: "kernel"}
	compile, assembly := pass.Compile, printer.NewGoAsm(config).Print
	if g.neon {
		compile, assembly = compileNEON, printNEON
	}
	if err := compile.Execute(file); err != nil {
		return err
	}
	for ext, print := range map[string]func(*ir.File) ([]byte, error){
		".s":  assembly,
		".go": printer.NewStubs(config).Print,
	} {
		text, err := print(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(base+ext, text, 0o666); err != nil {
			return err
		}
	}
	return nil
}
