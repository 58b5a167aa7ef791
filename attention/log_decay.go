package attention

import "github.com/farfield-ml/farfield/internal/snapshot"

// logDecays holds cumulative sums of log_g from some token on, after each following token.
// The log-decay of a masked token is deferred to the next unmasked token. The weights of
// a query are relative to the last key that it sees, so that they cannot vanish together.
type logDecays struct {
	// [tokens+1] the sums before the first token and after each, and what their
	// roundings leave out.
	hi, lo    []float64
	pendings  []float64 // [tokens] what waits after each token
	pending   float64   // what waits
	forgotten float64   // the sum over tokens that have been forgotten
}

// newAges returns room for n tokens.
func newAges(n int, take func(n int) []float64) *logDecays {
	a := &logDecays{hi: take(n + 1)[:1], lo: take(n + 1)[:1], pendings: take(n)[:0]}
	a.hi[0], a.lo[0] = 0, 0
	return a
}

// tokens is the number of tokens.
func (a *logDecays) tokens() int { return len(a.pendings) }

// clear forgets the tokens, but not what waits.
func (a *logDecays) clear() {
	a.forgotten += a.sumBetween(-1, a.tokens()-1)
	a.hi, a.lo, a.pendings = a.hi[:1], a.lo[:1], a.pendings[:0]
}

// add appends a token.
func (a *logDecays) add(g float64, exists bool) {
	a.pending = max(a.pending+g, slowest)
	n := len(a.pendings)
	hi, lo := a.hi[n], a.lo[n]
	if exists {
		sum := hi + a.pending
		part := sum - hi
		lo += (hi - (sum - part)) + (a.pending - part)
		hi, a.pending = sum, 0
	}
	a.hi, a.lo, a.pendings = append(a.hi, hi), append(a.lo, lo), append(a.pendings, a.pending)
}

// sumBetween returns the sum over tokens j < t ≤ i. -1 is before the first token.
func (a *logDecays) sumBetween(j, i int) float64 {
	return (a.hi[i+1] - a.hi[j+1]) + (a.lo[i+1] - a.lo[j+1])
}

// pendingAfter returns what waits after token i.
func (a *logDecays) pendingAfter(i int) float64 {
	if i < 0 {
		return a.pending
	}
	return a.pendings[i]
}

// cloneFor returns a copy with room for n tokens.
func (a *logDecays) cloneFor(n int) *logDecays {
	if a == nil {
		return nil
	}
	c := heapAges(max(n, a.tokens()))
	c.hi, c.lo, c.pendings = append(c.hi, a.hi[1:]...), append(c.lo, a.lo[1:]...), append(c.pendings, a.pendings...)
	c.pending, c.forgotten = a.pending, a.forgotten
	return c
}

func heapAges(n int) *logDecays {
	return newAges(n, func(n int) []float64 { return make([]float64, n) })
}

// undecayedAges returns ages of tokens that came before the first decay.
func undecayedAges(n int, exist []bool) *logDecays {
	a := heapAges(n)
	for _, exists := range exist {
		a.add(0, exists)
	}
	return a
}

// appendAges appends the sums of the tokens of next; nil: without decay.
func (a *logDecays) appendAges(next *logDecays, exist []bool) {
	if next = next.cloneFor(0); next == nil {
		next = undecayedAges(len(exist), exist)
	}
	for j, exists := range exist {
		a.add(next.sumBetween(j-1, j), exists)
	}
	a.pending += next.pending
}

// bytes is the memory held.
func (a *logDecays) bytes() int64 {
	if a == nil {
		return 0
	}
	return int64(cap(a.hi)+cap(a.lo)+cap(a.pendings)) * 8
}

// write appends the deferred log-decay, the sum over forgotten tokens, the sums after each
// of n tokens, and their low-order parts. Sums of tokens to come are zero.
func (a *logDecays) write(w *snapshot.Writer, n int) {
	rest := make([]float64, n-a.tokens())
	snapshot.WriteElements(w, []float64{a.pending, a.forgotten})
	for _, sums := range [][]float64{a.hi, a.lo} {
		snapshot.WriteElements(w, sums[1:])
		snapshot.WriteElements(w, rest)
	}
}

// agesBytes is what write takes for n tokens.
func agesBytes(n float64) float64 { return 8 * (2 + 2*n) }

// readAges reads the output of write for room tokens, n of them present.
func readAges(r *snapshot.Reader, n, room int) *logDecays {
	a := heapAges(room)
	var rest [2]float64
	snapshot.ReadElements(r, rest[:])
	for _, sums := range []*[]float64{&a.hi, &a.lo} {
		snapshot.ReadElements(r, (*sums)[1:room+1])
		*sums = (*sums)[:n+1]
	}
	a.pendings, a.pending, a.forgotten = a.pendings[:n], rest[0], rest[1]
	if n > 0 {
		a.pendings[n-1] = a.pending // those before have been answered
	}
	return a
}
