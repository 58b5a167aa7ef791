package costmodel

import (
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/cpu"
)

// TestTablesAreComplete has a plausible speed at every width of every table, and a text
// that Format writes.
func TestTablesAreComplete(t *testing.T) {
	for _, isa := range []string{cpu.AVX512, cpu.AVX2, cpu.NEON, cpu.Generic} {
		table := Speeds(isa)
		for i := range 4 {
			back, causal := i/2 == 1, i%2 == 1
			for k := range kernelNames {
				for d := 1; d < 160; d++ {
					s := table.Interpolate(Kernel(k), d, causal, back)
					if !(s.Token >= 0 && s.Direct > 0 && s.Direct < 5 && s.Open > 0.4 && s.Open < 2.5 && s.Linear > 0 && s.Linear < 5) {
						t.Fatalf("%s, back %v, causal %v, %v, D = %d: %+v", isa, back, causal, Kernel(k), d, s)
					}
				}
			}
		}
		if isa == cpu.NEON {
			continue
		}
		text, err := texts.ReadFile(isa + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(string(text), "\n")
		if got := table.Format(strings.TrimPrefix(first, "# Measured on ")); got != string(text) {
			t.Errorf("%s: Format does not give the embedded text", isa)
		}
	}
}

// TestPairsAreCounted compares the closed forms with counting.
func TestPairsAreCounted(t *testing.T) {
	for n := range 30 {
		for m := range 30 {
			count := 0
			for i := range n {
				count += min(i+1, m)
			}
			if got := CausalPairs(n, m); got != float64(count) {
				t.Errorf("CausalPairs(%d, %d) = %g, want %d", n, m, got, count)
			}
		}
		for chunk := 1; chunk < 12; chunk++ {
			count := 0
			for i := range n {
				count += i%chunk + 1
			}
			if got := ChunkPairs(n, chunk); got != float64(count) {
				t.Errorf("ChunkPairs(%d, %d) = %g, want %d", n, chunk, got, count)
			}
		}
	}
}
