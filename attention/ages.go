package attention

import "github.com/farfield-ml/farfield/internal/snapshot"

// ages holds cumulative sums of log_g from some token on, after each following token.
// The log-decay of a masked token is deferred to the next unmasked token. The weights of
// a query are relative to the last key that it sees, so that they cannot vanish together.
type ages struct {
	// [tokens+1] the sums before the first token and after each, and what their
	// roundings leave out.
	hi, lo []float64
	owed   []float64 // [tokens] what waits after each token
	owes   float64   // what waits
	gone   float64   // the sum over tokens that have been forgotten
}

// newAges returns room for n tokens.
func newAges(n int, take func(n int) []float64) *ages {
	a := &ages{hi: take(n + 1)[:1], lo: take(n + 1)[:1], owed: take(n)[:0]}
	a.hi[0], a.lo[0] = 0, 0
	return a
}

// tokens is the number of tokens.
func (a *ages) tokens() int { return len(a.owed) }

// clear forgets the tokens, but not what waits.
func (a *ages) clear() {
	a.gone += a.between(-1, a.tokens()-1)
	a.hi, a.lo, a.owed = a.hi[:1], a.lo[:1], a.owed[:0]
}

// add appends a token.
func (a *ages) add(g float64, exists bool) {
	a.owes = max(a.owes+g, slowest)
	n := len(a.owed)
	hi, lo := a.hi[n], a.lo[n]
	if exists {
		sum := hi + a.owes
		part := sum - hi
		lo += (hi - (sum - part)) + (a.owes - part)
		hi, a.owes = sum, 0
	}
	a.hi, a.lo, a.owed = append(a.hi, hi), append(a.lo, lo), append(a.owed, a.owes)
}

// between returns the sum over tokens j < t ≤ i. -1 is before the first token.
func (a *ages) between(j, i int) float64 {
	return (a.hi[i+1] - a.hi[j+1]) + (a.lo[i+1] - a.lo[j+1])
}

// waits returns what waits after token i.
func (a *ages) waits(i int) float64 {
	if i < 0 {
		return a.owes
	}
	return a.owed[i]
}

// clone returns a copy with room for n tokens.
func (a *ages) clone(n int) *ages {
	if a == nil {
		return nil
	}
	c := heapAges(max(n, a.tokens()))
	c.hi, c.lo, c.owed = append(c.hi, a.hi[1:]...), append(c.lo, a.lo[1:]...), append(c.owed, a.owed...)
	c.owes, c.gone = a.owes, a.gone
	return c
}

func heapAges(n int) *ages {
	return newAges(n, func(n int) []float64 { return make([]float64, n) })
}

// lateAges returns ages of tokens that came before the first decay.
func lateAges(n int, exist []bool) *ages {
	a := heapAges(n)
	for _, exists := range exist {
		a.add(0, exists)
	}
	return a
}

// follow appends the sums of the tokens of next; nil: without decay.
func (a *ages) follow(next *ages, exist []bool) {
	if next = next.clone(0); next == nil {
		next = lateAges(len(exist), exist)
	}
	for j, exists := range exist {
		a.add(next.between(j-1, j), exists)
	}
	a.owes += next.owes
}

// bytes is the memory held.
func (a *ages) bytes() int64 {
	if a == nil {
		return 0
	}
	return int64(cap(a.hi)+cap(a.lo)+cap(a.owed)) * 8
}

// write appends the deferred log-decay, the sum over forgotten tokens, the sums after each
// of n tokens, and their low-order parts. Sums of tokens to come are zero.
func (a *ages) write(w *snapshot.Writer, n int) {
	rest := make([]float64, n-a.tokens())
	snapshot.WriteElements(w, []float64{a.owes, a.gone})
	for _, sums := range [][]float64{a.hi, a.lo} {
		snapshot.WriteElements(w, sums[1:])
		snapshot.WriteElements(w, rest)
	}
}

// agesBytes is what write takes for n tokens.
func agesBytes(n float64) float64 { return 8 * (2 + 2*n) }

// readAges reads the output of write for room tokens, n of them present.
func readAges(r *snapshot.Reader, n, room int) *ages {
	a := heapAges(room)
	var rest [2]float64
	snapshot.ReadElements(r, rest[:])
	for _, sums := range []*[]float64{&a.hi, &a.lo} {
		snapshot.ReadElements(r, (*sums)[1:room+1])
		*sums = (*sums)[:n+1]
	}
	a.owed, a.owes, a.gone = a.owed[:n], rest[0], rest[1]
	if n > 0 {
		a.owed[n-1] = a.owes // those before have been answered
	}
	return a
}
