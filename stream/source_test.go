//go:build !float64

package stream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/safetensors"
)

// opens writes arrays into a file, and returns the error of opening them.
func opens(t *testing.T, list []*array.Array) error {
	t.Helper()
	path := filepath.Join(t.TempDir(), "in.safetensors")
	var b bytes.Buffer
	if err := safetensors.Write(&b, list, nil); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	_, _, f, err := OpenArraySource(path)
	if err == nil {
		f.Close()
	}
	return err
}

// A transport that is cut between two tokens is no end of the pipe.
func TestCutPipeIsAnError(t *testing.T) {
	t.Parallel()
	data := make([]byte, 3*4*4) // three tokens
	for _, x := range []struct {
		end  error
		want string
	}{{io.EOF, ""}, {io.ErrUnexpectedEOF, "input: token 3: unexpected EOF"}} {
		r, err := NewPipeSource(io.MultiReader(bytes.NewReader(data), iotest.ErrReader(x.end)), Shape{H: 2, Hkv: 1, D: 1, Dv: 1})
		if err != nil {
			t.Fatal(err)
		}
		n, err := r.FillWindow(r.NewWindow(5, Keys|Queries), 0, 0, 5)
		if x.want != "" {
			refused(t, err, x.want)
		} else if n != 3 || err != nil {
			t.Errorf("%d tokens, %v", n, err)
		}
	}
}

// TestImpossibleOutputsAreRefused has outputs that cannot be, and leaves nothing behind.
func TestImpossibleOutputsAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	inFile := filepath.Join(dir, "in", "o.npy")
	if err := os.WriteFile(filepath.Dir(inFile), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(dir, "folder.raw")
	if err := os.Mkdir(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "o.txt"):           `o.txt: the suffix is ".txt", needs .npy, .safetensors or .raw`,
		filepath.Join(dir, "absent", "o.npy"): "no such file or directory",
		inFile:                                "in: not a folder",
		folder:                                "folder.raw: not a file",
	} {
		_, err := NewFileOutput(path, 4)
		refused(t, err, want)
	}
	p := problems[0]
	src := source(t, file(t, p.call()))
	for _, x := range []struct {
		rank  int
		every int64
		o     Options
		want  string
	}{
		{4, -1, Options{Causal: true}, "RowStep: one in -1 is written, needs 0 or more"},
		{5, 0, Options{Causal: true}, "o.npy: 5 dimensions have no room for B = 2 and H = 4"},
		{4, 0, Options{Causal: true, CheckpointInterval: -1}, "CheckpointInterval: -1ns is negative"},
	} {
		out := output(t, filepath.Join(dir, "o.npy"), x.rank)
		out.RowStep = x.every
		_, err := Run(context.Background(), p.mechanism(t), src, out, x.o)
		refused(t, err, x.want)
		if !errors.Is(err, fault.ErrInput) {
			t.Errorf("%v is not bad input", err)
		}
	}
	if names, _ := os.ReadDir(dir); len(names) != 2 {
		t.Errorf("left behind: %v", names)
	}
}

// What the file system says is not what is in a file.
func TestFileErrorsAreNotBadInput(t *testing.T) {
	t.Parallel()
	cause := errors.New("k: is empty")
	if err := markBadInput(cause); !errors.Is(err, fault.ErrInput) || !errors.Is(err, cause) || err.Error() != cause.Error() {
		t.Errorf("%v", err)
	}
	_, failed := os.Open(filepath.Join(t.TempDir(), "none"))
	if err := markBadInput(failed); errors.Is(err, fault.ErrInput) || err != failed {
		t.Errorf("%v", err)
	}
}

