package attention

import "math"

// Plan tells what Forward does for a shape, and what it costs.
type Plan struct {
	Form  Form
	Chunk int     // tokens of a chunk; 0 in the direct form
	F     int     // packed features of a row; 0 where there is no linear form
	FLOPs float64 // of Forward, all heads
	Bytes float64 // of scratch and state, per worker
	Why   string
}

// features is the number of packed symmetric monomials that the linear form of
// s keeps for prepared rows of width w: all of degree ≤ p, C(w+p, p), or those
// of degree p alone where only Coef[p] is not zero. It is math.MaxInt where it
// would be more.
func (s *Spec[T]) features(w int) int {
	if s.Exp {
		return 0
	}
	if s.pure() {
		w-- // no constant among the factors
	}
	n := 1
	for l := 1; l <= s.degree(); l++ {
		if w > 0 && n > math.MaxInt/(w+l) {
			return math.MaxInt
		}
		n = n * (w + l) / l
	}
	return n
}

// pure reports that the kernel is a single power.
func (s *Spec[T]) pure() bool {
	for _, c := range s.Coef[:s.degree()] {
		if c != 0 {
			return false
		}
	}
	return s.degree() > 0
}

// chunk returns the tokens of a chunk for width d: the caller's wish, or 128 to
// 256 as the features get wider than the chunk.
func (e *engine[T]) chunk(d, wish int) int {
	switch {
	case wish > 0:
		return wish
	case d <= 16:
		return 128
	case d <= 32:
		return 192
	}
	return 256
}

// choose returns the form that sequence s runs in. It depends on the
// mechanism and on the sequence's own shape alone: threads, batch, padding or a
// wish for gradients would change bits.
func (e *engine[T]) choose(c *Call[T], s *sequence) Form {
	if e.spec.Exp || c.AttnKeep != nil || c.Form == Direct {
		return Direct
	}
	if c.Form == Linear {
		return Linear
	}
	d, l := e.count(s.n, s.m, c.Q.D, c.V.D, c.Causal, e.chunk(c.Q.D, c.Chunk))
	if l < d {
		return Linear
	}
	return Direct
}

// flops is the arithmetic of Forward for one sequence, all heads.
func (e *engine[T]) flops(c *Call[T], s *sequence) float64 {
	d, l := e.count(s.n, s.m, c.Q.D, c.V.D, c.Causal, e.chunk(c.Q.D, c.Chunk))
	if e.choose(c, s) == Linear {
		d = l
	}
	return d * float64(c.Q.H)
}

// count returns the floating-point operations of one head in both forms, for n
// queries and m keys: 2 per fused multiply-add.
func (e *engine[T]) count(n, m, d, dv int, causal bool, chunk int) (direct, linear float64) {
	w := float64(e.spec.width(d))
	pairs := float64(n) * float64(m)
	if causal {
		pairs /= 2
	}
	direct = 2 * pairs * (w + float64(dv) + 3)
	f := float64(e.spec.features(e.spec.width(d)))
	linear = 2 * f * float64(n+m) * (float64(dv) + 1.5)
	if causal {
		linear += float64(min(n, m)) * float64(chunk) * (w + float64(dv) + 3)
	}
	return direct, linear
}

// Plan tells what Forward does for a shape.
func (e *engine[T]) Plan(s Shape) Plan {
	c := &Call[T]{Causal: s.Causal, Form: s.Form, Chunk: s.Chunk}
	c.Q.H, c.Q.N, c.Q.D = s.H, s.N, s.D
	c.K.H, c.K.N, c.V.D = s.Hkv, s.M, s.Dv
	seq := &sequence{n: s.N, m: s.M}
	p := Plan{Form: e.choose(c, seq), F: e.spec.features(e.spec.width(s.D)), FLOPs: e.flops(c, seq) * float64(s.B)}
	if p.Form == Linear {
		p.Chunk = e.chunk(s.D, s.Chunk)
	}
	return p
}
