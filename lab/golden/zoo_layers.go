package golden

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// layerFile is a file of a module that layers of package nn are made of.
type layerFile struct {
	numbers map[string][]float64
	shapes  map[string][]int
	heads   int
	lengths []int64 // of the context; nil: all
}

// computeLayers reads a module; compute gives all that the file has of outputs and
// gradients.
func computeLayers(f *file, t relative, name string, outputs []string, compute func(m *layerFile) (map[string][]float64, error)) *problem {
	r := &reader{f: f}
	m := &layerFile{numbers: map[string][]float64{}, shapes: map[string][]int{}, heads: r.integer("heads")}
	p := &problem{name: f.stem(), mechanism: name, tolerance: t, do: r.heads("go"), forms: []string{"direct"}}
	for _, name := range f.sortedNames() {
		if shape := r.shape(name); len(shape) > 0 && name != "lengths" {
			m.numbers[name], m.shapes[name] = r.floats(name), shape
		}
		if strings.HasPrefix(name, "d_") {
			p.result(r, "d", name)
		}
	}
	if f.hasArray("lengths") {
		m.lengths = r.ints("lengths")
	}
	for _, name := range outputs {
		p.result(r, "o", name)
	}
	if x := m.shapes["x"]; r.err == nil && (len(x) != 3 || m.heads < 1 || x[2]%m.heads != 0) {
		r.err = fmt.Errorf("x: has shape %v, which %d heads do not fit", x, m.heads)
	}
	p.compute = func() (map[string][]float64, error) { return compute(m) }
	return p.finish(r)
}

// layerRows returns the rows of an array whose last dimension is their width.
func layerRows(m *layerFile, name string, width int) (tensor.Mat, error) {
	x := m.numbers[name]
	if shape := m.shapes[name]; len(shape) != 3 || shape[0] != m.shapes["x"][0] || shape[2] != width {
		return tensor.Mat{}, fmt.Errorf("%s: has shape %v, x has %v", name, shape, m.shapes["x"])
	}
	y := tensor.NewMat(len(x)/width, width)
	for i, v := range x {
		y.Data[i] = float(v)
	}
	return y, nil
}

// layerWeights are weights with the values of arrays, and the first thing that is
// wrong with one.
type layerWeights struct {
	m    *layerFile
	list []*param.Param // by the names of their arrays, which may be one
	err  error
}

// weight returns a weight of an array of that shape.
func (w *layerWeights) weight(name string, shape ...int) *param.Param {
	p := &param.Param{Name: name, Shape: shape}
	if got := w.m.shapes[name]; !slices.Equal(got, shape) {
		w.err = errors.Join(w.err, fmt.Errorf("%s: has shape %v, needs %v", name, got, shape))
		return p
	}
	x := w.m.numbers[name]
	p.Data, p.Grad = make([]float, len(x)), make([]float, len(x))
	for i, v := range x {
		p.Data[i] = float(v)
	}
	w.list = append(w.list, p)
	return p
}

// grads adds gradients to got.
func (w *layerWeights) grads(got map[string][]float64) {
	for _, p := range w.list {
		name := "d_" + p.Name
		if got[name] == nil {
			got[name] = make([]float64, len(p.Grad))
		}
		for i, g := range p.Grad {
			got[name][i] += float64(g)
		}
	}
}

// linformerModule are files of Linformer with its projections.
var linformerModule = zooGroup{name: "linformer", needs: []string{"x", "Wq", "Wk", "Wv", "Wo", "bo", "E", "F", "heads"},
	read: func(*reader, *problem) string { return "no function of q, k and v" },
	cases: func(f *file, t relative) (*problem, string) {
		return computeLayers(f, t, "linformer", []string{"out"}, func(m *layerFile) (map[string][]float64, error) {
			return linformerLayer(m)
		}), ""
	}}

