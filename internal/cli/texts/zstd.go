package texts

import (
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/farfield-ml/farfield/internal/dataset"
)

// maxWindow bounds the bytes behind it that a zstd file refers to, and so the memory of a reader. It is the bound
// of the program zstd.
const maxWindow = 1 << 27

// All verbs read zstd; the libraries below do not import a reader.
func init() {
	dataset.OpenZstd = func(r io.Reader) (io.Reader, error) {
		return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	}
}
