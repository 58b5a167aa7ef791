//go:build !(amd64 || arm64) || purego

package kernel

// assemblyTables returns the tables of assembly routines: none here.
func assemblyTables() []*Table[float32] { return nil }

// runRounds runs n rounds of multiply-adds and returns the operations of a round.
func runRounds(_ string, n int) int { return runRoundsGo(n) }
