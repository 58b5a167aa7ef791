package headtask

import (
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/features"
	"github.com/farfield-ml/farfield/internal/kernel"
)

// StepToken absorbs the prepared key [da] of one token, if the task has a key, and then sets
// the outputs of its prepared queries q [heads, ldq], if it has queries.
func (s *Scan) StepToken(key, q []float, ldq int) {
	u := s.Task
	if u.M > 0 {
		for c, y := range key[:u.PreparedWidth] {
			s.X[(c+1)*s.ColumnStride+s.Count] = y
		}
		s.absorbValues(0, 1)
		s.age(0, 1)
		s.AppendToken(u.HasKey(0))
	}
	for g := 0; g < len(u.Q) && u.N > 0; g += kernel.Lanes {
		s.answerToken(g, min(kernel.Lanes, len(u.Q)-g), q[g*ldq:], ldq)
	}
	if s.Count == s.ChunkSize {
		s.CloseChunk()
	}
}

// answerToken sets the output of the token for n ≤ kernel.Lanes heads from g on. The heads
// share one read of the state.
func (s *Scan) answerToken(g, n int, q []float, ldq int) {
	u := s.Task
	mark := u.Arena.Mark()
	defer u.Arena.Reset(mark)
	ld := s.Moments.Stride
	o, den := arena.TakeZeros[float](u.Arena, n*ld), arena.TakeZeros[float](u.Arena, n)
	if s.Decays != nil {
		s.readMomentsFew(q, ldq, n, o, den)
		s.fadeRows(o, den, n, s.Count-1)
	}
	if s.Count > 0 {
		b := block{a: q, lda: ldq, bt: s.X[s.ColumnStride:], panel: s.ChunkSize, ldb: s.ColumnStride, Nq: n, nk: s.Count, diag: s.Count, Decays: s.Decays, rowPlace: s.Count}
		if s.hasMasked {
			b.mask = s.Valid[:s.Count]
		}
		u.polyBlock(&b, s.V, s.ldv, o, ld, den)
	}
	if s.Decays == nil {
		s.readMomentsFew(q, ldq, n, o, den)
	}
	for r := range n {
		if s.First == Unseen {
			u.ClearUnseen(g+r, 0, 1)
			continue
		}
		den[r] = u.Spec.denominator(den[r], s.eps(s.Count-1))
		u.Den[g+r][0] = den[r]
		over := u.invertDen(den[r])
		if u.Spec.OutputNorm {
			over *= u.outputFactor(s.CountClosedKeys() + float64(s.CountOpenKeys(s.Count)))
		}
		u.Table.Scale(u.O[g+r].Row(0), over, o[r*ld:])
	}
}

// readMomentsFew adds what the moments hold for n ≤ kernel.Lanes queries, the rows of
// q.
func (s *Scan) readMomentsFew(q []float, ldq, n int, o, den []float) {
	if s.Moments.NonEmpty {
		s.Moments.ReadFewTokens(s.Task.Arena, s.Monomials, q, ldq, n, o, den)
	}
}

// NewDegree1Step returns the buffers that the heads of a step share, for chunks of c tokens, in
// the task's scratch memory.
func (u *Task) NewDegree1Step(c int) degree1Step {
	f := degree1Step{t: u.Table, u: u, sum: arena.Take[float](u.Arena, 1), coef: u.Coefficients()}
	f.weight, f.first = u.Monomials.Weights, u.Monomials.First
	f.x, f.phi = arena.Take[float](u.Arena, u.PreparedWidth+1), arena.Take[float](u.Arena, len(f.weight))
	f.w, f.o = arena.Take[float](u.Arena, kernel.Pad(c)), arena.Take[float](u.Arena, kernel.Pad(u.Dv))
	return f
}

