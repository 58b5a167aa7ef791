package attention

import (
	"errors"
	"math"

	"github.com/farfield-ml/farfield/attention/internal/headtask"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/scratch"
)

// diagnosedRows is the number of queries that are looked at as one piece of
// work. Pieces are joined in order, so that sums do not depend on threads.
const diagnosedRows = 16 * headtask.PanelRows

// stretchOfRows is what one piece of the work looks at: some queries of one head
// of one sequence.
type stretchOfRows struct {
	s         *sequenceTask
	longest   []float64 // see longestKeys
	h, i0, i1 int
	found     Diagnosis // of queries counted from the sequence's first
}

var errSegmentedDiagnosis = errors.New("diagnosis: not defined with a state before or after the call")

func (e *engine[T]) Diagnose(c *Call[T]) ([]Diagnosis, error) {
	if err := e.checks().check(c); err != nil {
		return nil, err
	}
	if c.HasState() {
		return nil, errSegmentedDiagnosis
	}
	if e.spec.BuiltinDecay != nil {
		ar := arena.Acquire()
		defer ar.Release()
		c = e.withBuiltinDecay(ar, c)
	}
	seqs := e.sequences(nil, new([]Sequence), c)
	e.measure(c, seqs)
	var pieces []stretchOfRows
	var work float64
	for i := range seqs {
		s := &seqs[i]
		longest := e.conditions().longestKeys(c, s, c.Mask(&s.Sequence))
		for h := range c.Q.H {
			for i0 := 0; i0 < s.N; i0 += diagnosedRows {
				pieces = append(pieces, stretchOfRows{s: s, longest: longest, h: h, i0: i0, i1: min(i0+diagnosedRows, s.N)})
			}
		}
		direct, _ := e.forms().countOperations(s.N, s.M, c.Q.D, c.V.D, c.Causal, 1)
		work += direct * float64(c.Q.H)
	}
	par.RunEach(len(pieces), work, func(i int) { e.diagnose(c, &pieces[i]) })
	list := make([]Diagnosis, c.Q.B*c.Q.H)
	for i := range pieces {
		p := &pieces[i]
		list[p.s.Batch*c.Q.H+p.h].Merge(&p.found, p.s.Q0, e.spec.Exp)
	}
	for i := range list {
		if n := float64(list[i].Rows); n > 0 {
			list[i].Entropy /= n
			list[i].Condition /= n
		}
	}
	return list, nil
}

