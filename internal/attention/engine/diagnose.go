package engine

import (
	"errors"
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/headtask"
	"github.com/farfield-ml/farfield/internal/attention/rowstats"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/scratch"
)

// DiagnosedRows is the number of queries of one piece of work. Pieces are merged in order, so
// that sums do not depend on threads.
const DiagnosedRows = 16 * headtask.PanelRows

// RowStretch is one piece of the work of a diagnosis: queries I0 ≤ i < I1 of one head of one
// sequence.
type RowStretch struct {
	Sequence     *SequenceTask
	Longest      []float64 // result of LongestKeys
	Head, I0, I1 int
	Found        attention.Diagnosis // result; queries are counted from the first of the sequence
}

var ErrSegmentedDiagnosis = errors.New("diagnosis: not defined with a state before or after the call")

// Diagnose describes the weights of each query head. It returns an error if c does not fit the
// mechanism, or has a state.
func (e *Engine) Diagnose(c *attention.Call) ([]attention.Diagnosis, error) {
	if err := e.CheckCall(c); err != nil {
		return nil, err
	}
	if p, x := e.onProducts(c); p != nil {
		return p.Diagnose(x)
	}
	if c.HasState() {
		return nil, ErrSegmentedDiagnosis
	}
	if e.Spec.BuiltinDecay != nil {
		ar := arena.Acquire()
		defer ar.Release()
		c = e.withBuiltinDecay(ar, c)
	}
	seqs := e.Sequences(nil, new([]attention.Sequence), c)
	e.measure(c, seqs)
	var pieces []RowStretch
	var work float64
	for i := range seqs {
		s := &seqs[i]
		longest := e.LongestKeys(c, s, c.Mask(&s.Sequence))
		for h := range c.Q.H {
			for i0 := 0; i0 < s.N; i0 += DiagnosedRows {
				pieces = append(pieces, RowStretch{Sequence: s, Longest: longest, Head: h, I0: i0, I1: min(i0+DiagnosedRows, s.N)})
			}
		}
		direct, _ := e.CountOperations(s.N, s.M, s.Offset, c.Q.D, c.V.D, c.Causal, 1)
		work += direct * float64(c.Q.H)
	}
	par.RunEach(len(pieces), work, func(i int) { e.diagnose(c, &pieces[i]) })
	list := make([]attention.Diagnosis, c.Q.B*c.Q.H)
	for i := range pieces {
		p := &pieces[i]
		list[p.Sequence.Batch*c.Q.H+p.Head].Merge(&p.Found, p.Sequence.Q0, e.Spec.Exp)
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
func (e *Engine) diagnose(c *attention.Call, p *RowStretch) {
	ar := arena.Acquire()
	defer ar.Release()
	group := c.Q.H / c.K.H
	u := e.NewTask(c, p.Sequence, p.Head/group, ar)
	defer e.Release(u)
	u.TakeDecays()
	n := p.I1 - p.I0
	lda, ld := scratch.Stride[float](u.PreparedWidth), scratch.Stride[float](min(u.M, headtask.KeyBlock))
	a := arena.Take[float](ar, n*lda)
	u.PrepareQ(a, lda, p.Head%group, p.I0, p.I1)
	bt, s := arena.Take[float](ar, u.PreparedWidth*ld), arena.Take[float](ar, headtask.PanelRows*ld)
	sum := arena.Take[float](ar, 1) // of the kernel; the diagnosis sums in float64
	keys := u.KeySide()
	rows := make([]rowstats.Row, n)
	var coef []float
	if !e.Spec.Exp {
		coef = u.Coefficients()
	}
	for j0 := 0; j0 < u.CountVisible(p.I1-1); j0 += headtask.KeyBlock {
		nk := min(headtask.KeyBlock, u.M-j0)
		u.Prepare(bt, ld, &keys, j0, j0+nk)
		for i := 0; i < n; i += headtask.PanelRows {
			b := u.Block(a[i*lda:], lda, p.I0+i, min(headtask.PanelRows, n-i), bt, ld, j0, nk)
			u.ComputeScores(&b, 0, headtask.PanelRows, s, ld)
			mark := ar.Mark()
			decay := u.Fader(&b)
			if e.Spec.Exp {
				u.AgeScores(&decay, &b, 0, b.Nq, s, ld, nil)
			}
			for r := range b.Nq {
				row := s[r*ld:][:b.CountVisible(r)]
				var left []float // of each key; nil: all
				if len(row) > 0 && !e.Spec.Exp {
					u.Weigh(row, row, 0, len(row), coef, sum)
					if b.Decays != nil {
						left = decay.Factors(&b, r)
						u.Table.Mul(row, row, left)
					}
				}
				for k, w := range row {
					switch {
					case b.HasMask() && !b.IsVisible(r, k):
					case e.Spec.Exp:
						rows[i+r].AddExponential(float64(w))
					case left == nil:
						rows[i+r].AddWeight(float64(w), 1)
					default:
						rows[i+r].AddWeight(float64(w), float64(left[k])*u.GateOf(j0+k))
					}
				}
			}
			ar.Reset(mark)
		}
	}
	for i := range rows {
		r := &rows[i]
		if r.SeenKeys == 0 {
			p.Found.UnseenCount++
			continue
		}
		one := attention.Diagnosis{Rows: 1, Entropy: r.Entropy()}
		if e.Spec.Exp {
			one.Condition, one.MinDen = 1, r.LogSum()
		} else {
			eps := float64(u.RelativeEps(u.Pending(p.I0 + i)))
			switch one.MinDen = eps; {
			case e.Spec.Floor > 0:
				one.MinDen = e.Spec.ApplyFloor(r.Sum)
			case !e.Spec.Unnormalized:
				one.MinDen += r.Sum
			}
			one.Condition = math.Inf(1)
			if one.MinDen != 0 {
				one.Condition = r.Size / math.Abs(one.MinDen)
			}
			if headtask.IsIllConditioned(float(one.MinDen), r.DecayedKeys, e.largestWeight(c, e.BoundScore(c, p.Sequence, p.Longest, p.Head, p.I0+i))) {
				one.WeakCount = 1
			}
		}
		one.MinEntropy, one.MaxCondition = one.Entropy, one.Condition
		p.Found.Merge(&one, p.I0+i, e.Spec.Exp)
	}
}
