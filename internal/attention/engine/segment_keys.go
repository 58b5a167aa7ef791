package engine

import (
	"math"
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/headtask"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
)

// keyCacheSegment is a segment between states that keep keys and values. Rows of the final
// state have the length of the longest sequence. The missing keys of shorter sequences
// are masked. A call without states takes DirectForward and DirectBackward, with the same bits
// forward: these read queries and values where they are and allocate nothing, while a segment
// gathers all rows and masks first.
type keyCacheSegment struct {
	init, final *keyCache
	shape       *attention.Shape // of both
	tokens      int              // of the state before
	keys        int              // of the longest sequence
	seqs        []SequenceTask
	group       int      // key heads of a sequence
	exist       [][]bool // mask of each sequence: of the keys before the call, then of its own
	fades       bool
}

func newCacheSegment(e *Engine, c *attention.Call, seqs []SequenceTask, keys int) (segment, error) {
	init, final, err := StatesOf(e, c, seqs, func(s *keyCache) (*Engine, *attention.Shape) { return s.e, &s.shape })
	if err != nil {
		return nil, err
	}
	x := &keyCacheSegment{init: init, final: final, keys: keys, seqs: seqs, group: c.K.H, fades: HasFadingKeys(c)}
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

func (x *keyCacheSegment) countPriorKeys(i int) (count int64) {
	for _, exists := range x.exist[i][:x.tokens] {
		if exists {
			count++
		}
	}
	return count
}

func (x *keyCacheSegment) Earlier(i int) (e headtask.PriorKeys) {
	if x.init == nil {
		return e
	}
	h := &x.init.heads[i]
	da := h.unit.PreparedWidth
	for j, exists := range x.exist[i/x.group][:x.tokens] {
		if !exists {
			continue
		}
		var gone, square float64
		if h.ages != nil {
			gone = h.ages.SumBetween(j-1, j)
		}
		e.Add(gone, 1)
		key := h.rows.PanelOf(j, da)[j%h.rows.Panel:]
		for c := range da {
			y := float64(key[c*h.rows.Ldb])
			square += y * y
		}
		e.Longest = max(e.Longest, math.Sqrt(square))
	}
	if h.ages != nil {
		e.PendingLogDecay = h.ages.Pending
	}
	return e
}

func (x *keyCacheSegment) Check(g *attention.Grads) error {
	if g.DInit != nil {
		StateGradOf(g.DInit).Resize(x.shape)
	}
	if g.DFinal == nil {
		return nil
	}
	return StateGradOf(g.DFinal).Check(x.shape, func(int) int { return x.tokens + x.keys })
}

func (x *keyCacheSegment) end() {
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
func (x *keyCacheSegment) all(u *headtask.Task, q *SequenceTask, i int) *headtask.Task {
	all := *u
	all.M, all.Offset, all.Mask = x.tokens+u.M, x.tokens+u.Offset, nil
	exist := x.exist[q.Index]
	if slices.Contains(exist, false) {
		all.Mask = exist
	}
	if !x.fades {
		return &all
	}
	if x.init != nil {
		all.Decays = x.init.heads[i].ages.CloneFor(x.tokens + x.keys)
	}
	if all.Decays == nil {
		all.Decays = headtask.UndecayedAges(x.tokens+x.keys, exist[:x.tokens])
	}
	for j := range u.M {
		all.Decays.Add(u.LogDecay(j), u.HasKey(j))
	}
	return &all
}

func (x *keyCacheSegment) Forward(u *headtask.Task, q *SequenceTask, kh int) {
	i := q.Index*x.group + kh
	all := x.all(u, q, i)
	rows := &headtask.KeyRows{Panel: headtask.CachePanel, Ldb: headtask.CachePanel, Ldv: kernel.Pad(u.Dv)}
	rows.Bt = u.TakeScratch((all.M + headtask.CachePanel - 1) / headtask.CachePanel * u.PreparedWidth * rows.Ldb)
	rows.V = u.TakeScratch(all.M * rows.Ldv)
	if x.init != nil {
		rows.Copy(0, &x.init.heads[i].rows, x.tokens, u.PreparedWidth)
	}
	rows.Put(u, x.tokens, 0, u.M)
	u.CopyValues(rows.V[x.tokens*rows.Ldv:], rows.Ldv, 0, u.M)
	u.AttendAs(all, rows)
	if x.final == nil {
		return
	}
	for j := u.M; j < x.keys && x.fades; j++ {
		all.Decays.Add(0, false)
	}
	x.final.heads[i].ages = all.Decays
	to := &x.final.heads[i].rows
	to.Bt, to.V = to.Bt[:0], to.V[:0]
	to.Grow(u.PreparedWidth, 0, x.tokens+x.keys)
	clear(to.Bt)
	clear(to.V)
	to.Copy(0, rows, all.M, u.PreparedWidth)
}

func (x *keyCacheSegment) Backward(u *headtask.Task, q *SequenceTask, kh int, g *attention.Grads) {
	i, n := q.Index*x.group+kh, x.tokens
	all := x.all(u, q, i)
	if u.DAge != nil {
		all.DAge = arena.TakeZeros[float64](u.Arena, n+len(u.DAge))
		u.DAge = all.DAge[n:]
	}
	lda, ldo := scratch.Stride[float](u.PreparedWidth), scratch.Stride[float](u.Dv)
	keys, values := arena.TakeZeros[float](u.Arena, all.M*lda), arena.TakeZeros[float](u.Arena, all.M*ldo)
	if x.init != nil {
		rows := &x.init.heads[i].rows
		for j := 0; j < n; j += rows.Panel {
			u.Table.Transpose(keys[j*lda:], lda, rows.PanelOf(j, u.PreparedWidth), rows.Ldb, u.PreparedWidth, min(rows.Panel, n-j))
		}
		for j := range n {
			copy(values[j*ldo:], rows.V[j*rows.Ldv:][:u.Dv])
		}
	}
	u.PrepareK(keys[n*lda:], lda, 0, u.M)
	u.CopyValues(values[n*ldo:], ldo, 0, u.M)
	dkeys, dvalues := u.BackPairs(all, keys, values)
	if g.DFinal != nil {
		after := &StateGradOf(g.DFinal).Heads[i]
		for j := range all.M {
			row := dkeys[j*lda:][:u.PreparedWidth]
			u.Table.Add(row, row, after.Keys[j*u.PreparedWidth:])
			row = dvalues[j*ldo:][:u.Dv]
			u.Table.Add(row, row, after.Values[j*u.Dv:])
		}
		if all.DAge != nil {
			all.AgeKeys(0, after.Ones[:all.M])
		}
	}
	if g.DInit != nil {
		first := &StateGradOf(g.DInit).Heads[i]
		first.Open(n, u.PreparedWidth, u.Dv)
		for j := range n {
			copy(first.Keys[j*u.PreparedWidth:][:u.PreparedWidth], dkeys[j*lda:])
			copy(first.Values[j*u.Dv:][:u.Dv], dvalues[j*ldo:])
		}
		for j := 0; j < n && all.DAge != nil; j++ {
			first.Ones[j] = float(-all.DAge[j]) // no query stands there
		}
	}
	u.GradK(0, u.M, dkeys[n*lda:], lda)
	u.SetValuesGrad(dvalues[n*ldo:], 0, u.M)
}
