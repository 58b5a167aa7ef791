package mechanism

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// widths is a mechanism with separate parameters for each width of rows.
type widths struct {
	s   subject
	has []func() attention.Mechanism // by width, made when it is asked for

	last atomic.Int64 // width of the call before
}

func newWidths(s subject) *widths {
	w := &widths{s: s}
	w.last.Store(5) // as the law of heads has it
	for d := range 25 {
		w.has = append(w.has, sync.OnceValue(func() attention.Mechanism { return ofWidth(s, max(d, 1)) }))
	}
	return w
}

// ofWidth returns the subject for rows of width d.
func ofWidth(s subject, d int) attention.Mechanism {
	s.o.Width = d
	m, err := New(s.name, s.o)
	if err != nil {
		panic(err)
	}
	for i, p := range m.Params().All() {
		for j, x := range p.Data {
			p.Data[j] = float(float32(x) + float32(0.2*rng.New(18).Fold(uint64(i)).Normal(uint64(j))))
		}
	}
	for _, p := range m.Constants().All() {
		if s.constant != nil {
			for j, x := range s.constant(p.Name, p.Shape, d) {
				p.Data[j] = float(float32(x))
			}
		}
	}
	return m
}

func (w *widths) of(d int) attention.Mechanism { return w.has[d]() }

func (w *widths) Traits() attention.Traits { return w.of(1).Traits() }

func (w *widths) Setting() string { return w.of(1).Setting() }

// Params returns the parameters for the width of the last call.
func (w *widths) Params() *param.Set { return w.of(int(w.last.Load())).Params() }

func (w *widths) Constants() *param.Set { return nil }

func (w *widths) Forward(out tensor.Heads, c *attention.Call, keep *attention.Saved) error {
	if w.s.learns {
		w.last.Store(int64(c.Q.D))
	}
	return w.of(c.Q.D).Forward(out, c, keep)
}

func (w *widths) Backward(g *attention.Grads, dout, out tensor.Heads, c *attention.Call, keep *attention.Saved) error {
	return w.of(c.Q.D).Backward(g, dout, out, c, keep)
}

func (w *widths) NewState(s attention.Shape) (attention.State, error) {
	return w.of(s.D).NewState(s)
}

func (w *widths) RestoreState(data []byte) (st attention.State, err error) {
	for d := range w.has {
		if st, err = w.of(d).RestoreState(data); err == nil {
			return st, nil
		}
	}
	return nil, err
}

func (w *widths) Plan(s attention.Shape) attention.Plan { return w.of(s.D).Plan(s) }

func (w *widths) Weights(dst tensor.Mat, c *attention.Call, b, h, i0, i1 int) error {
	return w.of(c.Q.D).Weights(dst, c, b, h, i0, i1)
}

func (w *widths) Diagnose(c *attention.Call) ([]attention.Diagnosis, error) {
	return w.of(c.Q.D).Diagnose(c)
}

// featuresOf is the textbook of a subject's features, from the numbers that a
// mechanism for rows of a width has drawn.
type featuresOf struct {
	of    func(p numbers, d int) oracle.Features
	known map[int]oracle.Features
	draw  func(d int) numbers
}

func (f *featuresOf) at(d int) oracle.Features {
	if f.known[d] == nil {
		f.known[d] = f.of(f.draw(d), d)
	}
	return f.known[d]
}

func (f *featuresOf) Map(at oracle.Place, x []float64) []float64 { return f.at(len(x)).Map(at, x) }

func (f *featuresOf) Size(at oracle.Place, x []float64) []float64 { return f.at(len(x)).Size(at, x) }

func (f *featuresOf) Grad(at oracle.Place, x, dy, dp []float64) []float64 {
	return f.at(len(x)).Grad(at, x, dy, dp)
}

// drawnFeatures returns the subject for rows of any width, beside its textbook.
func drawnFeatures(s subject) (attention.Mechanism, *textbookOf) {
	w := newWidths(s)
	book := s.book
	book.Features = &featuresOf{of: s.features, known: map[int]oracle.Features{}, draw: func(d int) numbers {
		p := numbers{}
		readNumbers(p, w.of(d).Params())
		readNumbers(p, w.of(d).Constants())
		return p
	}}
	return w, &textbookOf{Mechanism: &book}
}

func (f *featuresOf) Learned(d int) []float64 { return f.at(d).Learned(d) }

// rowsOf cuts x into rows of width d.
func rowsOf(x []float64, d int) (rows [][]float64) {
	for i := 0; i < len(x); i += d {
		rows = append(rows, x[i:][:d])
	}
	return rows
}

// performers are the subjects of performer.
func performers() (list []subject) {
	for _, set := range []map[string]string{
		{},
		{"kernel": "hyperbolic", "features": "6", "projection": "iid", "eps": "1e-3"},
		{"kernel": "relu", "features": "7", "norms": "sqrt(D)", "feature_eps": "1e-3"},
		{"kernel": "relu", "features": "7", "form": "code"},
		{"features": "2"}, // fewer than D
		{"features": "6", "scale": "0.5"},
		{"kernel": "trigonometric"},
		{"kernel": "trigonometric", "features": "5", "projection": "iid", "eps": "1e-3"},
	} {
		label := "performer"
		for _, key := range []string{"kernel", "features", "projection", "norms", "feature_eps", "eps", "form", "scale"} {
			if v := set[key]; v != "" {
				label += fmt.Sprintf(" %s=%s", key, v)
			}
		}
		s := subject{label: label, name: "performer", o: Options{Width: streamed.d, Set: set}, book: oracle.Mechanism{Scale: 1, Coef: []float64{0, 1}}}
		if set["eps"] != "" {
			s.book.Eps = 1e-3
		}
		code := set["form"] == "code"
		if code {
			s.book.Eps = 1e-6
		}
		s.features = func(p numbers, d int) oracle.Features {
			f := &oracle.Favor{Kernel: "softmax", W: rowsOf(p["projection"], d), Root: fourthRoot(d), KeepFactor: s.book.Eps > 0, OverSum: code}
			if set["kernel"] != "" {
				f.Kernel = set["kernel"]
			}
			if set["scale"] != "" {
				f.Root = math.Sqrt(0.5)
			}
			if set["feature_eps"] != "" || code {
				f.FeatureEps = 1e-3
			}
			return f
		}
		list = append(list, s)
	}
	return list
}

func fourthRoot(d int) float64 { return math.Pow(float64(d), -0.25) }

// hedgehogs are the subjects of linear with learned features.
func hedgehogs() []subject {
	s := subject{label: "linear map=hedgehog", name: "linear", learns: true, o: Options{Width: streamed.d, Set: map[string]string{"map": "hedgehog"}},
		book: oracle.Mechanism{Scale: 1, Coef: []float64{0, 1}, Eps: 1e-6}}
	s.features = func(p numbers, d int) oracle.Features {
		all := slices.Concat(p["map.q.weight"], p["map.q.bias"], p["map.k.weight"], p["map.k.bias"])
		return &oracle.Hedgehog{P: all, Heads: len(p["map.q.bias"]) / d, D: d}
	}
	return []subject{s}
}
