package nn

import (
	"errors"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// groupElements bounds the elements of queries, keys and values that Forward without keep
// projects at once. Larger batches go through the mechanism in groups of heads.
var groupElements = 1 << 24

// groupSize returns the number of key heads that are projected at once for the given number of
// rows: all of them if the call is small or cannot be divided.
func (a *Attention) groupSize(rows int, s *Scope) int {
	each := rows * a.D * (a.H/a.Hkv + 2)
	if each*a.Hkv <= groupElements || a.Undivided || a.O.W == nil || a.Q.compressed != nil || a.Decay != nil || a.Mechanism.Traits().PlacedHeads || a.Mechanism.Params().Size() > 0 || a.Mechanism.Constants().Size() > 0 ||
		s.Ranks != nil || s.Init != nil || s.Final != nil || s.Drop != nil {
		return a.Hkv
	}
	busy := (par.Threads()*a.Hkv + s.B*a.H - 1) / (s.B * a.H) // key heads that keep the threads busy
	size := min(max(groupElements/each, busy, 1), a.Hkv)
	groups := (a.Hkv + size - 1) / size
	return (a.Hkv + groups - 1) / groups // of about the same size
}

// headGroup returns a layer of key heads h ≤ i < h+heads and their query heads. It shares weights
// with a.
func (a *Attention) headGroup(h, heads int) Attention {
	share := a.H / a.Hkv
	g := Attention{QNorm: a.QNorm, KNorm: a.KNorm, Mechanism: a.Mechanism, H: heads * share, Hkv: heads, D: a.D}
	g.Q = a.Q.outputs(h*share*a.D, heads*share*a.D)
	g.K, g.V = a.K.outputs(h*a.D, heads*a.D), a.V.outputs(h*a.D, heads*a.D)
	return g
}

// outputs returns a layer of the n outputs from i on, which shares weights with l.
func (l *Linear) outputs(i, n int) Linear {
	in := l.W.Shape[1]
	part := Linear{W: &param.Param{Name: l.W.Name, Shape: []int{n, in}, Data: l.W.Data[i*in:][:n*in]}}
	if l.B != nil {
		part.B = &param.Param{Name: l.B.Name, Shape: []int{n}, Data: l.B.Data[i:][:n]}
	}
	return part
}

// TakesParts reports whether Forward without keep, of self-attention over the given number of rows,
// accepts a Scope.Norm.
func (a *Attention) TakesParts(rows int, s *Scope) bool { return a.groupSize(rows, s) < a.Hkv }

// normedRows is the number of rows that are normalised at a time.
const normedRows = 2048

// normalisedProducts computes the products q, k and v of the rows of x after norm.
func normalisedProducts(norm Norm, tr *AttentionTrace, x tensor.Mat, q, k, v rowProduct) {
	part := func(f rowProduct, i0, i1 int, x tensor.Mat) rowProduct {
		f.y, f.x = f.y.Slice(i0, i1), x
		return f
	}
	for i0 := 0; i0 < x.Rows; i0 += normedRows {
		i1 := min(i0+normedRows, x.Rows)
		rows := resizeMatrix(&tr.normed, i1-i0, x.Cols)
		norm.Forward(rows, x.Slice(i0, i1), resizeMatrix(&tr.stats, i1-i0, 2).Data)
		multiplyRows(true, part(q, i0, i1, rows), part(k, i0, i1, rows), part(v, i0, i1, rows))
	}
}

// forwardGroups returns the outputs [B·N,H·D] of the mechanism, computed in groups of size key
// heads. Results are bitwise those of one call with all heads.
func (a *Attention) forwardGroups(x, context tensor.Mat, s Scope, tr *AttentionTrace, size int) (tensor.Mat, error) {
	share := a.H / a.Hkv
	o := viewMatrix(s.Room, x.Rows, a.H*a.D)
	if s.Room == nil {
		o = resizeMatrix(&tr.o, x.Rows, a.H*a.D)
	}
	var sum *attention.NonFiniteError
	var finite int64 // rows of groups without an error
	for h := 0; h < a.Hkv; h += size {
		g := a.headGroup(h, min(size, a.Hkv-h))
		g.projectRows(x, context, s, tr, false)
		out := tensor.Split(o.Data, s.B, x.Rows/s.B, a.H*a.D, h*share*a.D, g.H, a.D)
		err := a.Mechanism.Forward(out, &tr.call, nil)
		var rows *attention.NonFiniteError
		switch {
		case err == nil:
			finite += int64(g.H) * int64(x.Rows)
		case !errors.As(err, &rows):
			return o, err
		case sum == nil:
			sum = rows
			sum.First[1] += h * share
		default:
			sum.Rows, sum.AllRows = sum.Rows+rows.Rows, sum.AllRows+rows.AllRows
		}
	}
	if sum == nil {
		return o, nil
	}
	sum.AllRows += finite
	return o, sum
}
