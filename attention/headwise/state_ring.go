package headwise

import (
	"fmt"
	"math"
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/internal/snapshot"
	"github.com/farfield-ml/farfield/tensor"
)

// BoundedReach is a causal Function whose queries see a bounded number of keys. Its states keep
// that many.
type BoundedReach interface {
	// Reach returns the number of keys that a query sees, its own included, and the shift of
	// positions that changes no result. keys is 0 if there is no bound.
	Reach() (keys, period int)
}

const windowKind = "window of keys and values"

// ringState is the state of a BoundedReach: the last keys, rotated, and their values. A query
// sees keys from a multiple of the period on, so its bits depend on its position alone.
type ringState[T tensor.Float] struct {
	w            *driver[T]
	shape        attention.Shape
	tokens       int
	keys, period int
	keep         int // tokens that are remembered: enough to see them behind others, too
	// The last tokens, at least keep of them after as many tokens, and at most twice
	// that: start is their first slot, followed by existence flags, keys and values.
	start int
	exist [][]bool // [B][2·keep]
	k, v  [][]T    // [B·Hkv][2·keep, D] and [2·keep, Dv]
}

// reach returns the bounds of w's states, 0 where they grow.
func (w *driver[T]) reach() (keys, period int) {
	if x, ok := w.Function.(BoundedReach); ok {
		return x.Reach()
	}
	return 0, 0
}

// ringBytes returns the memory of a ring of shape s; 0 if the mechanism has none.
func (w *driver[T]) ringBytes(s attention.Shape) float64 {
	keys, period := w.reach()
	if keys <= 0 {
		return 0
	}
	row := float64(s.D) + float64(s.Dv)
	return 2 * float64(keys+period-1) * float64(s.B) * (1 + float64(s.Hkv)*row*float64(scratch.ElementSize[T]()))
}

func newRingState[T tensor.Float](w *driver[T], s attention.Shape) *ringState[T] {
	r := &ringState[T]{w: w, shape: attention.Shape{B: s.B, H: s.H, Hkv: s.Hkv, D: s.D, Dv: s.Dv}}
	r.keys, r.period = w.reach()
	r.keep = r.keys + r.period - 1
	n := s.B * s.Hkv
	r.exist, r.k, r.v = make([][]bool, s.B), make([][]T, n), make([][]T, n)
	for b := range r.exist {
		r.exist[b] = make([]bool, 2*r.keep)
	}
	for i := range r.k {
		r.k[i], r.v[i] = make([]T, 2*r.keep*s.D), make([]T, 2*r.keep*s.Dv)
	}
	return r
}

func (r *ringState[T]) Absorb(c *attention.Call[T]) error { return attention.CheckedAbsorb(c, r) }

func (r *ringState[T]) Read(out tensor.Heads[T], c *attention.Call[T]) error {
	return attention.CheckedRead(out, c, r)
}

func (r *ringState[T]) Step(out tensor.Heads[T], c *attention.Call[T]) error {
	return attention.CheckedStep(out, c, r)
}

func (r *ringState[T]) StateShape() *attention.Shape { return &r.shape }

func (r *ringState[T]) Refuse(c *attention.Call[T]) error { return r.w.refuseCall(c) }

func (r *ringState[T]) Run(out tensor.Heads[T], c *attention.Call[T], n, m int) {
	if m == 0 {
		r.setOutputs(out, c, 0, n, func(int) int { return r.tokens })
	}
	for j := 0; j < m; j += r.keep {
		past := r.tokens
		end := min(j+r.keep, m)
		r.appendTokens(c, j, end)
		if n > 0 {
			r.setOutputs(out, c, j, end, func(i int) int { return past + i - j + 1 })
		}
	}
}

// makeRoom makes room for n ≤ keep more tokens and returns the place of the first.
func (r *ringState[T]) makeRoom(n int) int {
	have := r.tokens - r.start
	if have+n <= 2*r.keep {
		return have
	}
	drop := have - min(have, r.keep)
	for b := range r.exist {
		copy(r.exist[b], r.exist[b][drop:have])
	}
	for i := range r.k {
		copy(r.k[i], r.k[i][drop*r.shape.D:have*r.shape.D])
		copy(r.v[i], r.v[i][drop*r.shape.Dv:have*r.shape.Dv])
	}
	r.start += drop
	return have - drop
}

