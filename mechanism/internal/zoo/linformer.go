package zoo

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/mechanism/internal/entry"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// linformerAttention computes heads of linformer. A sequence shorter than L uses the
// first rows of E and F. Masked keys are rows of zeros.
type linformerAttention struct {
	setting      string
	length, rank int
	heads        int // number of heads with their own projection; 0: all share one
	allColumns   bool
	params       param.Set
	e, f         *param.Param // may be the same
	softmax      headwise.Softmax
}

func NewLinformer(r *entry.Reader) (headwise.Function, error) {
	rank, err := r.Integer("rank", 1, 1<<12)
	if err != nil {
		return nil, err
	}
	share, err := r.Choice("share", "heads", "kv", "none")
	if err != nil {
		return nil, err
	}
	columns, err := r.Choice("columns", "reached", "all")
	if err != nil {
		return nil, err
	}
	key, err := r.Key()
	if err != nil {
		return nil, err
	}
	length := r.Length
	if length == 0 {
		length = 512 // the paper's
	}
	l := &linformerAttention{
		setting: fmt.Sprintf("linformer length=%d rank=%d share=%s columns=%s", length, rank, share, columns),
		length:  length, rank: rank, allColumns: columns == "all",
		softmax: headwise.NewSoftmax(0),
	}
	shape := []int{l.length, rank}
	if share == "none" {
		l.heads = max(r.Heads, 1)
		shape = []int{l.heads, l.length, rank}
	}
	if err := r.Room("projection", shape...); err != nil {
		return nil, err
	}
	// Elements start with variance 1/r, as in the paper's theorem 2.
	add := func(name string, stream uint64) *param.Param {
		p, key := l.params.New(name, true, shape...), key.Fold(stream)
		for i := range p.Data {
			p.Data[i] = float(key.Normal(uint64(i)) / math.Sqrt(float64(rank)))
		}
		return p
	}
	l.e = add("E", 1)
	if l.f = l.e; share != "kv" {
		l.f = add("F", 2)
	}
	return l, nil
}

func (l *linformerAttention) Traits() attention.Traits {
	return attention.Traits{Name: "linformer", NoCausal: "its projections mix all tokens of a sequence, later ones too"}
}

func (l *linformerAttention) Setting() string       { return l.setting }
func (l *linformerAttention) Params() *param.Set    { return &l.params }
func (l *linformerAttention) Constants() *param.Set { return nil }

func (l *linformerAttention) Check(c *attention.Call) error {
	if l.heads > 0 && c.Q.H != l.heads {
		return fmt.Errorf("%s: has %d heads, q has %d", l.e.Name, l.heads, c.Q.H)
	}
	if n := c.LongestKeys(); n > l.length {
		return fmt.Errorf("k: a sequence has %d tokens, E has rows for %d", n, l.length)
	}
	return nil
}

// projectionRows returns the first m rows of a projection, or of its gradient, for a
// head: [m, rank].
func (l *linformerAttention) projectionRows(x []float, head, m int) tensor.Mat {
	if l.heads > 0 {
		x = x[head*l.length*l.rank:]
	}
	return tensor.Mat{Data: x, Rows: m, Cols: l.rank, Stride: l.rank}
}

// reachedMixtures returns the mixtures that some unmasked key reaches, nil if all are
// used.
func (l *linformerAttention) reachedMixtures(h *headwise.Head) []int32 {
	if l.allColumns {
		return nil
	}
	missing := l.rank
	reached := arena.TakeZeros[int32](h.Scratch, l.rank)
	e, f := l.projectionRows(l.e.Data, h.Head, h.K.Rows), l.projectionRows(l.f.Data, h.Head, h.K.Rows)
	for j := 0; j < h.K.Rows && missing > 0; j++ {
		if !h.IsUnmasked(j) {
			continue
		}
		for c, x := range e.Row(j) {
			if reached[c] == 0 && (x != 0 || f.Row(j)[c] != 0) {
				reached[c] = 1
				missing--
			}
		}
	}
	if missing == 0 {
		return nil
	}
	places := reached[:0]
	for c, is := range reached {
		if is != 0 {
			places = append(places, int32(c))
		}
	}
	return places
}

// mixedRows returns the operands of the softmax over mixtures, with projected keys
// [rank, D] and values [rank, Dv], and the logarithms of its sums. Both lie in saved.
func (l *linformerAttention) mixedRows(h *headwise.Head, saved []float) (x headwise.Rows, lse []float) {
	d, dv := h.K.Cols, h.V.Cols
	k, rest := saved[:l.rank*d], saved[l.rank*d:]
	return headwise.Rows{
		Q: h.Q, Keys: l.reachedMixtures(h),
		K: tensor.Mat{Data: k, Rows: l.rank, Cols: d, Stride: d},
		V: tensor.Mat{Data: rest[:l.rank*dv], Rows: l.rank, Cols: dv, Stride: dv},
	}, rest[l.rank*dv:]
}

func (l *linformerAttention) Forward(h *headwise.Head) {
	x, lse := l.mixedRows(h, h.SaveBuffer(l.rank*(h.K.Cols+h.V.Cols)+h.Q.Rows))
	h.Multiply(x.K, l.projectionRows(l.e.Data, h.Head, h.K.Rows), h.K, true, false, false)
	h.Multiply(x.V, l.projectionRows(l.f.Data, h.Head, h.K.Rows), h.V, true, false, false)
	l.softmax.Forward(h.Scratch, h.Out, lse, x)
}

func (l *linformerAttention) Backward(h *headwise.Head, g *headwise.Grads) {
	x, lse := l.mixedRows(h, h.Saved)
	m := h.K.Rows
	dk, dv := h.TakeScratch(l.rank, h.K.Cols), h.TakeScratch(l.rank, h.V.Cols)
	clear(dk.Data) // for mixtures that are not reached
	clear(dv.Data)
	l.softmax.Backward(h.Scratch, headwise.RowsGrad{DOut: g.DOut, DQ: g.DQ, DK: dk, DV: dv}, h.Out, lse, x)
	h.Multiply(g.DK, l.projectionRows(l.e.Data, h.Head, m), dk, false, false, false)
	h.Multiply(g.DV, l.projectionRows(l.f.Data, h.Head, m), dv, false, false, false)
	h.Multiply(l.projectionRows(g.Params[0], h.Head, m), h.K, dk, false, true, true)
	h.Multiply(l.projectionRows(g.Params[len(g.Params)-1], h.Head, m), h.V, dv, false, true, true)
}

func (l *linformerAttention) Cost(s attention.Shape) headwise.Cost {
	w, n := float64(s.D+s.Dv), float64(l.rank)
	return headwise.Cost{
		FLOPs: 2 * n * w * float64(s.N+s.M),
		Bytes: entry.ElementBytes() * (2*n*w + float64(s.N)),
	}
}
