package nn

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// gated returns a layer with random weights of the size that a model begins with.
func gated(s *source, width, hidden int, act Activation) *gatedMLP {
	linear := func(out, in int) Linear {
		l := Linear{W: weight(s, out, in), B: weight(s, out)}
		for _, p := range []*param.Param{l.W, l.B} {
			for i := range p.Data {
				p.Data[i] /= float(math.Sqrt(float64(in)))
			}
		}
		return l
	}
	return &gatedMLP{GateProj: linear(hidden, width), UpProj: linear(hidden, width), DownProj: linear(width, hidden), Act: act}
}

// gates are the activations of gated layers, with a bound of their slopes.
var gates = map[Activation]struct {
	f     func(float64) float64
	slope float64
}{
	SiLU: {func(x float64) float64 { return x / (1 + math.Exp(-x)) }, 1.1},
	GELU: {func(x float64) float64 { return x * math.Erfc(-x/math.Sqrt2) / 2 }, 1.13},
}

func TestGatedMLPIsItsDefinition(t *testing.T) {
	t.Run(check.Precision, func(t *testing.T) { testGatedMLP(t, check.Pick(0x1p-24, 0x1p-53)) })
}

func testGatedMLP(t *testing.T, unit float64) {
	const width, hidden = 21, 35
	for act, gate := range gates {
		s := &source{key: rng.New(41)}
		m := gated(s, width, hidden, act)
		for _, rows := range []int{1, 5, rowTile + 3} {
			x, base, y := matrix(s, rows, width), matrix(s, rows, width), matrix(s, rows, width)
			if err := m.Forward(y, base, x, Scope{}, m.NewTrace(), false); err != nil {
				t.Fatal(err)
			}
			// product returns a sum of n products and a bias, and what it errs by: n+2
			// roundings of the sum of its sizes, beside the errors of x.
			product := func(l *Linear, o int, x, err []float64) (sum, off float64) {
				sum, size := float64(l.B.Data[o]), math.Abs(float64(l.B.Data[o]))
				for j, v := range x {
					w := float64(l.W.Data[o*len(x)+j])
					sum, size, off = sum+w*v, size+math.Abs(w*v), off+math.Abs(w)*err[j]
				}
				return sum, off + float64(len(x)+2)*unit*size
			}
			for i := range rows {
				in := make([]float64, width)
				for j, v := range x.Row(i) {
					in[j] = float64(v)
				}
				h, herr := make([]float64, hidden), make([]float64, hidden)
				for j := range h {
					g, goff := product(&m.GateProj, j, in, make([]float64, width))
					u, uoff := product(&m.UpProj, j, in, make([]float64, width))
					f := gate.f(g)
					// An activation errs by at most 7 units in the last place, which are 14
					// roundings, and the product by one.
					foff := gate.slope*goff + 14*unit*math.Abs(f)
					h[j], herr[j] = f*u, foff*math.Abs(u)+(math.Abs(f)+foff)*uoff+unit*math.Abs(f*u)
				}
				for j, got := range y.Row(i) {
					sum, off := product(&m.DownProj, j, h, herr)
					want := float64(base.Row(i)[j]) + sum
					off += 2 * unit * (math.Abs(want) + math.Abs(sum))
					if d := math.Abs(float64(got) - want); !(d <= off) {
						t.Fatalf("activation %d, row %d of %d: column %d is %v, want %v within %.3g", act, i, rows, j, got, want, off)
					}
				}
			}
		}
	}
}

// SiLU of a GatedMLP is what the products are followed by: its share of a pass.
func BenchmarkSwiGLU(b *testing.B) {
	for _, width := range []int{128, 512} {
		for act, name := range map[Activation]string{SiLU: "swiglu", GELU: "geglu", ReLU: "reglu"} {
			b.Run(fmt.Sprintf("width=%d/%s", width, name), func(b *testing.B) {
				s := &source{key: rng.New(43)}
				m := gated(s, width, 8*width/3, act)
				x, y, tr := matrix(s, 1024, width), tensor.NewMat(1024, width), m.NewTrace()
				for b.Loop() {
					m.Forward(y, y, x, Scope{}, tr, true)
				}
			})
		}
	}
}

// Rows, threads and packed weights do not change bits.
func TestGatedMLPOfARowIgnoresOtherRowsAndThreads(t *testing.T) {
	defer par.SetThreads(0)
	const width, hidden, rows = 97, 300, 3*rowTile + 5
	for act := range gates {
		s := &source{key: rng.New(42)}
		m := gated(s, width, hidden, act)
		x, dy := matrix(s, rows, width), matrix(s, rows, width)
		pass := func(threads int) [][]float {
			par.SetThreads(threads)
			weights := []*param.Param{m.GateProj.W, m.GateProj.B, m.UpProj.W, m.UpProj.B, m.DownProj.W, m.DownProj.B}
			for _, p := range weights {
				clear(p.Grad)
			}
			y, dx, tr := tensor.NewMat(rows, width), tensor.NewMat(rows, width), m.NewTrace()
			m.Forward(y, y, x, Scope{}, tr, true)
			m.Backward(dx, dy, x, tr, nil)
			out := [][]float{y.Data, dx.Data}
			for _, p := range weights {
				out = append(out, slices.Clone(p.Grad))
			}
			return out
		}
		one, three := pass(1), pass(3)
		for i := range one {
			if !slices.Equal(one[i], three[i]) {
				t.Errorf("activation %d: result %d differs between one and three threads", act, i)
			}
		}
		for _, n := range []int{1, 2, GEMVRows, GEMVRows + 1, 30, rowTile + 9} {
			frozen := m.Freeze(n)
			for way, step := range []Stepper{m, frozen} {
				y := tensor.NewMat(n, width)
				if err := step.Step(y, x.Slice(0, n), nil, Scope{}, m.NewTrace()); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(y.Data, one[0][:n*width]) {
					t.Errorf("activation %d, way %d: the first %d rows differ by themselves", act, way, n)
				}
			}
		}
	}
}