// linformerLayer computes attention with the mechanism linformer.
func linformerLayer(m *layerFile) (map[string][]float64, error) {
	shape := m.shapes["x"]
	batch, tokens, width := shape[0], shape[1], shape[2]
	rank := 1
	if e := m.shapes["E"]; len(e) == 2 {
		rank = e[1]
	}
	mech, err := mechanism.New("linformer", mechanism.Options{Length: tokens, Set: map[string]string{"rank": strconv.Itoa(rank), "columns": "all"}})
	if err != nil {
		return nil, err
	}
	w := &layerWeights{m: m}
	linear := func(name string) nn.Linear { return nn.Linear{W: w.weight(name, width, width)} }
	a := &nn.Attention{Q: linear("Wq"), K: linear("Wk"), V: linear("Wv"), O: linear("Wo"), Mechanism: mech, H: m.heads, Hkv: m.heads, D: width / m.heads}
	a.O.B = w.weight("bo", width)
	for _, p := range mech.Params().All() {
		from := w.weight(p.Name, tokens, rank)
		copy(p.Data, from.Data)
		from.Grad = p.Grad
	}
	x, err := layerRows(m, "x", width)
	dy, err2 := layerRows(m, "go", width)
	if err := errors.Join(w.err, err, err2); err != nil {
		return nil, err
	}
	y, dx, tr := tensor.NewMat(x.Rows, width), tensor.NewMat(x.Rows, width), a.NewTrace()
	if err := a.Forward(y, y, x, nn.Scope{B: batch}, tr, true); err != nil {
		return nil, err
	}
	if err := a.Backward(dx, dy, x, tr, new(nn.Scratch)); err != nil {
		return nil, err
	}
	got := map[string][]float64{"out": widenRows(y.Data), "d_x": widenRows(dx.Data)}
	w.grads(got)
	return got, nil
}

// lunaLayers computes an encoder's module with packHeads packing heads. Packed tokens
// read the tokens of x, then the tokens of x read the packed result. Both are
// cross-attention by softmax, the first without a projection of its outputs.
func lunaLayers(m *layerFile, packHeads int) (map[string][]float64, error) {
	batch, width := m.shapes["x"][0], m.shapes["x"][2]
	if packHeads < 1 || width%packHeads != 0 {
		return nil, fmt.Errorf("pheads: %d, which do not divide %d", packHeads, width)
	}
	softmax, err := mechanism.New("softmax", mechanism.Options{})
	if err != nil {
		return nil, err
	}
	w := &layerWeights{m: m}
	linear := func(name string) nn.Linear {
		return nn.Linear{W: w.weight(name+"_w", width, width), B: w.weight(name+"_b", width)}
	}
	packKey, packValue, key, value := "pk_proj", "pv_proj", "k_proj", "v_proj"
	if m.shapes["c_proj_w"] != nil { // one map is both
		packKey, packValue, key, value = "pc_proj", "pc_proj", "c_proj", "c_proj"
	}
	same := &param.Param{Shape: []int{width, width}, Data: make([]float, width*width), Grad: make([]float, width*width)}
	for i := range width {
		same.Data[i*width+i] = 1
	}
	pack := &nn.Attention{
		Q: linear("pq_proj"), K: linear(packKey), V: linear(packValue), O: nn.Linear{W: same},
		Mechanism: softmax, H: packHeads, Hkv: packHeads, D: width / packHeads,
	}
	unpack := &nn.Attention{
		Q: linear("q_proj"), K: linear(key), V: linear(value), O: linear("out_proj"),
		Mechanism: softmax, H: m.heads, Hkv: m.heads, D: width / m.heads,
	}
	x, err1 := layerRows(m, "x", width)
	p, err2 := layerRows(m, "p", width)
	dy, err3 := layerRows(m, "go", width)
	dcontext, err4 := layerRows(m, "go_pcontext", width)
	if err := errors.Join(w.err, err1, err2, err3, err4); err != nil {
		return nil, err
	}
	like := func(x tensor.Mat) tensor.Mat { return tensor.NewMat(x.Rows, x.Cols) }
	context, y, dx, dp := like(p), like(x), like(x), like(p)
	packed, unpacked, scratch := pack.NewTrace(), unpack.NewTrace(), new(nn.Scratch)
	if err := pack.ForwardTo(context, context, p, x, nn.Scope{B: batch, KeyLens: m.lengths}, packed, true); err != nil {
		return nil, err
	}
	if err := unpack.ForwardTo(y, y, x, context, nn.Scope{B: batch}, unpacked, true); err != nil {
		return nil, err
	}
	if err := unpack.BackwardTo(dx, dcontext, dy, x, context, unpacked, scratch); err != nil {
		return nil, err
	}
	if err := pack.BackwardTo(dp, dx, dcontext, p, x, packed, scratch); err != nil {
		return nil, err
	}
	got := map[string][]float64{"out": widenRows(y.Data), "pcontext": widenRows(context.Data), "d_x": widenRows(dx.Data), "d_p": widenRows(dp.Data)}
	w.grads(got)
	return got, nil
}
