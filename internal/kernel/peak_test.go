package kernel

import (
	"math"
	"testing"

	"github.com/farfield-ml/farfield/internal/cpu"
)

// The rounds end and count two operations per lane of each chain. Benchmarks measure their speed.
func TestFMAPeak(t *testing.T) {
	lanes := map[string]int{cpu.AVX512: 16, cpu.AVX2: 8, cpu.NEON: 4}
	for _, k := range Tables[float32]() {
		chains := runRounds(k.Name, 3) / (2 * max(lanes[k.Name], 1))
		if got := runRounds(k.Name, 3); chains < 8 || got != 2*max(lanes[k.Name], 1)*chains {
			t.Errorf("%s: %d operations a round", k.Name, got)
		}
		if peak := FMAPeak(k.Name, 0); !(peak > 0) || math.IsInf(peak, 1) {
			t.Errorf("%s: %g operations a second", k.Name, peak)
		}
	}
}
