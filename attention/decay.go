package attention

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/tensor"
)

// Decay multiplies the weight of key j for query i by exp(Σ_{j<t≤i} log_g_t),
// where query i stands at the place of key i + (M-N). It never touches the rows
// of keys, of which a polynomial takes powers: pairs have the factor on their
// weight; in the linear form it is on the values, the ones under them and the
// moments. All factors are exponentials of sums that are 0 or less, so that
// nothing overflows however fast the decay is.

// decays reports whether keys lose weight with time.
func (c *Call[T]) decays() bool { return c.LogG.D != 0 || len(c.LogG.Data) > 0 }

// checkDecay reports a decay that does not fit the keys. What stands beyond a
// row's key length does not count.
func (c *Call[T]) checkDecay() error {
	if !c.decays() {
		return nil
	}
	if err := sameShape("log_g", &c.LogG, c.K.B, c.K.H, c.K.N, 1); err != nil {
		return err
	}
	for i := range c.K.B * c.K.H {
		b, h := i/c.K.H, i%c.K.H
		rows, n := c.LogG.At(b, h), c.K.N
		if c.KeyLens != nil {
			n = int(c.KeyLens[b])
		}
		for j := range n {
			if x := float64(rows.Row(j)[0]); !(x <= 0) || math.IsInf(x, 0) {
				return fmt.Errorf("log_g: row %d, head %d, token %d is %v, needs to be finite and 0 or less", b, h, j, x)
			}
		}
	}
	return nil
}

// ages are sums of log_g from some token on, up to and with each that follows.
// A key that does not exist has no weight to lose, and what its token takes
// from the keys before it, it takes from all of them: that waits for the next
// key that exists. A query's weights are thus relative to that of the last key
// it sees, and do not vanish all together.
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

// slowest is the smallest log_g that sums hold; its factor is 0 by far.
const slowest = -1e280

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

// between returns the sum over tokens j < t ≤ i, where -1 is before the first.
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

// rate returns log_g of token j.
func (u *unit[T]) rate(j int) float64 {
	if len(u.logG.Data) == 0 {
		return 0
	}
	return float64(u.logG.Row(j)[0])
}

// takeAges returns room for n tokens in scratch memory.
func (u *unit[T]) takeAges(n int) *ages {
	return newAges(n, func(n int) []float64 { return arena.Take[float64](u.ar, n) })
}

// age takes in all keys, for the direct form.
func (u *unit[T]) age() {
	if len(u.logG.Data) == 0 {
		return
	}
	u.ages = u.takeAges(u.m)
	for j := range u.m {
		u.ages.add(u.rate(j), u.exists(j))
	}
	if u.keep == nil {
		return
	}
	u.places = make([]int, u.n)
	for i := range u.places {
		last := u.at(i)
		for j := last; j >= 0; j-- {
			if u.exists(j) && u.keep[i*u.keepRow+j] {
				last = j
				break
			}
		}
		u.places[i] = last
	}
}

// at returns where query i stands among the keys, at most at the last.
func (u *unit[T]) at(i int) int { return min(u.seen(i), u.m) - 1 }

// waits returns what query i has waiting after the last key that it sees.
func (u *unit[T]) waits(i int) float64 {
	if u.ages == nil {
		return 0
	}
	at := u.at(i)
	w := u.ages.waits(at)
	if u.places != nil {
		w += u.ages.between(u.places[i], at)
	}
	return w
}

// eps returns what is added to a denominator that is relative to the last key
// seen, after which so much waits. It may be infinite, and the output then is 0.
func (u *unit[T]) eps(waits float64) T {
	if waits == 0 || u.spec.Eps == 0 {
		return T(u.spec.Eps)
	}
	return T(u.spec.Eps * math.Exp(-waits))
}

// ageBorder is the distance between places by way of which factors go within
// a block of keys.
const ageBorder = 16

// fader makes the factors by which weights of a block have decayed, or adds
// their logarithms to the scores of the exponential. The factor of a pair is
// that from the key to a border before the query times that from there on; for
// keys behind the border it is one exponential. Queries behind a whole block of
// keys have its end as border, so that columns have their part once. A factor
// depends on the two places alone.
type fader[T tensor.Float] struct {
	t           *kernel.Table[T]
	log         bool
	border      int // which columns go to
	column, row []T // [nk]; of logarithms a row of ones
	since       []T // [1]
}

func (u *unit[T]) fader(b *block[T]) (f fader[T]) {
	if b.ages == nil {
		return f
	}
	f = fader[T]{u.t, u.spec.Exp, -1, arena.Take[T](u.ar, b.nk), nil, arena.Take[T](u.ar, 1)}
	if f.log {
		f.row = ones[T](u.ar, b.nk)
	} else {
		f.row = arena.Take[T](u.ar, b.nk)
	}
	return f
}

