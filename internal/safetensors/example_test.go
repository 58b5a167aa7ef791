package safetensors_test

import (
	"fmt"
	"log"
	"slices"

	"github.com/farfield-ml/farfield/internal/safetensors"
)

// The weights of a published model.
func Example() {
	f, err := safetensors.Open("../../pretrained/testdata/tiny/model.safetensors")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	for _, t := range f.Tensors()[:3] {
		fmt.Println(t.Name, t.DType, t.Shape, t.Bytes)
	}
	a, err := f.ReadArray("embeddings.LayerNorm.weight")
	if err != nil {
		log.Fatal(err)
	}
	weights, err := a.Float32()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(weights), slices.Max(weights) < 2)
	// Output:
	// embeddings.LayerNorm.bias F32 [8] 32
	// embeddings.LayerNorm.weight F32 [8] 32
	// embeddings.position_embeddings.weight F32 [16 8] 512
	// 8 true
}
