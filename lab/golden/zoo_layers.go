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
func computeLayers(f *file, t relative, name string, outputs []string, compute func(m *layerFile, double bool) (map[string][]float64, error)) *problem {
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
	p.compute = func(double bool) (map[string][]float64, error) { return compute(m, double) }
	return p.finish(r)
}

// layerRows returns the rows of an array whose last dimension is their width.
func layerRows[T tensor.Float](m *layerFile, name string, width int) (tensor.Mat[T], error) {
	x := m.numbers[name]
	if shape := m.shapes[name]; len(shape) != 3 || shape[0] != m.shapes["x"][0] || shape[2] != width {
		return tensor.Mat[T]{}, fmt.Errorf("%s: has shape %v, x has %v", name, shape, m.shapes["x"])
	}
	y := tensor.NewMat[T](len(x)/width, width)
	for i, v := range x {
		y.Data[i] = T(v)
	}
	return y, nil
}

// layerWeights are weights with the values of arrays, and the first thing that is
// wrong with one.
type layerWeights[T tensor.Float] struct {
	m    *layerFile
	list []*param.Param[T] // by the names of their arrays, which may be one
	err  error
}

// weight returns a weight of an array of that shape.
func (w *layerWeights[T]) weight(name string, shape ...int) *param.Param[T] {
	p := &param.Param[T]{Name: name, Shape: shape}
	if got := w.m.shapes[name]; !slices.Equal(got, shape) {
		w.err = errors.Join(w.err, fmt.Errorf("%s: has shape %v, needs %v", name, got, shape))
		return p
	}
	x := w.m.numbers[name]
	p.Data, p.Grad = make([]T, len(x)), make([]T, len(x))
	for i, v := range x {
		p.Data[i] = T(v)
	}
	w.list = append(w.list, p)
	return p
}

// grads adds gradients to got.
func (w *layerWeights[T]) grads(got map[string][]float64) {
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
		return computeLayers(f, t, "linformer", []string{"out"}, func(m *layerFile, double bool) (map[string][]float64, error) {
			if double {
				return linformerLayer[float64](m)
			}
			return linformerLayer[float32](m)
		}), ""
	}}

// linformerLayer computes attention with the mechanism linformer.
func linformerLayer[T tensor.Float](m *layerFile) (map[string][]float64, error) {
	shape := m.shapes["x"]
	batch, tokens, width := shape[0], shape[1], shape[2]
	rank := 1
	if e := m.shapes["E"]; len(e) == 2 {
		rank = e[1]
	}
	mech, err := mechanism.New[T]("linformer", mechanism.Options{Length: tokens, Set: map[string]string{"rank": strconv.Itoa(rank), "columns": "all"}})
	if err != nil {
		return nil, err
	}
	w := &layerWeights[T]{m: m}
	linear := func(name string) nn.Linear[T] { return nn.Linear[T]{W: w.weight(name, width, width)} }
	a := &nn.Attention[T]{Q: linear("Wq"), K: linear("Wk"), V: linear("Wv"), O: linear("Wo"), Mechanism: mech, H: m.heads, Hkv: m.heads, D: width / m.heads}
	a.O.B = w.weight("bo", width)
	for _, p := range mech.Params().All() {
		from := w.weight(p.Name, tokens, rank)
		copy(p.Data, from.Data)
		from.Grad = p.Grad
	}
	x, err := layerRows[T](m, "x", width)
	dy, err2 := layerRows[T](m, "go", width)
	if err := errors.Join(w.err, err, err2); err != nil {
		return nil, err
	}
	y, dx, tr := tensor.NewMat[T](x.Rows, width), tensor.NewMat[T](x.Rows, width), a.NewTrace()
	if err := a.Forward(y, y, x, nn.Scope[T]{B: batch}, tr, true); err != nil {
		return nil, err
	}
	if err := a.Backward(dx, dy, x, tr, new(nn.Scratch[T])); err != nil {
		return nil, err
	}
	got := map[string][]float64{"out": widenRows(y.Data), "d_x": widenRows(dx.Data)}
	w.grads(got)
	return got, nil
}

// lunaLayers computes an encoder's module with packHeads packing heads. Packed tokens
// read the tokens of x, then the tokens of x read the packed result. Both are
// cross-attention by softmax, the first without a projection of its outputs.
func lunaLayers[T tensor.Float](m *layerFile, packHeads int) (map[string][]float64, error) {
	batch, width := m.shapes["x"][0], m.shapes["x"][2]
	if packHeads < 1 || width%packHeads != 0 {
		return nil, fmt.Errorf("pheads: %d, which do not divide %d", packHeads, width)
	}
	softmax, err := mechanism.New[T]("softmax", mechanism.Options{})
	if err != nil {
		return nil, err
	}
	w := &layerWeights[T]{m: m}
	linear := func(name string) nn.Linear[T] {
		return nn.Linear[T]{W: w.weight(name+"_w", width, width), B: w.weight(name+"_b", width)}
	}
	packKey, packValue, key, value := "pk_proj", "pv_proj", "k_proj", "v_proj"
	if m.shapes["c_proj_w"] != nil { // one map is both
		packKey, packValue, key, value = "pc_proj", "pc_proj", "c_proj", "c_proj"
	}
	same := &param.Param[T]{Shape: []int{width, width}, Data: make([]T, width*width), Grad: make([]T, width*width)}
	for i := range width {
		same.Data[i*width+i] = 1
	}
	pack := &nn.Attention[T]{
		Q: linear("pq_proj"), K: linear(packKey), V: linear(packValue), O: nn.Linear[T]{W: same},
		Mechanism: softmax, H: packHeads, Hkv: packHeads, D: width / packHeads,
	}
	unpack := &nn.Attention[T]{
		Q: linear("q_proj"), K: linear(key), V: linear(value), O: linear("out_proj"),
		Mechanism: softmax, H: m.heads, Hkv: m.heads, D: width / m.heads,
	}
	x, err1 := layerRows[T](m, "x", width)
	p, err2 := layerRows[T](m, "p", width)
	dy, err3 := layerRows[T](m, "go", width)
	dcontext, err4 := layerRows[T](m, "go_pcontext", width)
	if err := errors.Join(w.err, err1, err2, err3, err4); err != nil {
		return nil, err
	}
	like := func(x tensor.Mat[T]) tensor.Mat[T] { return tensor.NewMat[T](x.Rows, x.Cols) }
	context, y, dx, dp := like(p), like(x), like(x), like(p)
	packed, unpacked, scratch := pack.NewTrace(), unpack.NewTrace(), new(nn.Scratch[T])
	if err := pack.ForwardTo(context, context, p, x, nn.Scope[T]{B: batch, KeyLens: m.lengths}, packed, true); err != nil {
		return nil, err
	}
	if err := unpack.ForwardTo(y, y, x, context, nn.Scope[T]{B: batch}, unpacked, true); err != nil {
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
