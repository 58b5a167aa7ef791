package headwise

import (
	"fmt"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// WeightedCausal sets out [B,H,N,Dv] to the weighted causal function
//
//	ξ_w(Q,K,V)_i = w_i · q_iᵀ Σ_{j≤i} k_j v_jᵀ
//
// of q [B,H,N,D], k [B,Hkv,N,D] and v [B,Hkv,N,Dv], where Hkv divides H. w [N] may be nil for
// ones. Arguments must be finite. The cost is O(N).
//
// With w = 1 it is the numerator of causal linear attention, and with v = 1 as well its
// denominator. With w_i = 1/i it is a running mean.
//
// It returns an error if the shapes do not fit, or out overlaps itself or an argument. The
// source is the survey page "Approximated Attention", definition 2.
func WeightedCausal(out tensor.Heads, w []tensor.Float, q, k, v tensor.Heads) error {
	x := &causalSum{w: w, q: q, k: k, v: v, out: out}
	if err := x.checkShapes("out", &out); err != nil {
		return err
	}
	if err := (&attention.Call{Q: q, K: k, V: v}).CheckApart("out", &out); err != nil {
		return err
	}
	x.forEachHead(x.forward)
	return nil
}

// WeightedCausalGrad computes the gradients of WeightedCausal from the gradient dout [B,H,N,Dv]
// of its output. It overwrites dq [B,H,N,D], dk [B,Hkv,N,D] and dv [B,Hkv,N,Dv], and adds to dw
// [N], which may be nil:
//
//	dq_i = w_i·S_i·dout_i,  dw_i = q_i·S_i·dout_i,  S_i = Σ_{j≤i} k_j v_jᵀ,
//	dk_j = R_j·v_j,  dv_j = R_jᵀ·k_j,  R_j = Σ_{i≥j} w_i q_i dout_iᵀ.
//
// It returns an error if the shapes do not fit, or a gradient overlaps itself, another gradient
// or an argument.
func WeightedCausalGrad(dw []tensor.Float, dq, dk, dv, dout tensor.Heads, w []tensor.Float, q, k, v tensor.Heads) error {
	x := &causalSum{w: w, q: q, k: k, v: v, out: dout, dq: dq, dk: dk, dv: dv}
	if err := x.checkShapes("dout", &dout); err != nil {
		return err
	}
	for _, y := range []struct {
		name string
		d    *tensor.Heads
		of   *tensor.Heads
	}{{"dq", &dq, &q}, {"dk", &dk, &k}, {"dv", &dv, &v}} {
		if err := attention.CheckShape(y.name, y.d, y.of.B, y.of.H, y.of.N, y.of.D); err != nil {
			return err
		}
	}
	if dw != nil && len(dw) != q.N {
		return fmt.Errorf("dw: has %d elements, N is %d", len(dw), q.N)
	}
	g := &attention.Grads{DQ: dq, DK: dk, DV: dv}
	if err := g.CheckMemory(&dout, &tensor.Heads{}, &attention.Call{Q: q, K: k, V: v}, nil); err != nil {
		return err
	}
	if dw != nil {
		x.dw = make([]float64, q.B*q.H*q.N) // summed in one order, whatever the threads
	}
	x.forEachHead(x.backward)
	for at, d := range x.dw {
		dw[at%q.N] += float(d)
	}
	return nil
}

// sumChunk is the number of tokens whose weights are computed pair by pair.
const sumChunk = 64

// causalSum is a call of WeightedCausal or of its gradient.
type causalSum struct {
	w          []float
	q, k, v    tensor.Heads
	out        tensor.Heads // backward: its gradient
	dq, dk, dv tensor.Heads
	dw         []float64 // [B·H·N]
}

func (x *causalSum) checkShapes(name string, out *tensor.Heads) error {
	c := &attention.Call{Q: x.q, K: x.k, V: x.v}
	if err := c.Check(); err != nil {
		return err
	}
	switch {
	case x.k.N != x.q.N:
		return fmt.Errorf("k: N is %d, q has %d", x.k.N, x.q.N)
	case x.w != nil && len(x.w) != x.q.N:
		return fmt.Errorf("w: has %d elements, N is %d", len(x.w), x.q.N)
	}
	return c.CheckOutput(name, out)
}

// forEachHead calls f for every key head, in parallel.
func (x *causalSum) forEachHead(f func(s *causalHead, b, kh int)) {
	q := &x.q
	work := 2 * float64(q.B*q.H) * float64(q.N) * float64(q.D*x.v.D+sumChunk*(q.D+x.v.D))
	par.RunEach(q.B*x.k.H, work, func(i int) {
		ar := arena.Acquire()
		defer ar.Release()
		s := &causalHead{t: kernel.Active[float](), ar: ar, d: q.D, dv: x.v.D, ldd: kernel.Pad(q.D), ldv: kernel.Pad(x.v.D)}
		f(s, i/x.k.H, i%x.k.H)
	})
}

// causalHead is one key head. Rows of width D and Dv are padded with zeros to
// strides ldd and ldv.
type causalHead struct {
	t               *kernel.Table[float]
	ar              *arena.Arena
	d, dv, ldd, ldv int
}

// paddedRows returns rows i0 ≤ i < i1 of x with stride ld, row i times w[i] unless w
// is nil.
func (s *causalHead) paddedRows(x tensor.Mat, ld, i0, i1 int, w []float) []float {
	y := arena.TakeZeros[float](s.ar, (i1-i0)*ld)
	for i := i0; i < i1; i++ {
		to := y[(i-i0)*ld:][:x.Cols]
		if copy(to, x.Row(i)); w != nil {
			s.t.Scale(to, w[i], to)
		}
	}
	return y
}

// causalProducts returns the products [n, sumChunk] of rows of a and rows of b, 0 where
// the row of a precedes the row of b.
func (s *causalHead) causalProducts(a, b []float, ld, width, n int) []float {
	bt := arena.TakeZeros[float](s.ar, width*sumChunk)
	s.t.Transpose(bt, sumChunk, b, ld, n, width)
	p := arena.Take[float](s.ar, n*sumChunk)
	s.t.Block(n, kernel.Pad(n), width, a, ld, 1, bt, sumChunk, p, sumChunk, false)
	for i := range n {
		clear(p[i*sumChunk:][i+1 : sumChunk])
	}
	return p
}

func (x *causalSum) forward(s *causalHead, b, kh int) {
	group := x.q.H / x.k.H
	k, v := x.k.Head(b, kh), x.v.Head(b, kh)
	sum := arena.TakeZeros[float](s.ar, s.d*s.ldv) // Σ k vᵀ of the chunks before
	for i0 := 0; i0 < k.Rows; i0 += sumChunk {
		i1 := min(i0+sumChunk, k.Rows)
		n, mark := i1-i0, s.ar.Mark()
		kr, vr := s.paddedRows(k, s.ldd, i0, i1, nil), s.paddedRows(v, s.ldv, i0, i1, nil)
		o := arena.Take[float](s.ar, n*s.ldv)
		for h := kh * group; h < (kh+1)*group; h++ {
			mark := s.ar.Mark()
			qr := s.paddedRows(x.q.Head(b, h), s.ldd, i0, i1, x.w)
			s.t.Block(n, s.ldv, n, s.causalProducts(qr, kr, s.ldd, s.d, n), sumChunk, 1, vr, s.ldv, o, s.ldv, false)
			s.t.Block(n, s.ldv, s.d, qr, s.ldd, 1, sum, s.ldv, o, s.ldv, true)
			out := x.out.Head(b, h)
			for i := range n {
				copy(out.Row(i0+i), o[i*s.ldv:])
			}
			s.ar.Reset(mark)
		}
		s.t.Block(s.d, s.ldv, n, kr, 1, s.ldd, vr, s.ldv, sum, s.ldv, true)
		s.ar.Reset(mark)
	}
}

// backward passes through the chunks twice: forwards for dq and dw with the sum over keys, and
// backwards for dk and dv with the sum over queries.
func (x *causalSum) backward(s *causalHead, b, kh int) {
	group, n := x.q.H/x.k.H, x.k.N
	k, v, dk, dv := x.k.Head(b, kh), x.v.Head(b, kh), x.dk.Head(b, kh), x.dv.Head(b, kh)
	sum := arena.TakeZeros[float](s.ar, s.dv*s.ldd) // Σ v kᵀ of the chunks before
	for i0 := 0; i0 < n; i0 += sumChunk {
		i1 := min(i0+sumChunk, n)
		n, mark := i1-i0, s.ar.Mark()
		kr, vr := s.paddedRows(k, s.ldd, i0, i1, nil), s.paddedRows(v, s.ldv, i0, i1, nil)
		dqr := arena.Take[float](s.ar, n*s.ldd)
		for h := kh * group; h < (kh+1)*group; h++ {
			mark := s.ar.Mark()
			do := s.paddedRows(x.out.Head(b, h), s.ldv, i0, i1, nil)
			s.t.Block(n, s.ldd, n, s.causalProducts(do, vr, s.ldv, s.dv, n), sumChunk, 1, kr, s.ldd, dqr, s.ldd, false)
			s.t.Block(n, s.ldd, s.dv, do, s.ldv, 1, sum, s.ldd, dqr, s.ldd, true)
			q, dq := x.q.Head(b, h), x.dq.Head(b, h)
			for i := range n {
				row := dqr[i*s.ldd:][:s.d]
				if x.dw != nil {
					x.dw[(b*x.q.H+h)*x.q.N+i0+i] = float64(s.t.Dot(row, q.Row(i0+i)))
				}
				if x.w != nil {
					s.t.Scale(row, x.w[i0+i], row)
				}
				copy(dq.Row(i0+i), row)
			}
			s.ar.Reset(mark)
		}
		s.t.Block(s.dv, s.ldd, n, vr, 1, s.ldv, kr, s.ldd, sum, s.ldd, true)
		s.ar.Reset(mark)
	}
	later := arena.TakeZeros[float](s.ar, s.d*s.ldv)   // Σ w q doutᵀ of the chunks after
	laterT := arena.TakeZeros[float](s.ar, s.dv*s.ldd) // transposed
	for i0 := (n - 1) / sumChunk * sumChunk; i0 >= 0 && n > 0; i0 -= sumChunk {
		i1 := min(i0+sumChunk, n)
		n, mark := i1-i0, s.ar.Mark()
		kr, vr := s.paddedRows(k, s.ldd, i0, i1, nil), s.paddedRows(v, s.ldv, i0, i1, nil)
		dkr, dvr := arena.Take[float](s.ar, n*s.ldd), arena.Take[float](s.ar, n*s.ldv)
		s.t.Block(n, s.ldd, s.dv, vr, s.ldv, 1, laterT, s.ldd, dkr, s.ldd, false)
		s.t.Block(n, s.ldv, s.d, kr, s.ldd, 1, later, s.ldv, dvr, s.ldv, false)
		for h := kh * group; h < (kh+1)*group; h++ {
			mark := s.ar.Mark()
			qr := s.paddedRows(x.q.Head(b, h), s.ldd, i0, i1, x.w)
			do := s.paddedRows(x.out.Head(b, h), s.ldv, i0, i1, nil)
			s.t.Block(n, s.ldd, n, s.causalProducts(do, vr, s.ldv, s.dv, n), 1, sumChunk, qr, s.ldd, dkr, s.ldd, true)
			s.t.Block(n, s.ldv, n, s.causalProducts(qr, kr, s.ldd, s.d, n), 1, sumChunk, do, s.ldv, dvr, s.ldv, true)
			s.t.Block(s.d, s.ldv, n, qr, 1, s.ldd, do, s.ldv, later, s.ldv, true)
			s.t.Block(s.dv, s.ldd, n, do, 1, s.ldv, qr, s.ldd, laterT, s.ldd, true)
			s.ar.Reset(mark)
		}
		for i := range n {
			copy(dk.Row(i0+i), dkr[i*s.ldd:])
			copy(dv.Row(i0+i), dvr[i*s.ldv:])
		}
		s.ar.Reset(mark)
	}
}
