package plan

import (
	"sort"

	"github.com/farfield-ml/farfield/attention"
)

// fasterFrom returns the least number of tokens n = N = M from which Forward of m is expected to
// take less time than Forward of other, for calls whose other sizes are those of s; 0 if there is
// none up to a billion, or if either plan has no attention.Plan.Cost. The cost of m needs to grow
// more slowly than that of other.
func fasterFrom(m, other attention.Mechanism, s attention.Shape) int {
	const most = 1e9
	faster := func(n int) bool {
		s.N, s.M = n, n
		own, theirs := m.Plan(s).Cost, other.Plan(s).Cost
		return own > 0 && own < theirs
	}
	if n := 1 + sort.Search(most, func(n int) bool { return faster(1 + n) }); n <= most {
		return n
	}
	return 0
}
