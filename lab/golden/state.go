package golden

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/tensor"
)

// moments are sums over keys that a file holds and a state must have. States
// give quotients only, so the sums are taken from reads, see readSums.
type moments struct {
	tokensBefore []int       // tokens absorbed before each reading
	queries      [][]float64 // that are read
	// compare holds the sums of reading at against the file. l are the limits
	// of a read.
	compare func(c *Case, at int, sums oracle.Heads, l check.Limits)
}

func compareMoments(p *problem, c *Case) error {
	m, call, err := prepareCall(p)
	if err != nil {
		return err
	}
	k, v := &call.K, &call.V
	if v.B != k.B || v.H != k.H || v.N != k.N {
		return fmt.Errorf("v: shape is [%d,%d,%d,·], k has [%d,%d,%d,·]", v.B, v.H, v.N, k.B, k.H, k.N)
	}
	l := limitsOf(p, m, call)
	for at, n := range p.moments.tokensBefore {
		if n < 0 || n > call.K.N {
			return fmt.Errorf("state: after %d tokens, the file has %d", n, call.K.N)
		}
		read := readSums
		if p.book.Unnormalized {
			read = readRaw
		}
		sums, err := read(m, call, n, p.moments.queries)
		if err != nil {
			return err
		}
		for i := range sums.B * sums.H * sums.N { // eps is no part of the sum
			sums.Data[i*sums.D+sums.D-1] -= p.book.Eps
		}
		p.moments.compare(c, at, sums, l)
	}
	return nil
}

// readSums absorbs the first n keys and returns Σ_j w_j·v_j and Σ_j w_j + eps
// for each query, [B,H,queries,Dv+1], though a state divides one by the other:
// it absorbs a key of zeros as well, whose weight is 1 for every query asked
// here, with a value that is 1 in a further channel where all others are 0.
// That channel then reads 1/(Σ_j w_j + eps + 1).
func readSums(m attention.Mechanism, c *attention.Call, n int, queries [][]float64) (oracle.Heads, error) {
	b, h, d, dv := c.K.B, c.K.H, c.K.D, c.V.D
	var none oracle.Heads
	st, err := m.NewState(attention.Shape{B: b, H: h, Hkv: h, D: d, Dv: dv + 1})
	if err != nil {
		return none, err
	}
	k, v := tensor.NewHeads(b, h, n+1, d), tensor.NewHeads(b, h, n+1, dv+1)
	q := tensor.NewHeads(b, h, len(queries), d)
	for x := range b * h {
		b, h := x/h, x%h
		for j := range n {
			copy(k.Head(b, h).Row(j), c.K.Head(b, h).Row(j))
			copy(v.Head(b, h).Row(j), c.V.Head(b, h).Row(j))
		}
		v.Head(b, h).Row(n)[dv] = 1
		for i, row := range queries {
			for e, y := range row {
				q.Head(b, h).Row(i)[e] = float(y)
			}
		}
	}
	if err := st.Absorb(&attention.Call{K: k, V: v}); err != nil {
		return none, err
	}
	o := tensor.NewHeads(b, h, len(queries), dv+1)
	if err := st.Read(o, &attention.Call{Q: q, K: k.Tokens(0, 0), V: v.Tokens(0, 0)}); err != nil {
		return none, err
	}
	sums := oracle.NewHeads(b, h, len(queries), dv+1)
	for i := range b * h * len(queries) {
		from, to := o.Data[i*(dv+1):][:dv+1], sums.Data[i*(dv+1):][:dv+1]
		last := float64(from[dv])
		for e := range dv {
			to[e] = float64(from[e]) / last
		}
		to[dv] = 1/last - 1
	}
	return sums, nil
}

