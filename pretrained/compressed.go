package pretrained

import (
	"fmt"
	"slices"
	"sync"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/tensor"
)

// compressedParts returns the parts of a weight that the model holds in fewer bits; nil: it does not.
func (m *Model) compressedParts(w *weight) []*nn.Compressed {
	list := make([]*nn.Compressed, len(w.parts))
	for i, name := range w.parts {
		if list[i] = m.body.Compressed(name); list[i] == nil {
			return nil
		}
	}
	return list
}

// readCompressed sets the parts of a weight to a tensor of the files. Rows that are the outputs of
// one part are read some at a time, by all threads. Another tensor is whole in memory.
func (m *Model) readCompressed(s *source, x *stored, to []*nn.Compressed) error {
	w := x.weight
	if _, err := w.params(m.body); err != nil {
		return err
	}
	out, in := to[0].Size()
	if len(to) == 1 && !w.transposed {
		a, err := s.open[s.index[x.name]].OpenStored(x.name)
		if err != nil {
			return err
		}
		r := &rowReader{a: a, to: to[0], halves: a.DType == array.BF16, in: in}
		r.rows = min(max(readElements/max(in, 1), 1), rowsRead)
		par.Run((out+r.rows-1)/r.rows, 1, readWork*float64(out)*float64(in), rowReading{r})
		return r.err
	}
	parts := make([][]float32, len(to))
	for i := range parts {
		out, in := to[i].Size()
		parts[i] = make([]float32, out*in)
	}
	err := s.visit(x.name, func(start int, data []float32) error {
		w.move(data, start, parts, false)
		return nil
	})
	if err != nil {
		return err
	}
	for i, p := range parts {
		to[i].Set(0, p)
	}
	return nil
}

const (
	// rowsRead is how many rows of a tensor are read at a time, if they are short.
	rowsRead = 64
	readWork = 16 // the arithmetic that reading an element is worth
)

// rowReader reads rows of a tensor, which are outputs of a layer.
type rowReader struct {
	a        *array.StoredArray
	to       *nn.Compressed
	halves   bool // the elements have 16 bits, which are kept
	in, rows int

	mu  sync.Mutex
	err error // the first
}

type rowReading struct{ *rowReader }

func (r *rowReading) RunRange(i0, i1 int) {
	ar := arena.Acquire()
	defer ar.Release()
	halves, floats := arena.Take[uint16](ar, r.rows*r.in), arena.Take[float32](ar, r.rows*r.in)
	for i := i0; i < i1; i++ {
		if err := r.read(i*r.rows, halves, floats); err != nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.err == nil {
				r.err = err
			}
			return
		}
	}
}

// read reads the rows from i on by one of the buffers. It returns an error where source.visit does.
func (r *rowReader) read(i int, halves []uint16, floats []float32) error {
	out, _ := r.to.Size()
	n, at := min(r.rows, out-i)*r.in, i*r.in
	if r.halves {
		x := halves[:n]
		if err := array.ReadHalves(r.a, x, int64(at)); err != nil {
			return err
		}
		for k, v := range x {
			if v&0x7f80 == 0x7f80 {
				return notFinite(r.a.Name, at+k, tensor.BFloat16(v))
			}
		}
		r.to.SetHalves(i, x)
		return nil
	}
	x := floats[:n]
	if err := array.ReadFloats(r.a, x, int64(at)); err != nil {
		return err
	}
	if err := checkFinite(r.a.Name, at, x); err != nil {
		return err
	}
	r.to.Set(i, x)
	return nil
}

// compare returns an error if two tensors differ.
func (s *source) compare(name, other string) error {
	a, err := s.open[s.index[other]].OpenStored(other)
	if err != nil {
		return err
	}
	buffer := make([]float32, readElements)
	return s.visit(name, func(start int, x []float32) error {
		if err := array.ReadFloats(a, buffer[:len(x)], int64(start)); err != nil {
			return err
		}
		if !slices.Equal(buffer[:len(x)], x) {
			return differs(name)
		}
		return nil
	})
}

func differs(name string) error {
	return fmt.Errorf("%s: differs from the tensor that config.json ties it to", name)
}

func notFinite(name string, at int, x float32) error {
	return fmt.Errorf("%s: element %d is %v", name, at, x)
}

// checkFinite returns an error if one of the elements x of a tensor, from element at on, is not
// finite.
func checkFinite(name string, at int, x []float32) error {
	for i, v := range x {
		if v-v != 0 {
			return notFinite(name, at+i, v)
		}
	}
	return nil
}
