package safetensors_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/farfield-ml/farfield/safetensors"
)

// Arrays are written for other programs, and read back.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "codebook.safetensors")
	codebook := safetensors.Tensor{Name: "codebook", Shape: []int{1, 2, 3}, Data: []float32{1, 2, 3, 4, 5, 6}}
	if err := safetensors.Write(path, []safetensors.Tensor{codebook}, map[string]string{"made by": "k-means"}); err != nil {
		log.Fatal(err)
	}

	f, err := safetensors.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	fmt.Println(f.Headers(), f.Metadata())
	x, err := f.Read("codebook")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(x.Shape, x.Data)
	// Output:
	// [{codebook F32 [1 2 3] 24}] map[made by:k-means]
	// [1 2 3] [1 2 3 4 5 6]
}
