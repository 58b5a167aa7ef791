package zoo

import (
	"fmt"
	"math"
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/mechanism/internal/entry"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// probSparse gives some queries the output of softmax, and the others the mean of all
// values (Zhou et al. 2021, section 3).
type probSparse struct {
	factor        int
	dividesByKeys bool // the measure divides by the number of keys
	key           rng.Key
	storedSamples *param.Set // nil: drawn
	softmax       headwise.Softmax
}

func NewInformer(r *entry.Reader) (headwise.Function, error) {
	x := &probSparse{softmax: headwise.NewSoftmax(0)}
	var err error
	if x.factor, err = r.Integer("factor", 1, 1024); err != nil {
		return nil, err
	}
	form, err := r.Choice("form", "paper", "code")
	if err != nil {
		return nil, err
	}
	x.dividesByKeys = form == "code"
	if x.key, err = r.Key(); err != nil {
		return nil, err
	}
	sample, err := r.Choice("sample", "drawn", "stored")
	if err != nil || sample == "drawn" {
		return x, err
	}
	if r.Length == 0 {
		return nil, fmt.Errorf("informer: setting sample=stored: the largest number of tokens is not known")
	}
	if err := r.Room("sample", r.Length, x.logCount(r.Length)); err != nil {
		return nil, err
	}
	x.storedSamples = new(param.Set)
	places := x.storedSamples.New("sample", false, r.Length, x.logCount(r.Length))
	for i := range places.Data {
		n := places.Shape[1]
		places.Data[i] = float(x.drawSample(i/n, i%n))
	}
	return x, nil
}

func (x *probSparse) Traits() attention.Traits {
	return attention.Traits{Name: "informer", MixedQueries: true, Positive: true,
		NoCausal: "which queries are computed depends on all of them, and on keys after them"}
}

func (x *probSparse) Setting() string {
	form := "paper"
	if x.dividesByKeys {
		form = "code"
	}
	return fmt.Sprintf("informer factor=%d form=%s sample=%v", x.factor, form, x.key)
}

func (x *probSparse) Params() *param.Set    { return nil }
func (x *probSparse) Constants() *param.Set { return x.storedSamples }

func (x *probSparse) Check(c *attention.Call) error {
	if x.storedSamples == nil {
		return nil
	}
	places := x.storedSamples.All()[0]
	rows, samples := places.Shape[0], places.Shape[1]
	var room [8]attention.Sequence
	n := 0
	for _, s := range c.AppendSequences(room[:0]) {
		n = max(n, s.N)
	}
	if n > rows {
		return fmt.Errorf("q: a sequence has %d tokens, informer has samples for %d", n, rows)
	}
	if m := c.LongestKeys(); x.logCount(m) > samples {
		return fmt.Errorf("k: a sequence has %d tokens, which need %d samples of each query, informer has %d", m, x.logCount(m), samples)
	}
	for i, at := range places.Data[:n*samples] {
		if !(at >= 0 && at <= 1) { // a float32 just below 1 may have been rounded to 1
			return fmt.Errorf("%s: sample %d of token %d is %v, needs to be between 0 and 1", places.Name, i%samples, i/samples, at)
		}
	}
	return nil
}

// logCount returns factor·⌈ln n⌉, at least 1 and at most n.
func (x *probSparse) logCount(n int) int {
	return min(n, max(1, x.factor*int(math.Ceil(math.Log(float64(n))))))
}

// drawSample returns sample s of token i, in [0, 1]. It is the same in both precisions.
func (x *probSparse) drawSample(i, s int) float32 {
	return float32(x.key.Fold(uint64(i)).Float64(uint64(s)))
}

// sampledKey returns the index among m keys of sample s of token i.
func (x *probSparse) sampledKey(i, s, m int) int {
	at := float64(x.drawSample(i, s))
	if x.storedSamples != nil {
		places := x.storedSamples.All()[0]
		at = float64(places.Data[i*places.Shape[1]+s])
	}
	return min(int(at*float64(m)), m-1)
}

// measureQueries sets dst [queries] to the sparsity measure of each query: the largest
// of its sampled scores minus their mean, or with form=code minus their sum over the
// number of keys. k is [keys, D].
func (x *probSparse) measureQueries(h *headwise.Head, dst []float, k tensor.Mat) {
	samples := x.logCount(k.Rows)
	scores := arena.Take[float](h.Scratch, samples)
	for i := range dst {
		q := h.Q.Row(i)
		for s := range scores {
			scores[s] = h.Table.Dot(q, k.Row(x.sampledKey(i, s, k.Rows)))
		}
		top := slices.Max(scores)
		var sum float
		if x.dividesByKeys {
			for _, s := range scores {
				sum += s
			}
			dst[i] = top - sum/float(k.Rows)
			continue
		}
		for _, s := range scores { // equal scores give exactly 0
			sum += top - s
		}
		dst[i] = sum / float(samples)
	}
}

// chooseQueries sets chosen [queries] to 1 for the n queries with the largest measure
// and to 0 for others. Ties are resolved in favour of earlier queries.
func chooseQueries(h *headwise.Head, chosen, measure []float, n int) {
	sorted := arena.Take[float](h.Scratch, len(measure))
	copy(sorted, measure)
	slices.Sort(sorted)
	least := sorted[len(sorted)-n]
	ties := n
	for _, x := range measure {
		if x > least {
			ties--
		}
	}
	for i, x := range measure {
		chosen[i] = 0
		if x > least || x == least && ties > 0 {
			if x == least {
				ties--
			}
			chosen[i] = 1
		}
	}
}

// gatherChosen returns the chosen rows of x, at most n.
func gatherChosen(h *headwise.Head, x tensor.Mat, chosen []float, n int) tensor.Mat {
	y := h.TakeScratch(n, x.Cols)
	at := 0
	for i, c := range chosen {
		if c != 0 {
			copy(y.Row(at), x.Row(i))
			at++
		}
	}
	return y.Slice(0, at)
}

// Forward saves the chosen queries and the logarithms of their softmax sums.
func (x *probSparse) Forward(h *headwise.Head) {
	k, v := h.GatherUnmasked(h.K), h.GatherUnmasked(h.V)
	n, u := h.Q.Rows, x.logCount(h.Q.Rows)
	saved := h.SaveBuffer(n + u)
	chosen, lse := saved[:n], saved[n:]
	measure := arena.Take[float](h.Scratch, n)
	x.measureQueries(h, measure, k)
	chooseQueries(h, chosen, measure, u)
	q := gatherChosen(h, h.Q, chosen, u)
	out := h.TakeScratch(q.Rows, v.Cols)
	x.softmax.Forward(h.Scratch, out, lse[:q.Rows], headwise.Rows{Q: q, K: k, V: v})

	mean := arena.TakeZeros[float](h.Scratch, v.Cols)
	for j := range v.Rows {
		h.Table.Add(mean, mean, v.Row(j))
	}
	h.Table.Scale(mean, 1/float(v.Rows), mean)
	at := 0
	for i, c := range chosen {
		row := mean
		if c != 0 {
			row = out.Row(at)
			at++
		}
		copy(h.Out.Row(i), row)
		if y := measure[i]; y-y != 0 { // NaN: the choice depends on scores that have overflowed
			h.Table.Scale(h.Out.Row(i), y-y, h.Out.Row(i))
		}
	}
}

func (x *probSparse) Backward(h *headwise.Head, g *headwise.Grads) {
	k, v := h.GatherUnmasked(h.K), h.GatherUnmasked(h.V)
	n, u := h.Q.Rows, x.logCount(h.Q.Rows)
	chosen, lse := h.Saved[:n], h.Saved[n:]
	q, do, out := gatherChosen(h, h.Q, chosen, u), gatherChosen(h, g.DOut, chosen, u), gatherChosen(h, h.Out, chosen, u)
	dq, dk, dv := h.TakeScratch(q.Rows, q.Cols), h.UnmaskedGradBuffer(g.DK, k.Rows), h.UnmaskedGradBuffer(g.DV, v.Rows)
	x.softmax.Backward(h.Scratch, headwise.RowsGrad{DOut: do, DQ: dq, DK: dk, DV: dv}, out, lse[:q.Rows],
		headwise.Rows{Q: q, K: k, V: v})

	mean := arena.TakeZeros[float](h.Scratch, v.Cols)
	at := 0
	for i, c := range chosen {
		row := g.DQ.Row(i)
		if c != 0 {
			copy(row, dq.Row(at))
			at++
			continue
		}
		clear(row)
		h.Table.Add(mean, mean, g.DOut.Row(i))
	}
	h.Table.Scale(mean, 1/float(v.Rows), mean)
	for j := range dv.Rows {
		h.Table.Add(dv.Row(j), dv.Row(j), mean)
	}
	h.ScatterUnmasked(g.DK, dk)
	h.ScatterUnmasked(g.DV, dv)
}

func (x *probSparse) Cost(s attention.Shape) headwise.Cost {
	n, m, d, dv := float64(s.N), float64(s.M), float64(s.D), float64(s.Dv)
	samples, u := float64(x.logCount(s.M)), float64(x.logCount(s.N))
	return headwise.Cost{
		FLOPs: 2*n*samples*d + 2*u*m*(d+dv) + m*dv,
		Bytes: entry.ElementBytes() * (3*n + u*(d+dv+1) + samples + dv),
	}
}
