package stream

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/safetensors"
	"github.com/farfield-ml/farfield/tensor"
)

// files is an open file or folder of arrays that can be read in parts.
type files interface {
	array.Source
	OpenStored(name string) (*array.StoredArray, error)
}

// arraySource reads arrays from files.
type arraySource struct {
	shape   Shape
	rank    int
	q, k, v *array.StoredArray
	g, mask *array.StoredArray // log_g and keymask; nil: none
	gRows   int                // rows of g, repeated over the key heads
	mRows   int
	ids     []comm.Field

	inputCheck
}

// notStreamed are arrays that only calls in memory support.
var notStreamed = []string{"key_lengths", "attn_keep", "cu_q", "cu_k"}

// OpenArraySource opens a source for the arrays in the safetensors file path, or in the files
// NAME.npy of the folder path: q [B,H,N,D], k [B,Hkv,M,D] and v [B,Hkv,M,Dv], where leading
// dimensions of 1 may be left out; rank is the number of dimensions of q. Two arrays are optional:
// keymask [B,M] or [M], which is 0 for masked keys, and log_g [B,Hkv,M], [Hkv,M] or [M]. The caller
// closes file after use. OpenArraySource returns an error if path cannot be read, or if an array is
// missing, has another type, or does not fit the others.
func OpenArraySource(path string) (src Source, rank int, file io.Closer, err error) {
	f, err := openFiles(path)
	if err != nil {
		return nil, 0, nil, err
	}
	a, err := newArraySource(f)
	if err != nil {
		f.Close()
		return nil, 0, nil, err
	}
	return a, a.rank, f, nil
}

// openFiles opens a safetensors file or a folder of .npy files.
func openFiles(path string) (files, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return array.OpenFolder(path)
	}
	return safetensors.Open(path)
}

func newArraySource(f files) (*arraySource, error) {
	a := &arraySource{}
	names := f.Names()
	for _, name := range notStreamed {
		if slices.Contains(names, name) {
			return nil, fmt.Errorf("%s: not defined for a stream; keymask is", name)
		}
	}
	var dims [3][4]int
	for i, x := range []struct {
		name string
		to   **array.StoredArray
	}{{"q", &a.q}, {"k", &a.k}, {"v", &a.v}} {
		if !slices.Contains(names, x.name) {
			return nil, fmt.Errorf("%s: missing; the input has %s", x.name, strings.Join(names, ", "))
		}
		s, err := f.OpenStored(x.name)
		if err != nil {
			return nil, err
		}
		rank := len(s.Shape)
		if rank < 2 || rank > 4 {
			return nil, fmt.Errorf("%s: has %d dimensions, needs (N,D), (H,N,D) or (B,H,N,D)", x.name, rank)
		}
		if i > 0 && rank != a.rank {
			return nil, fmt.Errorf("%s: has %d dimensions, q has %d", x.name, rank, a.rank)
		}
		if err := checkDType(s, array.F4, array.F8, array.F2, array.BF16); err != nil {
			return nil, err
		}
		dims[i] = [4]int{1, 1, 1, 1}
		copy(dims[i][4-rank:], s.Shape)
		*x.to, a.rank = s, rank
	}
	q, k, v := dims[0], dims[1], dims[2]
	switch {
	case k[0] != q[0]:
		return nil, fmt.Errorf("k: B is %d, q has %d", k[0], q[0])
	case k[3] != q[3]:
		return nil, fmt.Errorf("k: D is %d, q has %d", k[3], q[3])
	case v[0] != k[0]:
		return nil, fmt.Errorf("v: B is %d, k has %d", v[0], k[0])
	case v[1] != k[1]:
		return nil, fmt.Errorf("v: H is %d, k has %d", v[1], k[1])
	case v[2] != k[2]:
		return nil, fmt.Errorf("v: M is %d, k has %d", v[2], k[2])
	}
	a.shape = Shape{B: q[0], H: q[1], Hkv: k[1], N: int64(q[2]), M: int64(k[2]), D: q[3], Dv: v[3]}
	if err := a.shape.validate(); err != nil {
		return nil, err
	}
	if err := a.findMasks(f, names); err != nil {
		return nil, err
	}
	return a, a.identifyFiles()
}