// place returns where row r stands.
func (b *block[T]) place(r int) int {
	if b.places != nil {
		return b.places[r]
	}
	return min(b.at+r, b.ages.tokens()-1)
}

// near returns for a row that stands at a place, and sees n keys, how many of
// them are before its border, sets their columns and returns the sum of log_g
// from the border on.
func (f *fader[T]) near(b *block[T], at, n int) (near int, since float64) {
	border := at &^ (ageBorder - 1)
	if end := b.key + keyBlock; at >= end && b.nk <= keyBlock {
		border = end
	}
	if near = min(max(border-b.key, 0), n); near == 0 {
		return 0, 0
	}
	if f.border != border {
		f.border = border
		column, unit := f.column[:min(border-b.key, b.nk)], 1.0
		if f.log {
			unit = b.log
		}
		for c := range column {
			column[c] = T(b.ages.between(b.key+c, border-1) * unit)
		}
		if !f.log {
			f.t.Exp(column, column, 0)
		}
	}
	return near, b.ages.between(border-1, at)
}

// factors returns those of row r and the keys that are visible to it.
func (f *fader[T]) factors(b *block[T], r int) []T {
	row, at := f.row[:b.visible(r)], b.place(r)
	near, since := f.near(b, at, len(row))
	if near > 0 {
		f.t.Scale(row[:near], T(math.Exp(since)), f.column)
	}
	for c := near; c < len(row); c++ {
		row[c] = T(math.Inf(-1))
		if b.key+c <= at {
			row[c] = T(b.ages.between(b.key+c, at))
		}
	}
	if near < len(row) {
		f.t.Exp(row[near:], row[near:], 0)
	}
	return row
}

// fade sets dst to the weights of row r times its factors. They do not overlap.
func (f *fader[T]) fade(b *block[T], r int, dst, weights []T) {
	n := b.visible(r)
	near, since := f.near(b, b.place(r), n)
	if near < n {
		f.t.Mul(dst[:n], weights, f.factors(b, r))
		return
	}
	f.since[0] = T(math.Exp(since))
	f.t.Products(dst, n, f.since, f.column[:n], weights, n)
}

// ageScores adds the logarithms of their decay to scores of rows from r0 on.
// Where since is not nil it leaves out what all keys of a row have in common, and
// sets since to that, to base 2.
func (u *unit[T]) ageScores(f *fader[T], b *block[T], r0, rows int, s []T, ld int, since []T) {
	if b.ages == nil {
		return
	}
	for r := range rows {
		row, at := s[r*ld:][:b.visible(r0+r)], b.place(r0+r)
		near, gone := f.near(b, at, len(row))
		f.t.Add(row[:near], row, f.column)
		switch {
		case since != nil && near == len(row):
			since[r] = T(gone * math.Log2E)
			continue
		case since != nil:
			since[r] = 0
		}
		if near > 0 {
			f.since[0] = T(gone * b.log)
			f.t.MulRows(row, f.row, near, near, f.since)
		}
		for c := near; c < len(row); c++ {
			if b.key+c <= at {
				row[c] += T(b.ages.between(b.key+c, at) * b.log)
			} else {
				row[c] = T(math.Inf(-1))
			}
		}
	}
}

// sinks returns room for what ageScores leaves out of rows, and for powers less
// that.
func (b *block[T]) sinks(ar *arena.Arena, rows int) (since, less []T) {
	if b.ages == nil {
		return nil, nil
	}
	return arena.Take[T](ar, rows), arena.Take[T](ar, rows)
}

// less returns powers less since, in room for them; without decay the powers.
func less[T tensor.Float](top, since, room []T) []T {
	if since == nil {
		return top
	}
	for r, x := range top {
		room[r] = x - since[r]
	}
	return room[:len(top)]
}

// sumWeights adds to x.age the sums over rows from r0 on of their weights, the
// rows of w, times x.w.
func (u *unit[T]) sumWeights(x *gradient[T], r0, rows, cols int, w []T, ld int) {
	if x.age == nil || cols == 0 {
		return
	}
	for r := range rows {
		clear(w[r*ld+cols : r*ld+kernel.Pad(cols)])
	}
	u.t.Mix(x.age[:kernel.Pad(cols)], x.w[r0:][:rows], rows, w, ld, nil, 0)
}

// The gradient of log_g. Place i has the sum G_i, and w_ij goes with
// exp(G_i - G_j). With dw_ij = do_i·(v_j - o_i)/g_i,
//
//	dG_i = Σ_j w_ij·dw_ij - Σ_l w_li·dw_li,  dlog_g_t = Σ_{i≥t} dG_i.
//
// The first sum is do_i·o_i·eps/g_i, for g_i = Σ_j w_ij + eps. The second is
// v_i·dv_i + Σ_l w_li·(-do_l·o_l)/g_l, where dv has been summed already.

