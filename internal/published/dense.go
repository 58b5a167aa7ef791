package published

import (
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
)

// dense is a linear layer after a pooling: act(W·v + b), and in some folders v or R·v added.
type dense struct {
	in, out    int
	weight     []float32 // [out,in]
	bias       []float32 // [out]; nil: none
	residual   []float32 // [out,in]; nil: the vector itself, where isResidual
	isResidual bool
	activate   func(x float64) float64
}

// denseActivations are the activations of Dense modules, by the ends of their names below torch.nn.
var denseActivations = map[string]func(x float64) float64{
	"Identity": func(x float64) float64 { return x },
	"Tanh":     math.Tanh,
	"ReLU":     func(x float64) float64 { return max(x, 0) },
	"Sigmoid":  func(x float64) float64 { return 1 / (1 + math.Exp(-x)) },
	"GELU":     func(x float64) float64 { return x / 2 * math.Erfc(-x/math.Sqrt2) },
	"SiLU":     func(x float64) float64 { return x / (1 + math.Exp(-x)) },
}

// readDense reads the module of the folder path of dir. width is the width of the vector before it;
// 0: it is not known. readDense returns an error if a file is missing or malformed, or does not agree
// with the width.
func readDense(dir, path string, width int) (*dense, error) {
	name := filepath.Join(path, configFile)
	text, err := readSmall(dir, name)
	if err != nil {
		return nil, err
	}
	if text == nil {
		return nil, fmt.Errorf("%s: is missing, a Dense module needs it: %w", name, fs.ErrNotExist)
	}
	f, err := parseFields(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	d := &dense{in: f.count("in_features", 0), out: f.count("out_features", 0)}
	if width > 0 && d.in != width {
		f.fail("in_features", "is %d, the vector before has %d numbers", d.in, width)
	}
	hasBias := f.flag("bias", true)
	d.isResidual = f.flag("use_residual", false)
	d.activate = f.denseActivation("activation_function")
	f.needs("module_input_name", `"sentence_embedding"`)
	f.needs("module_output_name", `"sentence_embedding"`)
	if err := f.finishFile(denseFile); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	s, err := openSource(filepath.Join(dir, path))
	if err != nil {
		return nil, err
	}
	defer s.close()
	tensors := []struct {
		name  string
		shape []int
		data  *[]float32
	}{{"linear.weight", []int{d.out, d.in}, &d.weight}}
	if hasBias {
		tensors = append(tensors, tensors[0])
		tensors[1].name, tensors[1].shape, tensors[1].data = "linear.bias", []int{d.out}, &d.bias
	}
	if d.isResidual && d.in != d.out {
		x := tensors[0]
		x.name, x.data = "residual.weight", &d.residual
		tensors = append(tensors, x)
	}
	for _, x := range tensors {
		if _, has := s.index[x.name]; !has {
			return nil, fmt.Errorf("%s: %s: is missing", filepath.Join(dir, path), x.name)
		}
		_, shape, err := s.header(x.name)
		if err == nil && !slices.Equal(shape, x.shape) {
			err = fmt.Errorf("%s: shape is %v, %s needs %v", x.name, shape, name, x.shape)
		}
		if err == nil {
			err = s.visit(x.name, func(_ int, part []float32) error {
				*x.data = append(*x.data, part...)
				return nil
			})
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(dir, path), err)
		}
	}
	return d, nil
}

// denseActivation returns the activation of a name below torch.nn; without the member tanh, and for
// null none.
func (f *fields) denseActivation(name string) func(x float64) float64 {
	if _, given := f.values[name]; given && !f.has(name) {
		return denseActivations["Identity"]
	}
	const byDefault = "torch.nn.modules.activation.Tanh"
	class := f.text(name, byDefault)
	for end, act := range denseActivations {
		if class == "torch.nn.modules.activation."+end || class == "torch.nn.modules.linear."+end || class == "torch.nn."+end {
			return act
		}
	}
	f.fail(name, "is %s, supported are Identity, Tanh, ReLU, Sigmoid, GELU and SiLU of torch.nn", shorten(f.values[name]))
	return nil
}

// apply returns the vector of the layer for v [in].
func (d *dense) apply(v []float32) []float32 {
	y := make([]float32, d.out)
	for i := range y {
		var sum, beside float64
		if d.bias != nil {
			sum = float64(d.bias[i])
		}
		for j, w := range d.weight[i*d.in:][:d.in] {
			sum += float64(w) * float64(v[j])
		}
		switch {
		case d.residual != nil:
			for j, w := range d.residual[i*d.in:][:d.in] {
				beside += float64(w) * float64(v[j])
			}
		case d.isResidual:
			beside = float64(v[i])
		}
		y[i] = float32(d.activate(sum) + beside)
	}
	return y
}
