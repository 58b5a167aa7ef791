package main

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/check"
)

// zeros is a member of an .npz: an array of zeros, deflated once.
type zeros struct {
	header zip.FileHeader
	data   []byte
}

func newZeros(t *testing.T, dtype array.DType, shape ...int) zeros {
	t.Helper()
	n, err := array.CountElements(shape)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, flate.BestSpeed)
	sum, size := crc32.NewIEEE(), 0
	write := func(p []byte) {
		w.Write(p)
		sum.Write(p)
		size += len(p)
	}
	write(array.NPYHeader(dtype, shape))
	part := make([]byte, 1<<16)
	for left := n * dtype.Size(); left > 0; left -= min(left, len(part)) {
		write(part[:min(left, len(part))])
	}
	w.Close()
	return zeros{zip.FileHeader{Method: zip.Deflate, CRC32: sum.Sum32(), CompressedSize64: uint64(b.Len()), UncompressedSize64: uint64(size)}, b.Bytes()}
}

// A mismatch that headers show is reported before any large array is inflated.
func TestShapesAreCheckedBeforeDataAreRead(t *testing.T) {
	const n = 1 << 17 // tokens of q, k and v: 32 MiB each
	large := newZeros(t, array.F4, 1, 1, n, 64)
	small := func(dtype array.DType, shape ...int) zeros { return newZeros(t, dtype, shape...) }
	dir := t.TempDir()
	for _, c := range []struct {
		want, name string
		member     zeros
		verb       []string
	}{
		{"v: M is 3, k has 131072", "v", small(array.F4, 1, 1, 3, 64), []string{"attend", "--mechanism", "fastmax"}},
		{"k: D is 3, q has 64", "k", small(array.F4, 1, 1, n, 3), []string{"attend", "--mechanism", "softmax"}},
		{"v: dtype is u1; f4 or f8 is needed", "v", small(array.U1, 1, 1, n, 64), []string{"attend", "--mechanism", "fastmax"}},
		{"keymask: shape is [3], needs (B,M) or (M) = [1 131072]", "keymask", small(array.U1, 3), []string{"attend", "--mechanism", "fastmax"}},
		{"keymask: dtype is f4; u1 or bool is needed", "keymask", small(array.F4, n), []string{"attend", "--mechanism", "fastmax"}},
		{"key_lengths: has 3 elements, B is 1", "key_lengths", small(array.I8, 3), []string{"attend", "--mechanism", "fastmax"}},
		{"cu_k: missing; cu_q needs it", "cu_q", small(array.I8, 2), []string{"attend", "--mechanism", "fastmax"}},
		{"log_g: shape is [3], needs (B,H,M)", "log_g", small(array.F4, 3), []string{"attend", "--mechanism", "retention"}},
		{"do: N is 3, the output has 131072", "do", small(array.F4, 1, 1, 3, 64), []string{"attend", "--mechanism", "fastmax", "--grad"}},
		{"mask_qtok: shape is [3], needs", "mask_qtok", small(array.U1, 3), []string{"attend", "--mechanism", "fastmax", "--dropout", "1d", "--rate", "0.5"}},
		{"v: M is 3, k has 131072", "v", small(array.F4, 1, 1, 3, 64), []string{"maps", "--mechanism", "fastmax"}},
	} {
		var b bytes.Buffer
		z := zip.NewWriter(&b)
		members := map[string]zeros{"q": large, "k": large, "v": large}
		members[c.name] = c.member
		for name, m := range members {
			m.header.Name = name + ".npy"
			w, err := z.CreateRaw(&m.header)
			if err != nil {
				t.Fatal(err)
			}
			w.Write(m.data)
		}
		z.Close()
		in := filepath.Join(dir, "in.npz")
		if err := os.WriteFile(in, b.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
		args := append(c.verb, in)
		if c.verb[0] != "maps" {
			args = append(args, filepath.Join(dir, "out.npz"))
		}
		if got := check.AllocatedBytes(func() { refuses(t, c.want, args...) }); got > 16<<20 {
			t.Errorf("%s: %d bytes of memory for a file of %d", c.want, got, b.Len())
		}
	}
}