// findMasks opens the optional arrays keymask and log_g.
func (a *arraySource) findMasks(f files, names []string) (err error) {
	m := int(a.shape.M)
	if slices.Contains(names, "keymask") {
		if a.mask, err = f.OpenStored("keymask"); err != nil {
			return err
		}
		if err := checkDType(a.mask, array.U1, array.Bool); err != nil {
			return err
		}
		want := []int{a.shape.B, m}
		if n := len(a.mask.Shape); n < 1 || n > 2 || !slices.Equal(a.mask.Shape, want[2-n:]) {
			return fmt.Errorf("keymask: shape is %v, needs (B,M) or (M) of k = %v", a.mask.Shape, want)
		}
		a.mRows = rowsOf(a.mask.Shape)
	}
	if slices.Contains(names, "log_g") {
		if a.g, err = f.OpenStored("log_g"); err != nil {
			return err
		}
		if err := checkDType(a.g, array.F4, array.F8, array.F2, array.BF16); err != nil {
			return err
		}
		want := []int{a.shape.B, a.shape.Hkv, m}
		if n := len(a.g.Shape); n < 1 || n > 3 || !slices.Equal(a.g.Shape, want[3-n:]) {
			return fmt.Errorf("log_g: shape is %v, needs (B,H,M), (H,M) or (M) of k = %v", a.g.Shape, want)
		}
		a.gRows = rowsOf(a.g.Shape)
	}
	return nil
}

// rowsOf returns the product of all dimensions except the last.
func rowsOf(shape []int) int { return tensor.Size(shape[:len(shape)-1]...) }

// checkDType returns an error unless the type of the array is one of types.
func checkDType(s *array.StoredArray, types ...array.DType) error {
	if slices.Contains(types, s.DType) {
		return nil
	}
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = t.String()
	}
	return fmt.Errorf("%s: dtype is %v; %s is needed", s.Name, s.DType, strings.Join(names, ", "))
}

// identifyFiles records the identity of the files.
func (a *arraySource) identifyFiles() error {
	var seen []*os.File
	for _, s := range []*array.StoredArray{a.q, a.k, a.v, a.mask, a.g} {
		if s == nil || s.File() == nil || slices.Contains(seen, s.File()) {
			continue
		}
		seen = append(seen, s.File())
		fields, err := identifyFile("file of "+s.Name, s.File())
		if err != nil {
			return err
		}
		a.ids = append(a.ids, fields...)
	}
	return nil
}

// Shape returns the shape of the arrays.
func (a *arraySource) Shape() Shape { return a.shape }

// HasDecay reports whether there is an array log_g.
func (a *arraySource) HasDecay() bool { return a.g != nil }

// IsSequential returns false, because files can be read again.
func (a *arraySource) IsSequential() bool { return false }

// IsComputed returns false: windows are read while attention is computed.
func (a *arraySource) IsComputed() bool { return false }

// Identity returns the size, time and checksum of each file.
func (a *arraySource) Identity() []comm.Field { return a.ids }

// NewWindow returns a window with room for n tokens.
func (a *arraySource) NewWindow(n int, want Role) *Window {
	s, w := &a.shape, NewWindow(a.shape, n, want, a.HasDecay())
	if a.mask != nil && want&Keys != 0 {
		w.mask = make([]bool, s.B*n)
	}
	return w
}

// FillWindow overwrites w with up to n tokens: queries from query on and keys from key on. It
// returns an error if a file cannot be read or a number is not finite.
func (a *arraySource) FillWindow(w *Window, query, key int64, n int) (int, error) {
	s := &a.shape
	for _, x := range []struct {
		name string
		from *array.StoredArray
		to   tensor.Heads
		rows int // rows of the array, repeated over the heads
		all  int64
		at   int64
	}{
		{"q", a.q, w.q, s.B * s.H, s.N, query}, {"k", a.k, w.k, s.B * s.Hkv, s.M, key},
		{"v", a.v, w.v, s.B * s.Hkv, s.M, key}, {"log_g", a.g, w.g, a.gRows, s.M, key},
	} {
		if x.to.D == 0 {
			continue
		}
		for i := range x.to.B * x.to.H {
			row := x.to.Head(i/x.to.H, i%x.to.H)
			at := (int64(i%x.rows)*x.all + x.at) * int64(x.to.D)
			if err := array.ReadFloats(x.from, row.Data[:n*x.to.D], at); err != nil {
				return 0, markBadInput(err)
			}
		}
		if !a.allowsNonFinite {
			if err := checkFinite(x.name, x.to.Tokens(0, n), x.at); err != nil {
				return 0, err
			}
		}
	}
	if w.mask != nil {
		for b := range s.B {
			if err := array.ReadBools(a.mask, w.mask[b*n:][:n], int64(b%a.mRows)*s.M+key); err != nil {
				return 0, markBadInput(err)
			}
		}
	}
	w.SetTokens(n)
	return n, nil
}

// markBadInput marks an error as fault.ErrInput unless it comes from the file system.
func markBadInput(err error) error {
	var failed *fs.PathError
	if errors.As(err, &failed) {
		return err
	}
	return fault.Mark(fault.ErrInput, err)
}