// readRaw is readSums for outputs that are such sums, beside which there is a 1.
func readRaw(m attention.Mechanism, c *attention.Call, n int, queries [][]float64) (oracle.Heads, error) {
	b, h, dv := c.K.B, c.K.H, c.V.D
	var none oracle.Heads
	st, err := m.NewState(attention.Shape{B: b, H: h, Hkv: h, D: c.K.D, Dv: dv})
	if err != nil {
		return none, err
	}
	if err := st.Absorb(&attention.Call{K: c.K.Tokens(0, n), V: c.V.Tokens(0, n)}); err != nil {
		return none, err
	}
	q, o := tensor.NewHeads(b, h, len(queries), c.K.D), tensor.NewHeads(b, h, len(queries), dv)
	sums := oracle.NewHeads(b, h, len(queries), dv+1)
	for x := range b * h {
		for i, row := range queries {
			for e, y := range row {
				q.Head(x/h, x%h).Row(i)[e] = float(y)
			}
		}
	}
	if err := st.Read(o, &attention.Call{Q: q, K: c.K.Tokens(0, 0), V: c.V.Tokens(0, 0)}); err != nil {
		return none, err
	}
	for i := range b * h * len(queries) {
		to := sums.Data[i*(dv+1):][:dv+1]
		for e, y := range o.Data[i*dv:][:dv] {
			to[e] = float64(y)
		}
		to[dv] = 1
	}
	return sums, nil
}

// measured is a number with the largest error that it may have.
type measured struct{ value, limit float64 }

func (x measured) plus(y measured) measured {
	return measured{x.value + y.value, x.limit + y.limit}
}

func (x measured) times(f float64) measured {
	return measured{x.value * f, x.limit * math.Abs(f)}
}

// fastmaxMoments are the sums x1..x3 and y1..y3 of fastmax with p = 2 (FAST,
// eq. 34-35): with k̂ the normalised keys, x1_j = Σ v_j, x2_jm = Σ k̂_m·v_j,
// x3_jml = Σ k̂_m·k̂_l·v_j, and y the same without v. A query a reads
//
//	R(a) = x1 + a·x2 + ½·a·x3·a.
//
// k̂ has mean 0, so x2 and x3 vanish along (1,...,1) and the normalised unit
// vector c·(e_m - 1/D) reads as c·e_m does, with c = D/√(D-1). Its odd and even
// parts give x2 and the diagonal of x3; e_m - e_l, normalised by c = √(D/2),
// gives the rest. With D = 1 every k̂ is 0, c is infinite and x2 and x3 are 0.
func fastmaxMoments(r *reader) *moments {
	k := r.heads("k")
	want := map[string][]float64{}
	for _, name := range []string{"x1", "x2", "x3", "y1", "y2", "y3"} {
		want[name] = r.floats(name)
	}
	v := r.heads("v")
	d, dv := k.D, v.D
	sizes := map[string]int{"x1": dv, "x2": dv * d, "x3": dv * d * d, "y1": 1, "y2": d, "y3": d * d}
	for name, n := range sizes {
		if r.err == nil && len(want[name]) != n {
			r.err = fmt.Errorf("%s: has %d elements, needs %d", name, len(want[name]), n)
		}
	}
	if r.err == nil && k.B*k.H != 1 {
		r.err = fmt.Errorf("k: has %d heads, moments are of one", k.B*k.H)
	}
	if r.err != nil {
		return nil
	}
	// Queries: zero; ±e_m at 1+2m; ±(e_m-e_l), l < m, behind them.
	queries := [][]float64{make([]float64, d)}
	add := func(m, l int) {
		for _, sign := range []float64{1, -1} {
			row := make([]float64, d)
			row[l] = -sign
			row[m] = sign
			queries = append(queries, row)
		}
	}
	for m := range d {
		add(m, m)
	}
	pair := map[[2]int]int{}
	for m := range d {
		for l := range m {
			pair[[2]int{m, l}] = len(queries)
			add(m, l)
		}
	}
	c1, c2 := float64(d)/math.Sqrt(float64(d-1)), math.Sqrt(float64(d)/2)

	compare := func(c *Case, _ int, sums oracle.Heads, l check.Limits) {
		size := readSizes(k, queries, check.MaxAbs(v.Data))
		read := func(i, e int) measured { return measured{sums.Head(0, 0).Row(i)[e], l.Output(1, size[i])} }
		first := func(e int) measured { return read(0, e) }
		second := func(e, m int) measured {
			return read(1+2*m, e).plus(read(2+2*m, e).times(-1)).times(1 / (2 * c1))
		}
		even := func(e, i int, c float64) measured { // a·x3·a from the queries ±c·a at i
			return read(i, e).plus(read(i+1, e)).plus(first(e).times(-2)).times(1 / (c * c))
		}
		third := func(e, m, n int) measured {
			if m == n {
				return even(e, 1+2*m, c1)
			}
			i := pair[[2]int{max(m, n), min(m, n)}]
			x := even(e, 1+2*m, c1).plus(even(e, 1+2*n, c1)).plus(even(e, i, c2).times(-1))
			return x.times(0.5)
		}
		for name, columns := range map[string][2]int{"x": {0, dv}, "y": {dv, dv + 1}} {
			var got [3][]measured
			for e := columns[0]; e < columns[1]; e++ {
				got[0] = append(got[0], first(e))
				for m := range d {
					got[1] = append(got[1], second(e, m))
					for n := range d {
						got[2] = append(got[2], third(e, m, n))
					}
				}
			}
			for degree, list := range got {
				array := fmt.Sprintf("%s%d", name, degree+1)
				var err float64
				for i, x := range list {
					err = max(err, check.ErrorRatio([]float64{x.value}, want[array][i:][:1], x.limit))
				}
				c.add(array, err)
			}
		}
	}
	return &moments{[]int{k.N}, queries, compare}
}

