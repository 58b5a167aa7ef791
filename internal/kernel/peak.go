package kernel

import "time"

// FMAPeak measures for about d the peak floating-point operations per second of one core with the
// instruction set of a Table's name: independent float32 multiply-adds, each counted as two, without
// memory access. It returns the best of many short runs, since disturbances only slow runs down.
func FMAPeak(isa string, d time.Duration) float64 {
	const n = 20000
	best := 0.0
	for start := time.Now(); ; {
		t := time.Now()
		ops := n * runRounds(isa, n)
		best = max(best, float64(ops)/time.Since(t).Seconds())
		if time.Since(start) >= d {
			return best
		}
	}
}

// runRoundsGo is runRounds in plain Go, with eight scalar chains.
func runRoundsGo(n int) int {
	x := one
	var s0, s1, s2, s3, s4, s5, s6, s7 float32
	for range n {
		s0 += s0 * x
		s1 += s1 * x
		s2 += s2 * x
		s3 += s3 * x
		s4 += s4 * x
		s5 += s5 * x
		s6 += s6 * x
		s7 += s7 * x
	}
	one = s0 + s1 + s2 + s3 + s4 + s5 + s6 + s7
	return 2 * 8
}

// one keeps the compiler from removing the loop of runRoundsGo.
var one float32
