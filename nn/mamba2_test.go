package nn

import (
	"math"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/rng"
)

// recurrence is the layer as arXiv 2405.21060 writes it: the state, token by
// token, in float64.
func recurrence(m *mamba2Layer, x oracle.Mat) oracle.Mat {
	affine := func(l *Linear, x []float64) []float64 {
		y := make([]float64, l.W.Shape[0])
		for i := range y {
			for j, a := range x {
				y[i] += float64(l.W.Data[i*len(x)+j]) * a
			}
			if l.B != nil {
				y[i] += float64(l.B.Data[i])
			}
		}
		return y
	}
	act := func(x float64) float64 { return x / (1 + math.Exp(-x)) }
	y := oracle.NewMat(x.Rows, x.Cols)
	state := make([]float64, m.H*m.P*m.S)
	var rows [][]float64
	for i := range x.Rows {
		all := affine(&m.In, x.Row(i))
		z, raw, dt := all[:m.H*m.P], all[m.H*m.P:][:m.convWidth()], all[m.H*m.P+m.convWidth():]
		rows = append(rows, raw)
		mixed := make([]float64, len(raw))
		for c := range mixed {
			sum := float64(m.Conv.B.Data[c])
			for k := range min(m.Conv.countTaps(), i+1) {
				sum += float64(m.Conv.W.Data[k*len(mixed)+c]) * rows[i-k][c]
			}
			mixed[c] = act(sum)
		}
		u := make([]float64, m.H*m.P)
		for h := range m.H {
			step := math.Log(1 + math.Exp(dt[h]+float64(m.Dt.Data[h])))
			a := math.Exp(-step * math.Exp(float64(m.ALog.Data[h])))
			g := h / (m.H / m.G)
			key := mixed[m.H*m.P+g*m.S:][:m.S]
			query := mixed[m.H*m.P+(m.G+g)*m.S:][:m.S]
			for p := range m.P {
				c := h*m.P + p
				row := state[c*m.S:][:m.S]
				for s := range row {
					row[s] = a*row[s] + step*mixed[c]*key[s]
					u[c] += row[s] * query[s]
				}
				u[c] = (u[c] + float64(m.D.Data[h])*mixed[c]) * act(z[c])
			}
		}
		size := len(u) / m.G
		for g := range m.G {
			var square float64
			for _, v := range u[g*size:][:size] {
				square += v * v
			}
			for c := g * size; c < (g+1)*size; c++ {
				u[c] *= float64(m.Gain.Data[c]) / math.Sqrt(square/float64(size)+1e-5)
			}
		}
		copy(y.Row(i), affine(&m.Out, u))
	}
	return y
}

func TestMamba2IsItsRecurrence(t *testing.T) {
	for _, x := range subjects() {
		if x.name != "mamba-2" {
			continue
		}
		for _, n := range []int{1, 2, 70, 700} {
			m, _ := built(t, x, n)
			in := matrix(&source{key: rng.New(71)}, n, x.width)
			wide := oracle.NewMat(n, x.width)
			for i := range n {
				for j, v := range in.Row(i) {
					wide.Row(i)[j] = float64(v)
				}
			}
			want := recurrence(m.(*mamba2Layer), wide)
			got := mixed(t, m, in, Scope{B: 1, Causal: true})
			// Sums of products of both signs: errors are counted in units of the
			// largest row.
			limit := check.Pick(256*0x1p-24, 1e-12) * check.MaxAbs(want.Data)
			if r := check.ErrorRatio(got.Data, want.Data, limit); !(r <= 1) {
				t.Errorf("%v, %d tokens: errs by %.3g of the limit", x, n, r)
			}
		}
	}
}