// appendTokens takes in tokens j0 ≤ j < j1 of c, at most keep of them.
func (r *ringState[T]) appendTokens(c *attention.Call[T], j0, j1 int) {
	ar := arena.Acquire()
	defer ar.Release()
	n := j1 - j0
	at := r.makeRoom(n)
	for b := range r.exist {
		for j := range n {
			r.exist[b][at+j] = c.KeyMask == nil || c.KeyMask[b*c.K.N+j0+j]
		}
	}
	var rope *attention.Rope[T]
	if c.Rope != nil {
		rope = c.Rope.Slice(j0)
	}
	for i := range r.k {
		mark := ar.Mark()
		b, kh := i/r.shape.Hkv, i%r.shape.Hkv
		mask := r.exist[b][at:][:n]
		k := RotateAndMask(ar, c.K.At(b, kh).Slice(j0, j1), mask, rope, 0)
		v := RotateAndMask(ar, c.V.At(b, kh).Slice(j0, j1), mask, nil, 0)
		copy(r.k[i][at*r.shape.D:], k.Data[:n*r.shape.D])
		copy(r.v[i][at*r.shape.Dv:], v.Data[:n*r.shape.Dv])
		ar.Reset(mark)
	}
	r.tokens += n
}

// setOutputs sets out for queries i0 ≤ i < i1 of c. Query i has the position of token
// seen(i)-1.
func (r *ringState[T]) setOutputs(out tensor.Heads[T], c *attention.Call[T], i0, i1 int, seen func(i int) int) {
	one := r.shape
	one.N, one.M, one.Causal = 1, r.keys, true
	units := r.shape.B * r.shape.H
	work := float64(units*(i1-i0)) * r.w.Cost(one).FLOPs
	par.RunEach(units, work, func(u int) {
		ar := arena.Acquire()
		defer ar.Release()
		b, head := u/r.shape.H, u%r.shape.H
		kv := b*r.shape.Hkv + head/(r.shape.H/r.shape.Hkv)
		h := r.w.takeHead()
		defer r.w.putHead(h)
		for i := i0; i < i1; i++ {
			mark := ar.Mark()
			row, end := out.At(b, head).Slice(i, i+1), seen(i)
			first := max(end-r.keys, 0) / r.period * r.period
			at, m := first-r.start, end-first
			exist := r.exist[b][at:][:m]
			if !slices.Contains(exist, true) {
				clear(row.Row(0))
				continue
			}
			*h = Head[T]{
				Q: RotateAndMask(ar, c.Q.At(b, head).Slice(i, i+1), nil, c.Rope, i),
				K: tensor.Mat[T]{Data: r.k[kv][at*r.shape.D:], Rows: m, Cols: r.shape.D, Stride: r.shape.D},
				V: tensor.Mat[T]{Data: r.v[kv][at*r.shape.Dv:], Rows: m, Cols: r.shape.Dv, Stride: r.shape.Dv},

				Causal: true, Offset: m - 1, Shift: m - 1, Head: head, Scratch: ar, Table: kernel.Active[T](),
			}
			if slices.Contains(exist, false) {
				h.Mask = exist
			}
			h.Out = scratch.ForOutput(ar, row)
			r.w.Function.Forward(h)
			scratch.CopyMat(row, h.Out)
			ar.Reset(mark)
		}
	})
}

