package train

import (
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/safetensors"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
)

// adapters are low-rank additions to the matrices of a model (Hu et al. 2021, arXiv 2106.09685): W
// = W₀ + s·B·A. The model always holds the sum W, so passes and checkpoints work as for any other
// model. The gradients of A and B follow from the gradient of W. Embeddings, gains and biases are
// not trained; the head is trained in full.
type adapters struct {
	list    []*adapter
	trained *param.Set // A and B of all adapters, and the head
}

// adapter is the addition to one matrix [out,in].
type adapter struct {
	weight           *param.Param
	base             []float32    // W₀ [out,in]
	downProj, upProj *param.Param // A [rank,in] and B [out,rank]
	rank             int
}

// adapterScale is s. It keeps the learning rate independent of the rank.
const adapterScale = 2

// Suffixes of the names of A, B and W₀.
const (
	downSuffix = ".adapter_down"
	upSuffix   = ".adapter_up"
	baseSuffix = ".adapter_base"
)

// newAdapters returns adapters of m that add nothing yet: A is normal with deviation
// 1/√in, B is 0. It returns an error if the rank is larger than the smallest matrix.
func newAdapters(m *model.Model, rank int, key rng.Key) (*adapters, error) {
	a := &adapters{trained: &param.Set{}}
	for i, p := range m.Params().All() {
		switch {
		case strings.HasPrefix(p.Name, "head"):
			a.trained.Add(p)
			continue
		case len(p.Shape) != 2 || !p.Decay || !strings.Contains(p.Name, "layers."):
			continue
		}
		out, in := p.Shape[0], p.Shape[1]
		if rank > min(out, in) {
			return nil, fieldErrorf("{Adapters}: rank %d, but %s is [%d,%d]", rank, p.Name, out, in)
		}
		d := &adapter{weight: p, base: slices.Clone(p.Data), rank: rank}
		d.downProj = a.trained.New(p.Name+downSuffix, true, rank, in)
		d.upProj = a.trained.New(p.Name+upSuffix, true, out, rank)
		own, scale := key.Fold(uint64(i)), 1/math.Sqrt(float64(in))
		for j := range d.downProj.Data {
			d.downProj.Data[j] = float32(scale * own.Normal(uint64(j)))
		}
		a.list = append(a.list, d)
	}
	if len(a.list) == 0 {
		return nil, fieldErrorf("{Adapters}: rank %d, but the model has no matrices in layers", rank)
	}
	return a, nil
}

// apply sets the weights of the model to W₀ + s·B·A.
func (a *adapters) apply() {
	for _, d := range a.list {
		par.Run(d.weight.Shape[0], 1, 2*float64(d.rank*len(d.base)), sumRows{d})
	}
}

// sumRows sets rows of a weight.
type sumRows struct{ *adapter }

func (f *sumRows) RunRange(lo, hi int) {
	k, in := kernel.Active[float32](), f.weight.Shape[1]
	for i := lo; i < hi; i++ {
		row := f.weight.Data[i*in:][:in]
		copy(row, f.base[i*in:][:in])
		for j, b := range f.upProj.Data[i*f.rank:][:f.rank] {
			k.Axpy(row, adapterScale*b, f.downProj.Data[j*in:][:in])
		}
	}
}

// setGradients sets the gradients of A and B from the gradients of the weights:
// dB = s·dW·Aᵀ and dA = s·Bᵀ·dW.
func (a *adapters) setGradients() {
	for _, d := range a.list {
		work := 2 * float64(d.rank*len(d.base))
		par.Run(d.weight.Shape[0], 1, work, upGrads{d})
		par.Run(d.rank, 1, work, downGrads{d})
	}
}

// upGrads sets rows of dB.
type upGrads struct{ *adapter }

func (f *upGrads) RunRange(lo, hi int) {
	k, in := kernel.Active[float32](), f.weight.Shape[1]
	for i := lo; i < hi; i++ {
		row := f.weight.Grad[i*in:][:in]
		for j := range f.rank {
			f.upProj.Grad[i*f.rank+j] = adapterScale * k.Dot(row, f.downProj.Data[j*in:][:in])
		}
	}
}

// downGrads sets rows of dA.
type downGrads struct{ *adapter }

func (f *downGrads) RunRange(lo, hi int) {
	k, in := kernel.Active[float32](), f.weight.Shape[1]
	for j := lo; j < hi; j++ {
		row := f.downProj.Grad[j*in:][:in]
		clear(row)
		for i := range f.weight.Shape[0] {
			k.Axpy(row, adapterScale*f.upProj.Data[i*f.rank+j], f.weight.Grad[i*in:][:in])
		}
	}
}

// tensors returns A, B and W₀ of all adapters, named.
func (a *adapters) tensors() (list []*param.Param) {
	if a == nil {
		return nil
	}
	for _, d := range a.list {
		base := &param.Param{Name: d.weight.Name + baseSuffix, Shape: d.weight.Shape, Data: d.base}
		list = append(list, base, d.downProj, d.upProj)
	}
	return list
}

// adaptersFile is the file of A, B and W₀ in a checkpoint.
const adaptersFile = "adapters.safetensors"

// save writes A, B and W₀ to the folder dir; nothing without adapters.
func (a *adapters) save(dir string) error {
	if a == nil {
		return nil
	}
	var list []*array.Array
	for _, p := range a.tensors() {
		x, err := array.New(p.Name, p.Data, p.Shape...)
		if err != nil {
			return err
		}
		list = append(list, x)
	}
	return atomicfile.Write(filepath.Join(dir, adaptersFile), func(w io.Writer) error { return safetensors.Write(w, list, nil) })
}

// load reads the file of save from the folder dir; nothing without adapters. It returns
// an error if a matrix is missing or has another shape.
func (a *adapters) load(dir string) error {
	if a == nil {
		return nil
	}
	path := filepath.Join(dir, adaptersFile)
	f, err := safetensors.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, p := range a.tensors() {
		if err := readTensor(f, p.Name, p.Shape, p.Data); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}
