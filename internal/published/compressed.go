package published

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/tensor"
)

// compressedParts returns the parts of a weight that a model holds in fewer bits; nil: it does not.
func compressedParts(m *model.Model, w *weight) []*nn.Compressed {
	if len(w.parts) == 0 {
		return nil
	}
	list := make([]*nn.Compressed, len(w.parts))
	for i, name := range w.parts {
		if list[i] = m.Compressed(name); list[i] == nil {
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
	if x.dtype == array.I1 {
		want := []int{x.shape[0], 1}
		if w.transposed {
			want = []int{1, x.shape[1]}
		}
		name := s.scales[x.name]
		if _, sizes, err := s.header(name); err != nil || !slices.Equal(sizes, want) {
			return fmt.Errorf("%s: shape is %v, the weights need %v", name, sizes, want)
		}
	}
	out, in := to[0].Size()
	if len(to) == 1 && !w.transposed {
		a, err := s.open[s.index[x.name]].OpenStored(x.name)
		if err != nil {
			return err
		}
		r := &rowReader{a: a, to: to[0], halves: a.DType == array.BF16, in: in}
		if a.DType == array.I1 {
			if r.scales, err = s.readScales(x.name); err != nil {
				return err
			}
		}
		r.rows = max(min(readElements/max(in, 1), rowsRead)/rowsUnit, 1) * rowsUnit
		par.Run((out+r.rows-1)/r.rows, 1, readWork*float64(out)*float64(in), rowReading{r})
		return r.err
	}
	if m.body.Precision() == nn.Int8 && x.dtype == array.I1 {
		return s.readByteParts(w, x.name, to)
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
	// rowsRead is how many rows of a tensor are read at a time, if they are short, and rowsUnit of how many
	// it is a multiple.
	rowsRead = 64
	rowsUnit = 32
	readWork = 16 // the arithmetic that reading an element is worth
)

// rowReader reads rows of a tensor, which are outputs of a layer.
type rowReader struct {
	a        *array.StoredArray
	to       *nn.Compressed
	halves   bool // the elements have 16 bits, which are kept
	in, rows int
	scales   []float32 // of the rows of integers; nil: the elements are numbers

	mu  sync.Mutex
	err error // the first
}

type rowReading struct{ *rowReader }

func (r *rowReading) RunRange(i0, i1 int) {
	ar := arena.Acquire()
	defer ar.Release()
	var halves []uint16
	var floats []float32
	if r.halves {
		halves = arena.Take[uint16](ar, r.rows*r.in)
	} else {
		floats = arena.Take[float32](ar, r.rows*r.in)
	}
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
		var bad error
		err := array.VisitHalves(r.a, halves[:n], int64(at), func(x []uint16) {
			if r.to.SetHalves(i, x) {
				return
			}
			k := max(0, slices.IndexFunc(x, func(v uint16) bool { return v&0x7f80 == 0x7f80 })) // others may write the file
			bad = notFinite(r.a.Name, at+k, tensor.BFloat16(x[k]))
		})
		return cmp.Or(err, bad)
	}
	if r.scales != nil {
		return r.readBytes(i, at, floats[:n])
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

// readBytes reads rows of integers, which become numbers in x unless they stay.
func (r *rowReader) readBytes(i, at int, x []float32) error {
	ar := arena.Acquire()
	defer ar.Release()
	b := arena.Take[int8](ar, len(x))
	if err := readIntegers(r.a, b, at); err != nil {
		return err
	}
	for ; len(b) > 0; i, b, x = i+1, b[r.in:], x[r.in:] {
		if r.to.Precision() == nn.Int8 {
			r.to.SetBytes(i, b[:r.in], r.scales[i])
			continue
		}
		for k, v := range b[:r.in] {
			x[k] = float32(v) * r.scales[i]
		}
		r.to.Set(i, x[:r.in])
	}
	return nil
}

// scaleSuffix ends the name of the scales of a tensor of I8: [rows,1], or [1,columns].
const scaleSuffix = "_scale"

// findScales takes the scales of tensors of I8 out of the names. It returns an error if a tensor of I8
// has none that fit.
func (s *source) findScales() error {
	s.scales = map[string]string{}
	isScale := map[string]bool{}
	for _, name := range s.names {
		dtype, shape, err := s.header(name)
		if err != nil || dtype != array.I1 {
			continue // match tells of the error
		}
		scale := name + scaleSuffix
		if _, has := s.index[scale]; !has {
			return fmt.Errorf("%s: has dtype I8 and no scales %s", infile.Shorten(name), infile.Shorten(scale))
		}
		kind, sizes, err := s.header(scale)
		if err != nil {
			return err
		}
		if kind != array.F4 || len(shape) != 2 || len(sizes) != 2 || !slices.Equal(sizes, []int{shape[0], 1}) && !slices.Equal(sizes, []int{1, shape[1]}) {
			return fmt.Errorf("%s: is %v %v, float32 for each row or column of %v is needed", infile.Shorten(scale), kind, sizes, shape)
		}
		s.scales[name], isScale[scale] = scale, true
	}
	s.names = slices.DeleteFunc(s.names, func(name string) bool { return isScale[name] })
	return nil
}

// readScales returns the scales of a tensor of I8. It returns an error if one is not finite.
func (s *source) readScales(name string) ([]float32, error) {
	a, err := s.open[s.index[s.scales[name]]].ReadArray(s.scales[name])
	if err != nil {
		return nil, err
	}
	x, err := a.Float32()
	if err != nil {
		return nil, err
	}
	for i, v := range x {
		if y := v * 127; y-y != 0 {
			return nil, fmt.Errorf("%s: element %d is %v, whose product with 127 is not finite", a.Name, i, v)
		}
	}
	return x, nil
}

// readNumbers reads elements of a tensor, from element at on. Those of I8 are multiplied by their
// scales.
func (s *source) readNumbers(a *array.StoredArray, x []float32, at int) error {
	if a.DType != array.I1 {
		return array.ReadFloats(a, x, int64(at))
	}
	if s.scaled != a.Name {
		scales, err := s.readScales(a.Name)
		if err != nil {
			return err
		}
		s.scaled, s.scale = a.Name, scales
	}
	b := make([]int8, len(x))
	if err := readIntegers(a, b, at); err != nil {
		return err
	}
	_, shape, err := s.header(s.scales[a.Name])
	if err != nil {
		return err
	}
	byRow := slices.Equal(shape, []int{a.Shape[0], 1}) // else a scale for each column
	for i, v := range b {
		row := (at + i) / a.Shape[1]
		if !byRow {
			row = (at + i) % a.Shape[1]
		}
		x[i] = float32(v) * s.scale[row]
	}
	return nil
}

// readByteParts sets parts in 8 bits to a tensor of I8, which is whole in memory.
func (s *source) readByteParts(w *weight, name string, to []*nn.Compressed) error {
	scales, err := s.readScales(name)
	if err != nil {
		return err
	}
	a, err := s.open[s.index[name]].OpenStored(name)
	if err != nil {
		return err
	}
	b := make([]int8, tensor.Size(w.shape...))
	if err := readIntegers(a, b, 0); err != nil {
		return err
	}
	out, in := to[0].Size()
	parts := make([][]int8, len(to))
	for i := range parts {
		parts[i] = make([]int8, out*in)
	}
	moveElements(w, b, 0, parts, false)
	for row := range len(scales) {
		part, at, _ := w.locate(row)
		to[part].SetBytes(at, parts[part][at*in:][:in], scales[row])
	}
	return nil
}

// readIntegers reads elements of a tensor of I8. It returns an error for -128, which no weight is.
func readIntegers(a *array.StoredArray, b []int8, at int) error {
	if err := array.ReadBytes(a, b, int64(at)); err != nil {
		return err
	}
	if i := slices.Index(b, -128); i >= 0 {
		return fmt.Errorf("%s: element %d is -128, from -127 to 127 is needed", a.Name, at+i)
	}
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
		if err := s.readNumbers(a, buffer[:len(x)], start); err != nil {
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

// numbersTensor is a tensor of numbers to write. Beside weights of 16 bits it has 16 as well where no
// number needs more.
func numbersTensor(name string, shape []int, p nn.Precision, get func() ([]float32, error)) fileTensor {
	x := fileTensor{name, array.F4, shape, func() (*array.Array, error) {
		data, err := get()
		if err != nil {
			return nil, err
		}
		return array.New(name, data, shape...)
	}}
	if p != nn.BFloat16 {
		return x
	}
	data, err := get()
	for _, v := range data {
		if math.Float32bits(v)&0xffff != 0 {
			return x
		}
	}
	if err != nil {
		return x // get will tell
	}
	x.dtype = array.BF16
	x.get = func() (*array.Array, error) {
		data, err := get()
		if err != nil {
			return nil, err
		}
		bits := make([]uint16, len(data))
		for i, v := range data {
			bits[i] = uint16(math.Float32bits(v) >> 16)
		}
		return array.NewBF16(name, bits, shape...)
	}
	return x
}

// compressedTensors are the tensors to write of a weight in fewer bits: one, or one of integers and one
// of their scales.
func compressedTensors(name string, w *weight, parts []*nn.Compressed) []fileTensor {
	_, in := parts[0].Size()
	all := 0 // outputs of all parts
	for _, p := range parts {
		out, _ := p.Size()
		all += out
	}
	if parts[0].Precision() == nn.BFloat16 {
		return []fileTensor{{name, array.BF16, w.shape, func() (*array.Array, error) {
			from, x := make([][]uint16, len(parts)), make([]uint16, all*in)
			for i, p := range parts {
				out, _ := p.Size()
				from[i] = make([]uint16, out*in)
				for k := range out {
					p.Halves(from[i][k*in:][:in], k)
				}
			}
			moveElements(w, x, 0, from, true)
			return array.NewBF16(name, x, w.shape...)
		}}}
	}
	bytes := fileTensor{name, array.I1, w.shape, func() (*array.Array, error) {
		from, x := make([][]int8, len(parts)), make([]int8, all*in)
		for i, p := range parts {
			out, _ := p.Size()
			from[i] = make([]int8, out*in)
			for k := range out {
				p.Bytes(from[i][k*in:][:in], k)
			}
		}
		moveElements(w, x, 0, from, true)
		return array.New(name, x, w.shape...)
	}}
	sizes := []int{w.shape[0], 1}
	if w.transposed {
		sizes = []int{1, w.shape[1]}
	}
	scales := fileTensor{name + scaleSuffix, array.F4, sizes, func() (*array.Array, error) {
		x, row := make([]float32, all), make([]int8, in)
		for i := range x {
			part, at, _ := w.locate(i)
			x[i] = parts[part].Bytes(row, at)
		}
		return array.New(name+scaleSuffix, x, sizes...)
	}}
	return []fileTensor{bytes, scales}
}

// quantizationField is the member of config.json that says in which integers the weights are.
const quantizationField = "quantization_config"

// checkQuantization records an error unless the weights are numbers, or the integers that Save writes.
func checkQuantization(f *fields) {
	q := f.object(quantizationField)
	if q == nil {
		return
	}
	method, bits := q.text("quant_method", ""), q.count("bits", 8)
	switch {
	case q.err != nil:
		f.fail(quantizationField, "%v", q.err)
	case method != "farfield":
		f.fail(quantizationField, "quant_method is %q, whose weights are not read; take the folder without it, and --precision int8", infile.Shorten(method))
	case bits != 8:
		f.fail(quantizationField, "bits is %d, 8 is read", bits)
	default:
		if err := q.finishAll(); err != nil {
			f.fail(quantizationField, "%v", err)
		}
	}
}