// Merge appends the tokens of next to r. The bits are the same as for one stream.
func (r *ringState[T]) Merge(next attention.State[T]) error {
	n, err := attention.Mergeable(r.w.ringIdentity(), &r.shape, next, func(n *ringState[T]) (attention.Identity, *attention.Shape) { return n.w.ringIdentity(), &n.shape })
	if err != nil {
		return err
	}
	if n.tokens > math.MaxInt-r.tokens {
		return fmt.Errorf("merge: %d and %d tokens are more than can be counted", r.tokens, n.tokens)
	}
	if n == r {
		n = r.Clone().(*ringState[T])
	}
	last := min(n.tokens, r.keep)
	from := n.tokens - n.start - last
	at := r.makeRoom(last)
	for b := range r.exist {
		copy(r.exist[b][at:], n.exist[b][from:][:last])
	}
	for i := range r.k {
		copy(r.k[i][at*r.shape.D:], n.k[i][from*r.shape.D:][:last*r.shape.D])
		copy(r.v[i][at*r.shape.Dv:], n.v[i][from*r.shape.Dv:][:last*r.shape.Dv])
	}
	// If next has dropped tokens, no query will see earlier ones.
	r.start += n.tokens - last
	r.tokens += n.tokens
	return nil
}

func (r *ringState[T]) Clone() attention.State[T] {
	c := *r
	c.exist, c.k, c.v = slices.Clone(r.exist), slices.Clone(r.k), slices.Clone(r.v)
	for b := range c.exist {
		c.exist[b] = slices.Clone(r.exist[b])
	}
	for i := range c.k {
		c.k[i], c.v[i] = slices.Clone(r.k[i]), slices.Clone(r.v[i])
	}
	return &c
}

func (r *ringState[T]) Reset() { r.tokens, r.start = 0, 0 }

func (r *ringState[T]) Tokens() int64 { return int64(r.tokens) }

func (r *ringState[T]) Bytes() int64 {
	s := &r.shape
	return int64(2*r.keep) * (int64(s.B) + int64(s.B*s.Hkv)*int64(s.D+s.Dv)*scratch.ElementSize[T]())
}

// AppendBinary appends a snapshot: after the header, of the last keep tokens, the
// flags of each batch row, then the keys and the values of each key head. Where
// there were fewer tokens, zeros follow.
func (r *ringState[T]) AppendBinary(b []byte) ([]byte, error) {
	w := attention.NewSnapshot[T](b, r.w.ringIdentity(), r.w.parameterSum(), &r.shape, int64(r.tokens), false)
	last := min(r.tokens, r.keep)
	from := r.tokens - r.start - last
	for _, exist := range r.exist {
		w.Flags(exist[from:][:last])
		w.Flags(make([]bool, r.keep-last))
	}
	none := make([]T, (r.keep-last)*max(r.shape.D, r.shape.Dv))
	for i := range r.k {
		snapshot.WriteElements(w, r.k[i][from*r.shape.D:][:last*r.shape.D])
		snapshot.WriteElements(w, none[:(r.keep-last)*r.shape.D])
		snapshot.WriteElements(w, r.v[i][from*r.shape.Dv:][:last*r.shape.Dv])
		snapshot.WriteElements(w, none[:(r.keep-last)*r.shape.Dv])
	}
	return w.End(), nil
}

func restoreRingState[T tensor.Float](w *driver[T], data []byte) (attention.State[T], error) {
	sh, tokens, s, err := attention.ReadSnapshot[T](data, w.ringIdentity(), w.parameterSum())
	if err != nil {
		return nil, err
	}
	if err := w.checkShape(&sh); err != nil {
		return nil, err
	}
	keys, period := w.reach()
	keep := keys + period - 1
	one := float64(keep) * float64(sh.D+sh.Dv) * float64(scratch.ElementSize[T]())
	if err := s.Need(float64(sh.B) * (float64(keep) + float64(sh.Hkv)*one)); err != nil {
		return nil, err
	}
	r := newRingState(w, sh)
	r.tokens = int(tokens)
	r.start = max(r.tokens-keep, 0)
	for b := range r.exist {
		s.Flags(r.exist[b][:keep])
	}
	for i := range r.k {
		snapshot.ReadElements(s, r.k[i][:keep*sh.D])
		snapshot.ReadElements(s, r.v[i][:keep*sh.Dv])
	}
	if err := s.End(); err != nil {
		return nil, err
	}
	return r, nil
}

// ringIdentity returns the identity of w's states.
func (w *driver[T]) ringIdentity() attention.Identity {
	return attention.Identity{Kind: windowKind, Name: w.name(), Setting: w.Setting()}
}