// ageQueries adds to dG what comes of eps, for len(w) queries from i0 on.
func (u *unit[T]) ageQueries(i0 int, w []T, waits func(i int) float64) {
	if u.spec.Exp || u.spec.Eps == 0 {
		return
	}
	for r, x := range w {
		if x != 0 {
			place := u.m // behind all keys
			if u.causal {
				place = i0 + r + u.off
			}
			u.dage[place] -= float64(x) * float64(u.eps(waits(i0+r)))
		}
	}
}

// ageKeys adds to dG the sums x of keys from j0 on.
func (u *unit[T]) ageKeys(j0 int, x []T) {
	for j, y := range x {
		u.dage[j0+j] -= float64(y)
	}
}

// ageGrad sets dlog_g, unless it is not wanted, when dV is complete. After is
// the sum of dG over what comes after the call; it returns that over the call
// too. The tokens up to the first key that exists let nothing decay; seen says
// that there is one before the call.
func (u *unit[T]) ageGrad(after float64, seen bool) (sum float64) {
	first := -1
	for first < u.m && !seen {
		first++
		seen = first < u.m && u.exists(first)
	}
	sum = after
	for j := len(u.dage) - 1; j >= 0; j-- {
		sum += u.dage[j]
		if j >= u.m {
			continue
		}
		if u.exists(j) {
			v := u.v.Row(j)
			for c, d := range u.dval.Row(j) {
				if d != 0 { // no query has met the value otherwise
					sum -= float64(d) * float64(v[c])
				}
			}
		}
		if u.dlogG.Rows == 0 {
			continue
		}
		u.dlogG.Row(j)[0] = 0
		if j > first {
			u.dlogG.Row(j)[0] = T(sum)
		}
	}
	return sum
}

// fade multiplies the moments.
func (s *moments[T]) fade(t *kernel.Table[T], by T) {
	if !s.some || by == 1 {
		return
	}
	t.Scale(s.s, by, s.s)
	t.Scale(s.z, by, s.z)
	if s.low != nil {
		t.Scale(s.low.s, by, s.low.s)
		t.Scale(s.low.z, by, s.low.z)
	}
}

// The moments of a stream are relative to the last token before the open chunk.

// age counts keys j0 ≤ j < j1 of the unit into the open chunk.
func (s *stream[T]) age(j0, j1 int) {
	if s.ages == nil {
		return
	}
	for j := j0; j < j1; j++ {
		s.ages.add(s.u.rate(j), s.u.exists(j))
	}
}

// left returns the factor of the whole open chunk.
func (s *stream[T]) left() T {
	if s.ages == nil {
		return 1
	}
	return T(math.Exp(s.ages.between(-1, s.ages.tokens()-1)))
}

// place returns where in the open chunk a query stands that sees its keys up to
// i: -1 if it has none.
func (s *stream[T]) place(i int) int { return min(i, s.n-1) }

// eps is the unit's, for a query that sees keys of the open chunk up to i.
func (s *stream[T]) eps(i int) T {
	if s.ages == nil {
		return T(s.u.spec.Eps)
	}
	return s.u.eps(s.ages.waits(s.place(i)))
}

// agedKeys returns the values of the open chunk, and ones, as they are at its
// end.
func (s *stream[T]) agedKeys() (v, w []T) {
	if s.ages == nil {
		return s.v, s.x
	}
	w = arena.Take[T](s.u.ar, s.n)
	for j := range w {
		w[j] = T(s.ages.between(j, s.n-1))
	}
	s.u.t.Exp(w, w, 0)
	return s.scaleRows(s.v, w), w
}

// scaleRows returns rows of the moments' stride, each times its factor.
func (s *stream[T]) scaleRows(rows, factors []T) []T {
	u, ld := s.u, s.past.ld
	y := arena.Take[T](u.ar, len(factors)*ld)
	u.t.Products(y, ld, factors, ones[T](u.ar, ld), rows, ld)
	return y
}

// since returns for n queries, the first of which sees keys of the open chunk
// up to diag, what is left of the moments before it.
func (s *stream[T]) since(n, diag int) []T {
	f := arena.Take[T](s.u.ar, n)
	for r := range f {
		f[r] = T(math.Exp(s.ages.between(-1, s.place(diag+r))))
	}
	return f
}

// agedQueries returns rows y and numbers w of n queries as the moments before
// the open chunk see them.
func (s *stream[T]) agedQueries(y, w []T, n, diag int) (ya, wa []T) {
	if s.ages == nil {
		return y, w
	}
	f := s.since(n, diag)
	wa = arena.Take[T](s.u.ar, n)
	s.u.t.Mul(wa, w, f)
	return s.scaleRows(y, f), wa
}

