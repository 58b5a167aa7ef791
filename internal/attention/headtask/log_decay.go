package headtask

import "github.com/farfield-ml/farfield/internal/states"

// LogDecays holds the cumulative sums of log_g over a sequence of tokens. The log-decay of a
// masked token is deferred to the next unmasked token. The weights of a query are relative to
// the last key that it sees, so that they cannot all vanish.
type LogDecays struct {
	// [tokens+1] the sums before the first token and after each, and what their
	// roundings leave out.
	hi, lo    []float64
	pendings  []float64 // [tokens] pending log-decay after each token
	Pending   float64   // log-decay deferred to the next unmasked token
	Forgotten float64   // sum over tokens that have been removed
}

// newAges returns empty log-decays with room for n tokens.
func newAges(n int, take func(n int) []float64) *LogDecays {
	a := &LogDecays{hi: take(n + 1)[:1], lo: take(n + 1)[:1], pendings: take(n)[:0]}
	a.hi[0], a.lo[0] = 0, 0
	return a
}

// tokens is the number of tokens.
func (a *LogDecays) tokens() int { return len(a.pendings) }

// clear removes the tokens but keeps the pending log-decay.
func (a *LogDecays) clear() {
	a.Forgotten += a.SumBetween(-1, a.tokens()-1)
	a.hi, a.lo, a.pendings = a.hi[:1], a.lo[:1], a.pendings[:0]
}

// Add appends a token with log-decay g. exists says that its key is unmasked.
func (a *LogDecays) Add(g float64, exists bool) {
	a.Pending = max(a.Pending+g, Slowest)
	n := len(a.pendings)
	hi, lo := a.hi[n], a.lo[n]
	if exists {
		sum := hi + a.Pending
		part := sum - hi
		lo += (hi - (sum - part)) + (a.Pending - part)
		hi, a.Pending = sum, 0
	}
	a.hi, a.lo, a.pendings = append(a.hi, hi), append(a.lo, lo), append(a.pendings, a.Pending)
}

// SumBetween returns the sum of log_g over tokens j < t ≤ i. A j of -1 means before the first
// token.
func (a *LogDecays) SumBetween(j, i int) float64 {
	return (a.hi[i+1] - a.hi[j+1]) + (a.lo[i+1] - a.lo[j+1])
}

// pendingAfter returns the log-decay that is pending after token i.
func (a *LogDecays) pendingAfter(i int) float64 {
	if i < 0 {
		return a.Pending
	}
	return a.pendings[i]
}

// CloneFor returns a copy with room for n tokens.
func (a *LogDecays) CloneFor(n int) *LogDecays {
	if a == nil {
		return nil
	}
	c := HeapAges(max(n, a.tokens()))
	c.hi, c.lo, c.pendings = append(c.hi, a.hi[1:]...), append(c.lo, a.lo[1:]...), append(c.pendings, a.pendings...)
	c.Pending, c.Forgotten = a.Pending, a.Forgotten
	return c
}

// HeapAges returns empty log-decays with room for n tokens, allocated on the heap.
func HeapAges(n int) *LogDecays {
	return newAges(n, func(n int) []float64 { return make([]float64, n) })
}

// UndecayedAges returns the log-decays of tokens before the first decay, which are all 0, with
// room for n tokens.
func UndecayedAges(n int, exist []bool) *LogDecays {
	a := HeapAges(n)
	for _, exists := range exist {
		a.Add(0, exists)
	}
	return a
}

// AppendAges appends the tokens of next, whose mask is exist. next is nil if they have no
// decay.
func (a *LogDecays) AppendAges(next *LogDecays, exist []bool) {
	if next = next.CloneFor(0); next == nil {
		next = UndecayedAges(len(exist), exist)
	}
	for j, exists := range exist {
		a.Add(next.SumBetween(j-1, j), exists)
	}
	a.Pending = max(a.Pending+next.Pending, Slowest)
	if n := a.tokens(); n > 0 {
		a.pendings[n-1] = a.Pending
	}
}

// Bytes returns the memory held.
func (a *LogDecays) Bytes() int64 {
	if a == nil {
		return 0
	}
	return int64(cap(a.hi)+cap(a.lo)+cap(a.pendings)) * 8
}

// Visit lists the pending log-decay, the sum over removed tokens, the sums after each of n
// tokens, and their low-order parts. If p sets the state, a is empty with room for room tokens.
func (a *LogDecays) Visit(p *states.Pass, n, room int) {
	pending, forgotten := p.Float(a.Pending), p.Float(a.Forgotten)
	if p.SetsState() {
		a.Pending, a.Forgotten = pending, forgotten
		a.hi, a.lo, a.pendings = a.hi[:n+1], a.lo[:n+1], a.pendings[:n]
	}
	p.Wide(a.hi, 1, n, room-n)
	p.Wide(a.lo, 1, n, room-n)
	if states.Derived(p, a.pendings, 0, n); p.SetsState() && n > 0 {
		a.pendings[n-1] = a.Pending // those before have been answered
	}
}

// AgesBytes returns the size of n tokens in a snapshot.
func AgesBytes(n float64) float64 { return 8 * (2 + 2*n) }