// readSizes returns for each query the sum of the absolute terms of a read,
// Σ_j f̄(|a|·|k̂_j|)·max(|v|, 1), the further key of readSums included.
func readSizes(k oracle.Heads, queries [][]float64, v float64) []float64 {
	q := oracle.NewHeads(1, 1, len(queries), k.D)
	for i, row := range queries {
		copy(q.Head(0, 0).Row(i), row)
	}
	book := oracle.Mechanism{Norm: oracle.Standard, Scale: 1, Coef: oracle.TaylorCoef(2)}
	r := book.Forward(&oracle.Call{Q: q, K: k, V: oracle.NewHeads(1, 1, k.N, 1)})
	size := make([]float64, len(queries))
	for i := range size {
		size[i] = (r.Cond[i]*math.Abs(r.Den[i]) + 1) * max(v, 1)
	}
	return size
}

// linearMoments are S = Σ φ(k)·vᵀ and Z = Σ φ(k) of linear attention after the
// tokens up to each of state_steps. The query that is 0 in channel d and very
// negative elsewhere has φ = e_d and reads row d.
func linearMoments(r *reader, t relative) *moments {
	k, v := r.heads("k"), r.heads("v")
	s, z, steps := r.floats("state_S"), r.floats("state_Z"), r.ints("state_steps")
	rows := k.B * k.H * k.D
	if r.err == nil && len(s) != len(steps)*rows*v.D {
		r.err = fmt.Errorf("state_S: has %d elements, needs %d", len(s), len(steps)*rows*v.D)
	}
	if r.err == nil && len(z) != len(steps)*rows {
		r.err = fmt.Errorf("state_Z: has %d elements, needs %d", len(z), len(steps)*rows)
	}
	if r.err != nil {
		return nil
	}
	m := &moments{}
	for _, at := range steps {
		m.tokensBefore = append(m.tokensBefore, int(at)+1)
	}
	for d := range k.D {
		row := make([]float64, k.D)
		for e := range row {
			if e != d {
				row[e] = -1000
			}
		}
		m.queries = append(m.queries, row)
	}
	m.compare = func(c *Case, at int, sums oracle.Heads, _ check.Limits) {
		var gotS, gotZ []float64
		for i := range rows {
			row := sums.Data[i*(v.D+1):][:v.D+1]
			gotS, gotZ = append(gotS, row[:v.D]...), append(gotZ, row[v.D])
		}
		for _, x := range []struct {
			name     string
			got, ref []float64
		}{{"state_S", gotS, s[at*len(gotS):][:len(gotS)]}, {"state_Z", gotZ, z[at*rows:][:rows]}} {
			limit := toleranceIn(t.output) * check.MaxAbs(x.ref)
			c.add(fmt.Sprintf("%s[%d]", x.name, at), check.ErrorRatio(x.got, x.ref, limit))
		}
	}
	return m
}
