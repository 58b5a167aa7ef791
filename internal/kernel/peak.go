package kernel

import "time"

// FMAPeak measures for about d how many floating-point operations a second one
// core does at best with an instruction set, as named by a Table: independent
// float32 multiply-adds, each counted as two, without reading memory. It
// returns the best of many short runs, as whatever disturbs one makes it
// slower.
func FMAPeak(isa string, d time.Duration) float64 {
	const n = 20000
	best := 0.0
	for start := time.Now(); ; {
		t := time.Now()
		ops := n * rounds(isa, n)
		best = max(best, float64(ops)/time.Since(t).Seconds())
		if time.Since(start) >= d {
			return best
		}
	}
}

// roundsGo is rounds in plain Go: eight scalar chains.
func roundsGo(n int) int {
	s := chains
	x := s[0]
	for range n {
		for i := range s {
			s[i] += s[i] * x
		}
	}
	chains = s
	return 2 * len(s)
}

// chains outlives roundsGo, so that its loop is not removed.
var chains [8]float32