// startAges has the stream count ages from now on.
func (s *stream[T]) startAges() {
	if s.ages == nil {
		s.ages = lateAges(s.c, s.exist[:s.n])
	}
}

// recede goes back to before key j0 of the unit.
func (s *stream[T]) recede(j0 int) {
	if s.ages == nil {
		return
	}
	u, j := s.u, j0
	for j > 0 && !u.exists(j-1) {
		j--
	}
	if s.ages.owes = 0; j == 0 {
		s.ages.owes = s.owed
	}
	for ; j < j0; j++ {
		s.ages.owes = max(s.ages.owes+u.rate(j), slowest)
	}
}

// agedValues returns the gradients of the values of the open chunk, and of the
// ones under them, from those of what agedKeys gives with factors w.
func (s *stream[T]) agedValues(dv, ones, w []T) (values, keys []T) {
	s.u.t.Mul(ones, ones, w)
	return s.scaleRows(dv, w), ones
}

// fadeRows multiplies numerators and denominators that n queries have from the
// moments.
func (s *stream[T]) fadeRows(o, den []T, n, diag int) {
	mark := s.u.ar.Mark()
	for r, f := range s.since(n, diag) {
		row := o[r*s.past.ld:][:s.past.ld]
		s.u.t.Scale(row, f, row)
		den[r] *= f
	}
	s.u.ar.Reset(mark)
}

// States. One that has met a decay once goes on with it: tokens without have
// that of 1.

const decayKind = " with decay"

// decaying reports that a state has met a decay.
func decaying[T tensor.Float](st State[T]) bool {
	s, ok := st.(interface{ decays() bool })
	return ok && s.decays()
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

// follow makes the ages those of the tokens of next, which come after what the
// stream holds, and has its moments decay by what these take from them.
func (s *stream[T]) follow(next *stream[T]) {
	if s.ages == nil && next.ages == nil {
		return
	}
	before, after := s.ages, next.ages.clone(next.c)
	if before == nil {
		before = lateAges(s.c, nil)
	}
	if after == nil {
		after = lateAges(next.c, next.exist[:next.n])
	}
	if next.first == unseen {
		after.owes += before.owes
		after.gone = before.gone
		if n := after.tokens(); n > 0 {
			after.owed[n-1] = after.owes
		}
	} else {
		s.past.fade(s.u.t, T(math.Exp(before.owes+after.gone)))
		after.gone += before.gone + before.owes
	}
	s.ages = after
}

// follow appends those of the tokens of next; nil: without decay.
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

// write appends what waits, the sum over tokens that have been forgotten, the
// sums after each of n tokens and what their roundings leave out. Those of tokens
// that are not there yet are zero.
func (a *ages) write(w *snapshotWriter, n int) {
	rest := make([]float64, n-a.tokens())
	writeElements(w, []float64{a.owes, a.gone})
	for _, sums := range [][]float64{a.hi, a.lo} {
		writeElements(w, sums[1:])
		writeElements(w, rest)
	}
}

// agesBytes is what write takes for n tokens.
func agesBytes(n float64) float64 { return 8 * (2 + 2*n) }

// readAges reads what write wrote for room tokens, of which there are n.
func readAges(r *snapshotReader, n, room int) *ages {
	a := heapAges(room)
	var rest [2]float64
	readElements(r, rest[:])
	for _, sums := range []*[]float64{&a.hi, &a.lo} {
		readElements(r, (*sums)[1:room+1])
		*sums = (*sums)[:n+1]
	}
	a.owed, a.owes, a.gone = a.owed[:n], rest[0], rest[1]
	if n > 0 {
		a.owed[n-1] = a.owes // those before have been answered
	}
	return a
}

// Segments. A call after a state sees the factors of tokens before it through
// the state alone, and the sum that dlog_g is goes on across the border: with
// dG of all places, also those of later calls,
//
//	dlog_g_t = Σ_{t≤i, i in the call} dG_i + Σ_{i after the call} dG_i.
//
// The second sum is one number for each key head, which goes backward with the
// gradient of the state. In the first, what later queries take from dG of a key
// comes by the ways on which they reach the key: where it is in the moments, by
// v·dv and the ones that their gradient gives back as between chunks; where it
// is in the open chunk or in a cache, by the gradients that the state's gradient
// has of its value and of the one under it. What is owed needs none of its own:
// its tokens are before all those places.

// fades reports whether the keys that queries see have lost weight with time.
func (c *Call[T]) fades() bool { return c.decays() || decaying(c.Init) }

// ageAfter returns the sum of dG over what comes after the call, for key head i.
func (g *Grads[T]) ageAfter(i int) float64 {
	if g.DFinal == nil {
		return 0
	}
	return g.DFinal.heads[i].age
}
