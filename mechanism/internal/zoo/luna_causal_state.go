package zoo

import (
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/internal/snapshot"
	"github.com/farfield-ml/farfield/internal/states"
	"github.com/farfield-ml/farfield/tensor"
)

// packState holds, for each query head of each batch row, the sums of k⊗a and of a⊗v over
// the absorbed keys. Each sum is a pair of numbers hi + lo, where lo holds the rounding
// errors of hi.
type packState struct {
	p      *Pack
	shape  attention.Shape
	tokens int64
	exist  []int64   // unmasked tokens of each batch row
	hi, lo [][]float // [B·H][D·L + L·Dv]
}

// NewState returns an empty state for calls of shape s. It returns an error if s does
// not fit the parameter, or the state would be too large.
func (p *Pack) NewState(s attention.Shape) (attention.State, error) {
	if err := p.fits(s.H, s.D); err != nil {
		return nil, err
	}
	if err := s.CheckStateSize(p.stateBytes(s)); err != nil {
		return nil, err
	}
	return p.newState(s), nil
}

// stateBytes returns the memory of a state of shape s.
func (p *Pack) stateBytes(s attention.Shape) float64 {
	head := 2 * float64(p.p.Shape[1]) * float64(s.D+s.Dv) * float64(scratch.ElementSize[float]())
	return float64(s.B) * (8 + float64(s.H)*head)
}

func (p *Pack) newState(s attention.Shape) *packState {
	s = attention.Shape{B: s.B, H: s.H, Hkv: s.Hkv, D: s.D, Dv: s.Dv}
	st := &packState{p: p, shape: s, exist: make([]int64, s.B), hi: make([][]float, s.B*s.H), lo: make([][]float, s.B*s.H)}
	for i := range st.hi {
		n := p.p.Shape[1] * (s.D + s.Dv)
		st.hi[i], st.lo[i] = make([]float, n), make([]float, n)
	}
	return st
}

func (s *packState) Absorb(c *attention.Call) error { return attention.CheckedAbsorb(c, s) }

func (s *packState) Read(out tensor.Heads, c *attention.Call) error {
	return attention.CheckedRead(out, c, s)
}

func (s *packState) Step(out tensor.Heads, c *attention.Call) error {
	return attention.CheckedStep(out, c, s)
}

func (s *packState) StateShape() *attention.Shape { return &s.shape }

func (s *packState) Refuse(c *attention.Call) error {
	return headwise.RefuseHeadwise(s.p.name, c)
}

// Run processes the tokens of c in order. For each token it adds the key to the sums if keys
// is above 0, then answers the query if queries is above 0.
func (s *packState) Run(out tensor.Heads, c *attention.Call, queries, keys int) {
	n, absorbs, reads := max(queries, keys), keys > 0, queries > 0
	l := s.p.p.Shape[1]
	work := 4 * float64(s.shape.B*s.shape.H*n*l*(s.shape.D+s.shape.Dv))
	par.RunEach(s.shape.B*s.shape.H, work, func(i int) {
		ar := arena.Acquire()
		defer ar.Release()
		b, head := i/s.shape.H, i%s.shape.H
		kh := head / (s.shape.H / s.shape.Hkv)
		t := kernel.Active[float]()
		var mask []bool
		if absorbs && c.KeyMask != nil {
			mask = c.KeyMask[b*n:][:n]
		}
		var q, k, v tensor.Mat
		if absorbs {
			k, v = headwise.RotateAndMask(ar, c.K.Head(b, kh), mask, c.Rope, 0), headwise.RotateAndMask(ar, c.V.Head(b, kh), mask, nil, 0)
		}
		if reads {
			q = headwise.RotateAndMask(ar, c.Q.Head(b, head), nil, c.Rope, 0)
		}
		exist := s.exist[b]
		for j := range n {
			if absorbs && (mask == nil || mask[j]) {
				s.take(ar, t, i, head, k.Row(j), v.Row(j))
				exist++
			}
			if reads {
				s.answer(ar, t, i, out.Head(b, head).Row(j), q.Row(j), exist)
			}
		}
	})
	if !absorbs {
		return
	}
	for b := range s.exist {
		for j := range n {
			if c.KeyMask == nil || c.KeyMask[b*n+j] {
				s.exist[b]++
			}
		}
	}
	s.tokens += int64(n)
}

