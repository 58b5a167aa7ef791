package nn

import (
	"math"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// recurrence is the layer as arXiv 2405.21060 writes it: the state, token by
// token, in float64.
func recurrence(m *mamba2Layer[float64], x tensor.Mat[float64]) tensor.Mat[float64] {
	affine := func(l *Linear[float64], x []float64) []float64 {
		y := make([]float64, l.W.Shape[0])
		for i := range y {
			for j, a := range x {
				y[i] += l.W.Data[i*len(x)+j] * a
			}
			if l.B != nil {
				y[i] += l.B.Data[i]
			}
		}
		return y
	}
	act := func(x float64) float64 { return x / (1 + math.Exp(-x)) }
	y := tensor.NewMat[float64](x.Rows, x.Cols)
	state := make([]float64, m.H*m.P*m.S)
	var rows [][]float64
	for i := range x.Rows {
		all := affine(&m.In, x.Row(i))
		z, raw, dt := all[:m.H*m.P], all[m.H*m.P:][:m.convWidth()], all[m.H*m.P+m.convWidth():]
		rows = append(rows, raw)
		mixed := make([]float64, len(raw))
		for c := range mixed {
			sum := m.Conv.B.Data[c]
			for k := range min(m.Conv.countTaps(), i+1) {
				sum += m.Conv.W.Data[k*len(mixed)+c] * rows[i-k][c]
			}
			mixed[c] = act(sum)
		}
		u := make([]float64, m.H*m.P)
		for h := range m.H {
			step := math.Log(1 + math.Exp(dt[h]+m.Dt.Data[h]))
			a := math.Exp(-step * math.Exp(m.ALog.Data[h]))
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
				u[c] = (u[c] + m.D.Data[h]*mixed[c]) * act(z[c])
			}
		}
		size := len(u) / m.G
		for g := range m.G {
			var square float64
			for _, v := range u[g*size:][:size] {
				square += v * v
			}
			for c := g * size; c < (g+1)*size; c++ {
				u[c] *= m.Gain.Data[c] / math.Sqrt(square/float64(size)+1e-5)
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
			m, weights := built[float64](t, x, n)
			in := matrix[float64](&source{key: rng.New(71)}, n, x.width)
			want := recurrence(m.(*mamba2Layer[float64]), in)
			got := mixed(t, m, in, Scope[float64]{B: 1, Causal: true})
			limit := 1e-12 * check.MaxAbs(want.Data)
			if r := check.ErrorRatio(got.Data, want.Data, limit); !(r <= 1) {
				t.Errorf("%v, %d tokens: errs by %.3g of 1e-12", x, n, r)
			}
			single, same := built[float32](t, x, n)
			for i, p := range weights {
				for j := range p.Data {
					same[i].Data[j] = float32(p.Data[j])
					p.Data[j] = float64(same[i].Data[j])
				}
			}
			in32 := tensor.NewMat[float32](n, x.width)
			for i := range n {
				for j, v := range in.Row(i) {
					in32.Row(i)[j] = float32(v)
					in.Row(i)[j] = float64(float32(v))
				}
			}
			want = recurrence(m.(*mamba2Layer[float64]), in)
			// Sums of products of both signs: errors are counted in units of the
			// largest row.
			if r := check.ErrorRatio(mixed(t, single, in32, Scope[float32]{B: 1, Causal: true}).Data, want.Data, 256*0x1p-24*check.MaxAbs(want.Data)); !(r <= 1) {
				t.Errorf("%v, %d tokens, float32: errs by %.3g of 256 roundings", x, n, r)
			}
		}
	}
}

// A channel remembers what its step and decay say: with B = C = 1 and a decay of
// 1 - 2^-k its response to one token falls by that factor.
func TestMamba2Forgets(t *testing.T) {
	m, weights := built[float64](t, subject{"mamba-2", map[string]string{"state": "1", "expand": "1", "conv": "1"}, 1, 1}, 8)
	layer := m.(*mamba2Layer[float64])
	for _, p := range weights {
		clear(p.Data)
	}
	layer.Conv.B.Data[1], layer.Conv.B.Data[2] = 10, 10 // B and C
	layer.In.W.Data[1] = 5                              // x of the token
	layer.Conv.W.Data[0] = 1
	layer.Dt.Data[0] = 0.3
	tr := m.NewTrace().(*mamba2Trace[float64])
	in, y := tensor.NewMat[float64](8, 1), tensor.NewMat[float64](8, 1)
	in.Data[0] = 1
	if err := m.Forward(y, y, in, Scope[float64]{B: 1, Causal: true}, tr, false); err != nil {
		t.Fatal(err)
	}
	factor := math.Exp(-math.Log1p(math.Exp(0.3)))
	for i := 1; i < 8; i++ {
		if got := tr.o[i] / tr.o[i-1]; math.Abs(got-factor) > 1e-12 {
			t.Errorf("token %d: %v of the one before, want %v", i, got, factor)
		}
	}
}