// AbsorbToken adds a prepared key [da] and its value [Dv] to the open chunk. exists says that
// the key is unmasked.
func (s *Scan) AbsorbToken(key, value []float, exists bool) {
	column := s.X[s.ColumnStride+s.Count:]
	for c, y := range key[:s.Task.PreparedWidth] {
		column[c*s.ColumnStride] = y
	}
	row := s.V[s.Count*s.Moments.Stride:][:s.Moments.Stride]
	k := 0
	if exists {
		k = copy(row, value)
	}
	clear(row[k:])
	s.AppendToken(exists)
}

// AnswerDegree1 sets out [Dv] to the output of a prepared query [da].
func (s *Scan) AnswerDegree1(f *degree1Step, q, out []float) {
	if s.First == Unseen {
		clear(out)
		return
	}
	t, o, ld := f.t, f.o, s.Moments.Stride
	clear(o)
	var den float
	if n := s.Count; n > 0 {
		w := f.w[:n]
		t.Block(1, kernel.Pad(n), len(q), q, len(q), 1, s.X[s.ColumnStride:], s.ColumnStride, f.w, len(f.w), false)
		f.sum[0] = 0
		t.PolyRows(w, w, len(f.w), n, f.coef, f.sum)
		if den = f.sum[0]; s.hasMasked {
			for j, exists := range s.Valid[:n] {
				if !exists {
					w[j] = 0
				}
			}
			den = t.Sum(w)
		}
		t.Mix(o, w, n, s.V, ld, nil, 0)
	}
	if s.Moments.NonEmpty {
		f.x[0] = 1
		copy(f.x[1:], q)
		t.Mul(f.phi, f.weight, f.x[f.first:])
		den = t.Mix(o, f.phi, features.BlockSize, s.Moments.S, ld, s.Moments.Z, den)
	}
	over := f.u.invertDen(f.u.Spec.denominator(den, float(f.u.Spec.Eps)))
	t.Scale(out, over, o)
}

// degree1Step is what the heads of a step of degree 1 share.
type degree1Step struct {
	t      *kernel.Table[float]
	u      *Task   // of any head
	coef   []float // of the kernel polynomial
	weight []float // [F] of the features
	first  int     // 1 without a constant feature, else 0

	x   []float // [da+1] a query behind a 1
	phi []float // [F] its weighted features
	w   []float // [kernel.Pad(chunk)] its weights of the open chunk's keys
	sum []float // [1] their sum
	o   []float // [kernel.Pad(Dv)] its numerators
}

// canFuseSteps reports whether all remaining tokens of the task can be stepped by fuseSteps: s
// holds only moments, with an unmasked key, and every token has a query and an unmasked key.
func (s *Scan) canFuseSteps() bool {
	u := s.Task
	return s.ChunkSize == 1 && s.Count == 0 && s.Moments.NonEmpty && s.First == -1 && s.Moments.Residual == nil && s.Decays == nil && !s.dropsAxis && u.Mask == nil && len(u.Q) == 1 && u.N == u.M &&
		u.Spec.IsDegree1() && s.Monomials.Count <= features.BlockSize
}

// fuseSteps absorbs the task's tokens from j on and sets their outputs.
func (s *Scan) fuseSteps(j int) {
	u := s.Task
	keys, queries := u.KeySide(), u.QuerySide(0)
	mark := u.Arena.Mark()
	r := u.NewFusedStepper(u.Arena, s.Monomials, stretch)
	k, q := u.TakeScratch(stretch*u.PreparedWidth), u.TakeScratch(stretch*u.PreparedWidth)
	o, dens := u.TakeScratch(stretch*r.Ld), u.TakeScratch(stretch)
	for ; j < u.M; j += stretch {
		n := min(stretch, u.M-j)
		u.prepareRows(k, u.PreparedWidth, &keys, j, j+n)
		u.prepareRows(q, u.PreparedWidth, &queries, j, j+n)
		r.Tokens(n, o, r.Ld, q, k, u.PreparedWidth, u.V.Data[j*u.V.Stride:], u.V.Stride, s.Moments.S, s.Moments.Z, 0, dens)
		for i, den := range dens[:n] {
			u.Den[0][j+i] = u.Spec.denominator(den, float(u.Spec.Eps))
			r.Table.Scale(u.O[0].Row(j+i), r.InvertDen(den), o[i*r.Ld:][:r.Ld])
		}
		u.noteNonFinite(0, j, j+n)
	}
	u.Arena.Reset(mark)
}