// TestArraysThatDoNotFitAreRefused has arrays that do not belong together.
func TestArraysThatDoNotFitAreRefused(t *testing.T) {
	t.Parallel()
	floats := func(name string, shape ...int) *array.Array {
		n := 1
		for _, d := range shape {
			n *= d
		}
		return made(t, name, make([]float32, n), shape...)
	}
	good := func() []*array.Array {
		return []*array.Array{floats("q", 2, 4, 5, 3), floats("k", 2, 2, 6, 3), floats("v", 2, 2, 6, 7)}
	}
	for _, x := range []struct {
		want string
		list []*array.Array // replace arrays of the same name, or are added
	}{
		{"", nil},
		{"", []*array.Array{floats("log_g", 6), made(t, "keymask", make([]uint8, 6), 6)}},
		{"", []*array.Array{floats("log_g", 2, 2, 6), made(t, "keymask", make([]bool, 12), 2, 6)}},
		{"key_lengths: not defined for a stream; keymask is", []*array.Array{floats("key_lengths", 2)}},
		{"q: has 1 dimensions, needs (N,D), (H,N,D) or (B,H,N,D)", []*array.Array{floats("q", 3)}},
		{"k: has 3 dimensions, q has 4", []*array.Array{floats("k", 2, 6, 3)}},
		{"v: dtype is i4; ", []*array.Array{made(t, "v", make([]int32, 168), 2, 2, 6, 7)}},
		{"k: B is 1, q has 2", []*array.Array{floats("k", 1, 2, 6, 3)}},
		{"k: D is 4, q has 3", []*array.Array{floats("k", 2, 2, 6, 4)}},
		{"v: B is 1, k has 2", []*array.Array{floats("v", 1, 2, 6, 7)}},
		{"v: H is 1, k has 2", []*array.Array{floats("v", 2, 1, 6, 7)}},
		{"v: M is 5, k has 6", []*array.Array{floats("v", 2, 2, 5, 7)}},
		{"k: 3 heads do not divide the 4 heads of q", []*array.Array{floats("k", 2, 3, 6, 3), floats("v", 2, 3, 6, 7)}},
		{"keymask: dtype is f4; ", []*array.Array{floats("keymask", 2, 6)}},
		{"keymask: shape is [2 5], needs (B,M) or (M) of k = [2 6]", []*array.Array{made(t, "keymask", make([]bool, 10), 2, 5)}},
		{"log_g: dtype is i4; ", []*array.Array{made(t, "log_g", make([]int32, 6), 6)}},
		{"log_g: shape is [4 6], needs (B,H,M), (H,M) or (M) of k = [2 2 6]", []*array.Array{floats("log_g", 4, 6)}},
	} {
		list := good()
	next:
		for _, a := range x.list {
			for i := range list {
				if list[i].Name == a.Name {
					list[i] = a
					continue next
				}
			}
			list = append(list, a)
		}
		err := opens(t, list)
		if x.want == "" && err != nil {
			t.Errorf("%d arrays: %v", len(list), err)
		} else if x.want != "" {
			refused(t, err, x.want)
		}
	}
	refused(t, opens(t, good()[:2]), "v: missing; the input has ")
}

// TestRawNumbersThatAreNoTokensAreRefused has raw numbers that are no tokens.
func TestRawNumbersThatAreNoTokensAreRefused(t *testing.T) {
	t.Parallel()
	heads := Shape{H: 2, Hkv: 1, D: 1, Dv: 1} // 4 numbers a token
	for _, x := range []struct {
		want string
		s    Shape
	}{
		{"shape: B is 2, raw numbers have 1", Shape{B: 2, H: 2, Hkv: 1, D: 1, Dv: 1}},
		{"shape: H is 0, needs 1 or more", Shape{Hkv: 1, D: 1, Dv: 1}},
		{"shape: Dv is -1, needs 1 or more", Shape{H: 2, Hkv: 1, D: 1, Dv: -1}},
		{"k: 3 heads do not divide the 2 heads of q", Shape{H: 2, Hkv: 3, D: 1, Dv: 1}},
		{" is beyond 64 bits", Shape{H: 1 << 30, Hkv: 1, D: 1 << 30, Dv: 1}},
		{" is beyond 64 bits", Shape{H: 1, Hkv: 1, D: 1 << 62, Dv: 1 << 62}},
	} {
		_, err := NewPipeSource(nil, x.s)
		refused(t, err, x.want)
		_, err = NewRawFileSource(nil, x.s)
		refused(t, err, x.want)
	}
	_, err := NewSyntheticSource(-1, 4, 1, 0)
	refused(t, err, "shape: N is -1, needs 0 or more")
	_, err = NewSyntheticSource(9, 0, 1, 0)
	refused(t, err, "shape: D is 0, needs 1 or more")

	numbers := make([]float32, 4*10)
	numbers[4*7+2] = float32(math.Inf(1)) // of the key of token 7
	path := filepath.Join(t.TempDir(), "in.raw")
	open := func(b []byte) (Source, error) {
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return NewRawFileSource(f, heads)
	}
	data := array.FloatBytes(numbers)
	_, err = open(data[:len(data)-1])
	refused(t, err, "in.raw: has 159 bytes, 15 more than whole tokens of 16")
	src, err := open(data)
	if err != nil {
		t.Fatal(err)
	}
	w := src.NewWindow(5, Keys|Queries)
	if w.role != Keys|Queries {
		t.Errorf("the room is for %v", w.role)
	}
	_, err = src.FillWindow(w, 5, 5, 5)
	refused(t, err, "k: element [0,0,7,0] is +Inf")
	if !errors.Is(err, fault.ErrInput) {
		t.Error("an infinity is not bad input")
	}
	src.(*rawSource).allowNonFinite(true)
	if n, err := src.FillWindow(w, 5, 5, 5); n != 5 || err != nil || !math.IsInf(float64(w.Call.K.Head(0, 0).Row(2)[0]), 1) {
		t.Errorf("%d tokens, %v", n, err)
	}
	if err := os.Truncate(path, 16*8); err != nil {
		t.Fatal(err)
	}
	_, err = src.FillWindow(w, 5, 5, 5)
	refused(t, err, "in.raw: truncated within tokens 5 to 9: EOF")
}