// diagnose looks at the rows of a piece, whose means it leaves as sums. Blocks
// of the matrix go by from left to right and are not kept.
func (e *engine[T]) diagnose(c *Call[T], p *stretchOfRows) {
	ar := arena.Acquire()
	defer ar.Release()
	group := c.Q.H / c.K.H
	u := e.newTask(c, p.s, p.h/group, ar)
	defer e.release(u)
	u.Decay().TakeKeys()
	n := p.i1 - p.i0
	lda, ld := scratch.Stride[T](u.PreparedWidth), scratch.Stride[T](min(u.M, headtask.KeyBlock))
	a := arena.Take[T](ar, n*lda)
	u.Rows().PrepareQ(a, lda, p.h%group, p.i0, p.i1)
	bt, s := arena.Take[T](ar, u.PreparedWidth*ld), arena.Take[T](ar, headtask.PanelRows*ld)
	sum := arena.Take[T](ar, 1) // of the kernel; the diagnosis sums in float64
	keys := u.Rows().KeySide()
	rows := make([]RowDiagnosis, n)
	for i := range rows {
		rows[i].top = math.Inf(-1)
	}
	var coef []T
	if !e.spec.Exp {
		coef = u.Direct().Coefficients()
	}
	for j0 := 0; j0 < u.CountVisible(p.i1-1); j0 += headtask.KeyBlock {
		nk := min(headtask.KeyBlock, u.M-j0)
		u.Rows().Prepare(bt, ld, &keys, j0, j0+nk)
		for i := 0; i < n; i += headtask.PanelRows {
			b := u.Direct().Block(a[i*lda:], lda, p.i0+i, min(headtask.PanelRows, n-i), bt, ld, j0, nk)
			u.Direct().ComputeScores(&b, 0, headtask.PanelRows, s, ld)
			mark := ar.Mark()
			decay := u.Decay().Fader(&b)
			if e.spec.Exp {
				u.Decay().AgeScores(&decay, &b, 0, b.Nq, s, ld, nil)
			}
			for r := range b.Nq {
				row := s[r*ld:][:b.CountVisible(r)]
				var left []T // of each key; nil: all
				if len(row) > 0 && !e.spec.Exp {
					u.Direct().Weigh(row, row, 0, len(row), coef, sum)
					if b.Decays != nil {
						left = decay.Factors(&b, r)
						u.Table.Mul(row, row, left)
					}
				}
				for k, w := range row {
					switch {
					case b.HasMask() && !b.IsVisible(r, k):
					case e.spec.Exp:
						rows[i+r].exponential(float64(w))
					case left == nil:
						rows[i+r].AddWeight(float64(w), 1)
					default:
						rows[i+r].AddWeight(float64(w), float64(left[k])*u.Rows().GateOf(j0+k))
					}
				}
			}
			ar.Reset(mark)
		}
	}
	for i := range rows {
		r := &rows[i]
		if r.SeenKeys == 0 {
			p.found.UnseenCount++
			continue
		}
		one := Diagnosis{Rows: 1, Entropy: r.Entropy()}
		if e.spec.Exp {
			one.Condition, one.MinDen = 1, math.Log(r.Size)+r.top
		} else {
			eps := float64(u.Decay().RelativeEps(u.Decay().Pending(p.i0 + i)))
			switch one.MinDen = eps; {
			case e.spec.Floor > 0:
				one.MinDen = e.spec.ApplyFloor(r.Sum)
			case !e.spec.Unnormalized:
				one.MinDen += r.Sum
			}
			one.Condition = math.Inf(1)
			if one.MinDen != 0 {
				one.Condition = r.Size / math.Abs(one.MinDen)
			}
			if headtask.IsIllConditioned(T(one.MinDen), r.decayedKeys, e.conditions().largestWeight(c.Q.D, e.conditions().boundScore(c, p.s, p.longest, p.h, p.i0+i))) {
				one.WeakCount = 1
			}
		}
		one.MinEntropy, one.MaxCondition = one.Entropy, one.Condition
		p.found.Merge(&one, p.i0+i, e.spec.Exp)
	}
}

// RowDiagnosis accumulates statistics of a row's weights, one after another. Weights of the
// exponential are divided by e^top, the largest so far.
type RowDiagnosis struct {
	SeenKeys    int64
	decayedKeys float64 // of the keys seen, after their decay
	Sum, Size   float64 // Σw, Σ|w|
	log         float64 // Σ|w|·ln|w|
	top         float64
}

// AddWeight counts the weight w of a key whose decay factor is left.
func (r *RowDiagnosis) AddWeight(w, left float64) {
	r.SeenKeys++
	r.decayedKeys += left
	r.Sum += w
	if w = math.Abs(w); w > 0 {
		r.Size += w
		r.log += w * math.Log(w)
	}
}

// exponential is weight for e^s.
func (r *RowDiagnosis) exponential(s float64) {
	r.SeenKeys++
	if s > r.top {
		// e^(x-top) becomes e^(x-s), and so do the factors of its logarithm.
		if fade := math.Exp(r.top - s); r.Size > 0 {
			r.log = fade * (r.log + (r.top-s)*r.Size)
			r.Size *= fade
		}
		r.top = s
	}
	if w := math.Exp(s - r.top); w > 0 {
		r.Size += w
		r.log += w * (s - r.top)
	}
}

// Entropy is -Σ p ln p with p = |w|/Σ|w|: ln Σ|w| - Σ|w|ln|w| / Σ|w|.
func (r *RowDiagnosis) Entropy() float64 {
	if r.Size == 0 {
		return 0
	}
	return max(0, math.Log(r.Size)-r.log/r.Size)
}
