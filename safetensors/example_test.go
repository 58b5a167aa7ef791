package safetensors_test

import (
	"bytes"
	"fmt"
	"log"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/safetensors"
)

func Example() {
	weight, err := array.New("layers.0.wq", []float32{1, 2, 3, 4, 5, 6}, 2, 3)
	if err != nil {
		log.Fatal(err)
	}
	step, err := array.New("step", []int64{1000})
	if err != nil {
		log.Fatal(err)
	}
	var file bytes.Buffer
	err = safetensors.Write(&file, []*array.Array{weight, step}, map[string]string{"mechanism": "fastmax"})
	if err != nil {
		log.Fatal(err)
	}

	f, err := safetensors.New(bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(f.Metadata()["mechanism"])
	for _, t := range f.Tensors() {
		fmt.Println(t.Name, t.DType, t.Shape, t.Bytes)
	}
	a, err := f.ReadArray("layers.0.wq")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(a.Float32())
	// Output:
	// fastmax
	// step I64 [] 8
	// layers.0.wq F32 [2 3] 24
	// [1 2 3 4 5 6] <nil>
}