// NewFusedStepper returns a stepper for n tokens of heads of the same shape as the head of u.
// Its buffers are in ar.
func (u *Task) NewFusedStepper(ar *arena.Arena, m *features.Monomials, n int) fusedStepper {
	r := fusedStepper{Table: u.Table, u: u, Count: m.Count, lead: m.Count - u.PreparedWidth, Ld: kernel.Pad(u.Dv), c0: float(u.Spec.Coef[0]), c1: float(u.Spec.Coef[1])}
	r.y, r.w = arena.TakeZeros[float](ar, r.Ld), arena.Take[float](ar, n)
	if r.lead == 0 && allOnes(m.Weights) {
		return r
	}
	r.weight = m.Weights
	r.a, r.q, r.x = arena.Take[float](ar, m.Count), arena.Take[float](ar, m.Count), arena.Take[float](ar, m.Count)
	if r.lead > 0 {
		r.a[0], r.q[0], r.x[0] = m.Weights[0], 0, 1
	}
	return r
}

// fusedStepper is what the tokens of a state share.
type fusedStepper struct {
	Table  *kernel.Table[float]
	u      *Task // of any head
	Count  int   // features
	lead   int   // features before the components of a row, 0 or 1: the constant
	Ld     int   // stride of the moments' rows
	c0, c1 float
	weight []float // [F] of the features; nil: they are a row's components

	a, q, x []float // [F] a query's weighted features, and a query and a key, without the constant and with it
	y       []float // [ld] a value, if it does not fill whole vectors
	w       []float // weights that are not read
}

func allOnes(x []float) bool {
	for _, y := range x {
		if y != 1 {
			return false
		}
	}
	return true
}

// Tokens steps n tokens. It sets rows o [n,ld], ldo apart, to the numerators of their queries,
// each of which sees the key of its own token, and dens [n] to the denominators. It adds the
// keys and values to the moments s and z. Queries and keys [n] are prepared rows, ld apart;
// values [n] are rows ldv apart. The moments of the next token lie next elements on, where 0
// means that all tokens are of one head.
func (r *fusedStepper) Tokens(n int, o []float, ldo int, queries, keys []float, ld int, values []float, ldv int, s, z []float, next int, dens []float) {
	if r.weight == nil && r.u.Dv == r.Ld {
		r.Table.Renew(n, r.Ld, r.Count, o, ldo, queries, queries, keys, ld, values, ldv, s, r.Ld, z, next, r.c0, r.c1, dens, r.w)
		return
	}
	for i := range n {
		query, key, value := queries[i*ld:][:r.u.PreparedWidth], keys[i*ld:][:r.u.PreparedWidth], values[i*ldv:][:r.u.Dv]
		a, q, x := query, query, key
		if r.weight != nil {
			a, q, x = r.a, r.q, r.x
			r.Table.Mul(a[r.lead:], r.weight[r.lead:], query)
			copy(q[r.lead:], query)
			copy(x[r.lead:], key)
		}
		if len(value) < r.Ld {
			copy(r.y, value)
			value = r.y
		}
		r.Table.Renew(1, r.Ld, r.Count, o[i*ldo:], 0, a, q, x, 0, value, 0, s[i*next:], r.Ld, z[i*next:], 0, r.c0, r.c1, dens[i:], r.w)
	}
}

// InvertDen returns the factor that turns numerators into outputs, for the sum of weights den.
func (r *fusedStepper) InvertDen(den float) float {
	return r.u.invertDen(r.u.Spec.denominator(den, float(r.u.Spec.Eps)))
}
