//go:build !(amd64 || arm64) || purego

package kernel

// assembly returns the tables of assembly routines: none here.
func assembly() []*Table[float32] { return nil }

// rounds runs n rounds of multiply-adds and returns how many operations a
// round has.
func rounds(_ string, n int) int { return roundsGo(n) }
