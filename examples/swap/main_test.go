//go:build docs

package main

import (
	"os"
	"path/filepath"
	"strings"
)

func Example() {
	dir, err := os.MkdirTemp("", "swap-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	text := strings.Repeat("the cat sat on a mat, and dogs ran in the rain! ", 40)
	swap("../../pretrained/testdata/tiny", text, filepath.Join(dir, "swapped"))
	// Output:
	// The near field alone does as well here: cosine 1.0000 with 66 near keys and no far field, cosine 1.0000 with it. On these texts the far field is not needed. The wish (a cosine of 0.99) is met.
	// a vector of 8 numbers
}
