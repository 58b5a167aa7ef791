package mechanism

import "strings"

// MaxGrowth is the most by which operations of what claims a linear cost may grow
// for twice the tokens, from 4096 to 8192 of one head. Costs that do not depend on
// the tokens make it less than 2, edges of windows more.
const MaxGrowth = 2.1

// ClaimsLinear reports whether the row's traits say that its cost grows in
// proportion to the tokens: by a linear form, as a whole, or with a window of
// fixed size.
func (r Row) ClaimsLinear() bool {
	for _, says := range []string{"linear forms", "linear in the tokens", "cost in proportion to"} {
		if strings.Contains(r.Traits, says) {
			return true
		}
	}
	return false
}
