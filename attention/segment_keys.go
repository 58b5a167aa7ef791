package attention

import (
	"math"
	"slices"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// keyCacheSegment is a segment between states that keep keys and values. Rows of the final
// state have the length of the longest sequence. The missing keys of shorter sequences
// are masked.
type keyCacheSegment[T tensor.Float] struct {
	init, final *keyCache[T]
	shape       *Shape // of both
	tokens      int    // of the state before
	keys        int    // of the longest sequence
	seqs        []Sequence
	group       int      // key heads of a sequence
	exist       [][]bool // of each sequence: which keys exist, of those before the call and then its own
	fades       bool
}

func newCacheSegment[T tensor.Float](e *engine[T], c *Call[T], seqs []Sequence, keys int) (segment[T], error) {
	init, final, err := ends(e, c, seqs, func(s *keyCache[T]) (*engine[T], *Shape) { return s.e, &s.shape })
	if err != nil {
		return nil, err
	}
	x := &keyCacheSegment[T]{init: init, final: final, keys: keys, seqs: seqs, group: c.K.H, fades: c.hasFadingKeys()}
	if init != nil {
		x.shape, x.tokens = &init.shape, init.tokens
	} else {
		x.shape = &final.shape
	}
	for i := range seqs {
		s := &seqs[i]
		exist := make([]bool, x.tokens+s.M)
		if init != nil {
			copy(exist, init.valid[i])
		}
		for j := range s.M {
			exist[x.tokens+j] = c.KeyMask == nil || c.KeyMask[s.Batch*c.K.N+s.K0+j]
		}
		x.exist = append(x.exist, exist)
	}
	return x, nil
}

func (x *keyCacheSegment[T]) countPriorKeys(i int) (count int64) {
	for _, exists := range x.exist[i][:x.tokens] {
		if exists {
			count++
		}
	}
	return count
}

func (x *keyCacheSegment[T]) earlier(i int) (e priorKeys) {
	if x.init == nil {
		return e
	}
	h := &x.init.heads[i]
	da := h.unit.da
	for j, exists := range x.exist[i/x.group][:x.tokens] {
		if !exists {
			continue
		}
		var gone, square float64
		if h.ages != nil {
			gone = h.ages.sumBetween(j-1, j)
		}
		e.add(gone, 1)
		key := h.rows.panelOf(j, da)[j%h.rows.panel:]
		for c := range da {
			y := float64(key[c*h.rows.ldb])
			square += y * y
		}
		e.longest = max(e.longest, math.Sqrt(square))
	}
	if h.ages != nil {
		e.pendingLogDecay = h.ages.pending
	}
	return e
}

func (x *keyCacheSegment[T]) check(g *Grads[T]) error {
	if g.DInit != nil {
		g.DInit.resize(x.shape)
	}
	if g.DFinal == nil {
		return nil
	}
	return g.DFinal.check(x.shape, func(int) int { return x.tokens + x.keys })
}

func (x *keyCacheSegment[T]) end() {
	f := x.final
	if f == nil {
		return
	}
	f.tokens, f.hasMasked = x.tokens+x.keys, false
	for i, exist := range x.exist {
		f.valid[i] = append(exist, make([]bool, f.tokens-len(exist))...)
		f.hasMasked = f.hasMasked || slices.Contains(f.valid[i], false)
	}
}

// all returns the task, of head i, that sees the keys before the call too.
func (x *keyCacheSegment[T]) all(u *headTask[T], q *Sequence, i int) *headTask[T] {
	all := *u
	all.m, all.offset, all.mask = x.tokens+u.m, x.tokens+u.offset, nil
	exist := x.exist[q.Index]
	if slices.Contains(exist, false) {
		all.mask = exist
	}
	if !x.fades {
		return &all
	}
	if x.init != nil {
		all.ages = x.init.heads[i].ages.cloneFor(x.tokens + x.keys)
	}
	if all.ages == nil {
		all.ages = undecayedAges(x.tokens+x.keys, exist[:x.tokens])
	}
	for j := range u.m {
		all.ages.add(u.decay().logDecay(j), u.hasKey(j))
	}
	return &all
}

func (x *keyCacheSegment[T]) forward(u *headTask[T], q *Sequence, kh int) {
	i := q.Index*x.group + kh
	all := x.all(u, q, i)
	rows := &keyRows[T]{panel: cachePanel, ldb: cachePanel, ldv: kernel.Pad(u.dv)}
	rows.bt = u.linear().takeScratch((all.m + cachePanel - 1) / cachePanel * u.da * rows.ldb)
	rows.v = u.linear().takeScratch(all.m * rows.ldv)
	if x.init != nil {
		rows.copy(0, &x.init.heads[i].rows, x.tokens, u.da)
	}
	rows.put(u, x.tokens, 0, u.m)
	u.copyValues(rows.v[x.tokens*rows.ldv:], rows.ldv, 0, u.m)
	u.direct().attendAs(all, rows)
	if x.final == nil {
		return
	}
	for j := u.m; j < x.keys && x.fades; j++ {
		all.ages.add(0, false)
	}
	x.final.heads[i].ages = all.ages
	to := &x.final.heads[i].rows
	to.bt, to.v = to.bt[:0], to.v[:0]
	to.grow(u.da, 0, x.tokens+x.keys)
	clear(to.bt)
	clear(to.v)
	to.copy(0, rows, all.m, u.da)
}

func (x *keyCacheSegment[T]) backward(u *headTask[T], q *Sequence, kh int, g *Grads[T]) {
	i, n := q.Index*x.group+kh, x.tokens
	all := x.all(u, q, i)
	if u.dage != nil {
		all.dage = arena.TakeZeros[float64](u.ar, n+len(u.dage))
		u.dage = all.dage[n:]
	}
	lda, ldo := scratch.Stride[T](u.da), scratch.Stride[T](u.dv)
	keys, values := arena.TakeZeros[T](u.ar, all.m*lda), arena.TakeZeros[T](u.ar, all.m*ldo)
	if x.init != nil {
		rows := &x.init.heads[i].rows
		for j := 0; j < n; j += rows.panel {
			u.t.Transpose(keys[j*lda:], lda, rows.panelOf(j, u.da), rows.ldb, u.da, min(rows.panel, n-j))
		}
		for j := range n {
			copy(values[j*ldo:], rows.v[j*rows.ldv:][:u.dv])
		}
	}
	u.rows().prepareK(keys[n*lda:], lda, 0, u.m)
	u.copyValues(values[n*ldo:], ldo, 0, u.m)
	dkeys, dvalues := u.direct().backPairs(all, keys, values)
	if g.DFinal != nil {
		after := &g.DFinal.heads[i]
		for j := range all.m {
			row := dkeys[j*lda:][:u.da]
			u.t.Add(row, row, after.x[j*u.da:])
			row = dvalues[j*ldo:][:u.dv]
			u.t.Add(row, row, after.v[j*u.dv:])
		}
		if all.dage != nil {
			all.decay().ageKeys(0, after.w[:all.m])
		}
	}
	if g.DInit != nil {
		first := &g.DInit.heads[i]
		first.open(n, u.da, u.dv)
		for j := range n {
			copy(first.x[j*u.da:][:u.da], dkeys[j*lda:])
			copy(first.v[j*u.dv:][:u.dv], dvalues[j*ldo:])
		}
		for j := 0; j < n && all.dage != nil; j++ {
			first.w[j] = T(-all.dage[j]) // no query stands there
		}
	}
	u.rows().gradK(0, u.m, dkeys[n*lda:], lda)
	u.direct().setValuesGrad(dvalues[n*ldo:], 0, u.m)
}
