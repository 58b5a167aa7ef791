package train

import (
	"fmt"
	"io"
	"slices"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/safetensors"
	"github.com/farfield-ml/farfield/optim"
	"github.com/farfield-ml/farfield/param"
)

// Prefixes of tensor names in optim.safetensors.
const (
	firstMoment  = "m."
	secondMoment = "v."
)

// writeOptim writes the moments of every weight.
func writeOptim(path string, set *param.Set, a *optim.AdamW) error {
	var list []*array.Array
	for i, p := range set.All() {
		moment := a.Moments()[i]
		m, err := array.New(firstMoment+p.Name, moment.M, p.Shape...)
		if err != nil {
			return err
		}
		v, err := array.New(secondMoment+p.Name, moment.V, p.Shape...)
		if err != nil {
			return err
		}
		list = append(list, m, v)
	}
	return atomicfile.Write(path, func(w io.Writer) error { return safetensors.Write(w, list, nil) })
}

// readOptim restores a from the file of writeOptim, after a number of steps. It returns
// an error if a moment is missing or has another shape than its weight.
func readOptim(path string, set *param.Set, a *optim.AdamW, steps int) error {
	f, err := safetensors.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for i, p := range set.All() {
		moment := a.Moments()[i]
		if err := readTensor(f, firstMoment+p.Name, p.Shape, moment.M); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := readTensor(f, secondMoment+p.Name, p.Shape, moment.V); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return a.Restore(int64(steps))
}

// readTensor overwrites dst with the tensor name. It returns an error if its shape is not
// shape.
func readTensor(f *safetensors.File, name string, shape []int, dst []float32) error {
	a, err := f.ReadArray(name)
	if err != nil {
		return err
	}
	if !slices.Equal(a.Shape, shape) {
		return fmt.Errorf("%s: shape is %v, the weight's is %v", name, a.Shape, shape)
	}
	data, err := a.Float32()
	if err != nil {
		return err
	}
	copy(dst, data)
	return nil
}