// take adds a key and its value to the sums of head i of the state.
func (s *packState) take(ar *arena.Arena, t *kernel.Table[float], i, head int, k, v []float) {
	mark := ar.Mark()
	defer ar.Reset(mark)
	rows, _ := s.p.learned(head)
	l := rows.Rows
	a := arena.Take[float](ar, l)
	for r := range a {
		a[r] = s.p.factor() * t.Dot(k, rows.Row(r))
	}
	s.p.omega.Map(a, a)
	one := arena.Take[float](ar, len(s.hi[i]))
	sums := one
	for _, x := range k {
		t.Scale(sums[:l], x, a)
		sums = sums[l:]
	}
	for _, x := range a {
		t.Scale(sums[:len(v)], x, v)
		sums = sums[len(v):]
	}
	t.AddCarry(s.hi[i], s.lo[i], one)
}

// answer sets out [Dv] to the output of query q [D] from the sums of head i, to which exist
// keys have been added. Without keys the output is 0.
func (s *packState) answer(ar *arena.Arena, t *kernel.Table[float], i int, out, q []float, exist int64) {
	clear(out)
	if exist == 0 {
		return
	}
	mark := ar.Mark()
	defer ar.Reset(mark)
	l := s.p.p.Shape[1]
	u := arena.TakeZeros[float](ar, l)
	sums := s.hi[i]
	for _, x := range q {
		t.Axpy(u, x, sums[:l])
		sums = sums[l:]
	}
	t.Scale(u, s.p.factor()/float(exist), u)
	t.Scale(u, 1/(t.Exp(u, u, t.Max(u))*float(exist)), u)
	for _, x := range u {
		t.Axpy(out, x, sums[:len(out)])
		sums = sums[len(out):]
	}
}

// Identity returns the identity of the mechanism's states.
func (p *Pack) Identity() states.Identity {
	return states.Identity{Kind: packKind, Name: p.name, Setting: p.setting}
}

// ParameterSum returns the checksum of the parameter.
func (p *Pack) ParameterSum() snapshot.ParameterSum { return snapshot.AddParameters(0, p.p.Data) }

func (s *packState) Owner() states.Owner { return s.p }

func (s *packState) HasDecay() bool { return false }

// Visit lists the numbers of unmasked tokens of all batch rows, then hi and lo of each head.
func (s *packState) Visit(p *states.Pass) {
	if p.SetsState() {
		s.tokens = p.Tokens
	}
	p.TokenCounts(s.exist)
	for i := range s.hi {
		p.Elements(s.hi[i])
		p.Elements(s.lo[i])
	}
}

// Merge adds the sums of next.
func (s *packState) Merge(next attention.State) error {
	return states.Merge(s, next, func(n *packState) error {
		t := kernel.Active[float]()
		for i := range s.hi {
			t.AddCarry(s.hi[i], s.lo[i], n.hi[i])
			t.AddCarry(s.hi[i], s.lo[i], n.lo[i])
		}
		for b := range s.exist {
			s.exist[b] += n.exist[b]
		}
		s.tokens += n.tokens
		return nil
	})
}

func (s *packState) Clone() attention.State { return states.Copy(s.p.newState(s.shape), s) }

func (s *packState) Reset() {
	s.tokens = 0
	states.Clear(s)
}

func (s *packState) Tokens() int64 { return s.tokens }

func (s *packState) Bytes() int64 { return states.Bytes(s) }

func (s *packState) AppendBinary(b []byte) ([]byte, error) { return states.AppendBinary(b, s) }

const packKind = "packed sums"

// RestoreState returns the state of the snapshot data. It returns an error if data is
// damaged or is a state of another mechanism, setting or parameter.
func (p *Pack) RestoreState(data []byte) (attention.State, error) {
	return states.Restore(data, p, func(sh attention.Shape, _ int64, r *snapshot.Reader) (states.Visited, error) {
		if err := p.fits(sh.H, sh.D); err != nil {
			return nil, err
		}
		if err := r.Need(p.stateBytes(sh)); err != nil {
			return nil, err
		}
		return p.newState(sh), nil
	})
}
